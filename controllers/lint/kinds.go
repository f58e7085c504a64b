package lint

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/builtin/kubetypes"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/diag"
)

// Kinds finds what the kinds that a machine names lack: a misspelt one, one that the cluster does not serve, and a
// CRD that the machine cannot work with.
func (k Known) Kinds(m *fsm.Machine) diag.Diagnostics {
	var found diag.Diagnostics
	def := m.Definition()
	if !catalog.Compiled(m.Name()) {
		found = append(found, k.driven(def)...)
	}
	watches := func(path string, all []v1alpha1.Watch) {
		for i, w := range all {
			at := fmt.Sprintf("%s.watch[%d].kind", path, i)
			for _, flaw := range kubetypes.Misfits(w.APIVersion, w.Kind, nil) {
				found = append(found, def.Misfit(at, flaw))
			}
			found = append(found, k.served(def, at, w.APIVersion, w.Kind)...)
		}
	}
	watches("spec", def.Spec.Watch)
	for i, p := range def.Spec.Phases {
		watches(fmt.Sprintf("spec.phases[%d]", i), p.Watch)
	}
	for _, call := range m.Calls() {
		path := "kind"
		if call.With["manifest"] != nil {
			path = "manifest.kind"
		}
		for _, to := range builtin.Access(call.Action, call.With) {
			if to.Kind != "" {
				found = append(found, k.served(def, call.Place(path), to.APIVersion, to.Kind)...)
			}
		}
	}
	return unique(found)
}

// unique leaves one finding of those that an action named by several steps gets.
func unique(all diag.Diagnostics) diag.Diagnostics {
	type key struct {
		diag.Pos
		message string
	}
	seen := map[key]bool{}
	var out diag.Diagnostics
	for _, d := range all {
		if at := (key{d.Pos, d.Message}); !seen[at] {
			seen[at], out = true, append(out, d)
		}
	}
	return out
}

func (k Known) served(def *fsm.Definition, path, apiVersion, kind string) diag.Diagnostics {
	if k.Served == nil {
		return nil
	}
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	if _, err := k.Served.RESTMapping(gvk.GroupKind(), gvk.Version); !meta.IsNoMatchError(err) {
		return nil // that the cluster does not answer is no finding about the file
	}
	return diag.Diagnostics{def.Finding(path, "PG019", fmt.Sprintf("the cluster does not serve %s %s", apiVersion, kind), "correct the kind and its apiVersion, or install its CRD first")}
}

// driven looks whether the CRD of the objects that a machine drives keeps what the manager writes.
func (k Known) driven(def *fsm.Definition) diag.Diagnostics {
	kind := def.Spec.For
	for i := range k.CRDs {
		crd := &k.CRDs[i]
		if v := catalog.VersionOf(crd, kind); v != nil {
			const scaffold = "kubectl phasegate scaffold --only=crd prints a CRD that does"
			switch {
			case !v.Served:
				return diag.Diagnostics{def.Finding("spec.for", "PG019", fmt.Sprintf("CRD %s does not serve version %s", crd.Name, v.Name), "set served: true there, or name another version")}
			case v.Subresources == nil || v.Subresources.Status == nil:
				return diag.Diagnostics{def.Finding("spec.for", "PG019", fmt.Sprintf("CRD %s has no status subresource: its objects would not be driven", crd.Name), "add subresources: {status: {}} there; "+scaffold)}
			case v.Schema != nil && !check.Keeps(v.Schema.OpenAPIV3Schema, "status.machine"):
				x := def.Finding("spec.for", "PG105", fmt.Sprintf("CRD %s does not keep status.machine: kubectl cannot show what is held, and why nothing moves", crd.Name), "add machine: {type: object, x-kubernetes-preserve-unknown-fields: true} to its status; "+scaffold)
				x.Severity = diag.SeverityWarning
				return diag.Diagnostics{x}
			}
			return nil
		}
	}
	return nil
}
