package builtin

import (
	"maps"

	"github.com/phasegate/phasegate/controllers/builtin/kubetypes"
	"github.com/phasegate/phasegate/fsm"
)

// What a manifest says is compared with what its kind has, when a file is read.

func fieldsOfManifest(with fsm.Params) []fsm.Misfit {
	manifest := with.Object("manifest")
	apiVersion, _ := manifest["apiVersion"].(string)
	kind, _ := manifest["kind"].(string)
	if isSecretManifest(manifest) {
		with = fsm.Params{"manifest": withTexts(manifest)}
	}
	return misfits(with, "manifest", apiVersion, kind)
}

func isSecretManifest(manifest map[string]any) bool {
	apiVersion, _ := manifest["apiVersion"].(string)
	kind, _ := manifest["kind"].(string)
	return isSecret(apiVersion, kind)
}

// withTexts is a manifest of kind Secret with texts where it has references to secrets.
func withTexts(manifest map[string]any) map[string]any {
	texts, _ := manifest["stringData"].(map[string]any)
	texts, manifest = maps.Clone(texts), maps.Clone(manifest)
	for key, value := range texts {
		if ref, _ := fsm.AsSecretRef(value); ref != nil {
			texts[key] = ""
		}
	}
	if texts != nil {
		manifest["stringData"] = texts
	}
	return manifest
}

func fieldsOfJob(with fsm.Params) []fsm.Misfit { return misfits(with, "manifest", "batch/v1", "Job") }

// kindOfTarget is for actions that name an object and nothing of its content.
func kindOfTarget(with fsm.Params) []fsm.Misfit {
	return kubetypes.Misfits(with.String("apiVersion", ""), with.String("kind", ""), nil)
}

func misfits(with fsm.Params, param, apiVersion, kind string) []fsm.Misfit {
	all := kubetypes.Misfits(apiVersion, kind, with.Object(param))
	for i := range all {
		if _, inContent := with.Object(param)[all[i].Path]; all[i].Path != "kind" || inContent {
			all[i].Path = param + "." + all[i].Path
		}
	}
	return all
}
