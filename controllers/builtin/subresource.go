package builtin

import (
	"maps"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"

	"github.com/phasegate/phasegate/controllers/builtin/kubetypes"
	"github.com/phasegate/phasegate/fsm"
)

// The subresources that Patch writes.
const (
	subStatus = "status"
	subScale  = "scale"
)

const scaleKind = "Scale"

var scaleAPIVersion = autoscalingv1.SchemeGroupVersion.String()

// patchFlaw is what a patch cannot do to the part of an object that it is for, and where it says so. It is asked when a file is
// read, and when the action is called.
func patchFlaw(with fsm.Params) (path string, err error) {
	patch := with.Object("patch")
	if err := restoreFlaw(with); err != nil {
		return "restore", err
	}
	switch subresource := with.String("subresource", ""); subresource {
	case "":
		if _, found := patch["status"]; found {
			return "patch.status", fsm.Terminal("StatusRefused",
				"it names status, which belongs to the controller of the object: set fields of spec or metadata, or patch the subresource status")
		}
	case subStatus:
		return beside(patch, "patch", "status")
	case subScale:
		if path, err := beside(patch, "patch", "spec"); err != nil {
			return path, err
		}
		return replicasFlaw(patch)
	default:
		return "subresource", badParameter("subresource is %q: write status or scale, plainly, for the rights follow from it", subresource)
	}
	return "", nil
}

// restoreFlaw is what a patch cannot put back.
func restoreFlaw(with fsm.Params) error {
	switch {
	case !with.Bool("restore", false):
	case isSecret(with.String("apiVersion", ""), with.String("kind", "")):
		return fsm.Terminal("SecretRefused", "what is found in a Secret would be readable in an annotation: write a Secret of its own with Apply")
	case with.String("subresource", "") != "" || with.String("type", mergePatch) == strategicPatch:
		return fsm.Terminal("InvalidPatch", "restore is for a merge patch of the object itself: leave subresource and type out, or name a release that says the values")
	}
	return nil
}

// beside finds the first field beside the one that may be written: the API server would drop it silently.
func beside(fields map[string]any, path, only string) (string, error) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != only {
			return path + "." + name, fsm.Terminal("InvalidPatch", "%s.%s is no part of the subresource, which takes %s.%s and nothing else: set it by another step", path, name, path, only)
		}
	}
	return "", nil
}

// replicasFlaw: null would be none, and so would a misspelt field.
func replicasFlaw(patch map[string]any) (string, error) {
	spec, _ := patch["spec"].(map[string]any)
	if path, err := beside(spec, "patch.spec", "replicas"); err != nil {
		return path, err
	}
	if spec["replicas"] == nil {
		return "patch.spec", fsm.Terminal("InvalidPatch", "a scale has a number of replicas: write patch: {spec: {replicas: N}}")
	}
	return "", nil
}

// fieldsOfPatch compares a patch with the kind of its object, or with a scale.
func fieldsOfPatch(with fsm.Params) []fsm.Misfit {
	if path, err := patchFlaw(with); err != nil {
		return []fsm.Misfit{{Path: path, Message: err.Error()}}
	}
	apiVersion, kind := with.String("apiVersion", ""), with.String("kind", "")
	only := misfits(with, "only", apiVersion, kind)
	if with.String("subresource", "") != subScale {
		return append(misfits(with, "patch", apiVersion, kind), only...)
	}
	if kubetypes.NoScale(apiVersion, kind) {
		return []fsm.Misfit{{Path: "subresource", Message: "a " + kind + " cannot be scaled"}}
	}
	return append(misfits(with, "patch", scaleAPIVersion, scaleKind), only...)
}
