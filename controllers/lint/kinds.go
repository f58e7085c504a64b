package lint

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/builtin/kubetypes"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// Known is what machines may name, and what their objects look like, where it is
// more than this program has.
type Known struct {
	// Program is that of another binary, for every machine that is not compiled into
	// this one; nil: this one's.
	Program *fsm.Bindings
	// CRDs come before those that are compiled in.
	CRDs []apiextensionsv1.CustomResourceDefinition
	// Served answers which kinds a cluster has; nil: no cluster is asked.
	Served meta.RESTMapper
}

// Bindings answers what a machine may name: to the program that runs it what its manager has, and nothing else. What only a
// CRD says of the objects is Described. It is an error when CRDs are given and the kind is in none of them, nor compiled in:
// `self` would silently go unchecked.
func (k Known) Bindings(def *fsm.Definition) (fsm.Bindings, error) {
	b, err := catalog.Bindings(def)
	describe := generic.Describe
	if k.Program != nil && !catalog.Compiled(def.Metadata.Name) {
		b, describe = *k.Program, expr.Describe
	}
	if err != nil || b.Self != nil {
		return b, err
	}
	for i := range k.CRDs {
		if schema := catalog.SchemaOf(&k.CRDs[i], def.Spec.For); schema != nil {
			if b.Described, err = describe(schema); err == nil {
				b.Kept, err = expr.Describe(schema)
			}
			return b, err
		}
	}
	if len(k.CRDs) > 0 {
		err = fmt.Errorf("no CRD describes %s %s: correct spec.for, or give the CRD that has this version", def.Spec.For.APIVersion, def.Spec.For.Kind)
	}
	return b, err
}

// LoadCRDs reads the CRDs of a file, of one or more documents; anything else in it
// is passed over.
func LoadCRDs(f File) ([]apiextensionsv1.CustomResourceDefinition, error) {
	var all []apiextensionsv1.CustomResourceDefinition
	for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(f.Data), 4096); ; {
		var crd apiextensionsv1.CustomResourceDefinition
		switch err := docs.Decode(&crd); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read CRDs of %s: %w", f.Name, err)
		case crd.Kind == "CustomResourceDefinition":
			all = append(all, crd)
		}
	}
}

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
		found = append(found, ownStatus(m, call)...)
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
