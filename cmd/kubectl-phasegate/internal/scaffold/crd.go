package scaffold

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/controllers/builtin/kubetypes"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// CRD is a CustomResourceDefinition of the kind that a machine drives, as YAML. Its status
// keeps what the manager writes; its spec has the fields that the expressions of the file
// read, with the types that follow from their use.
func CRD(m *fsm.Machine, o Options) (string, error) {
	gvk := schema.FromAPIVersionAndKind(m.For().APIVersion, m.For().Kind)
	if gvk.Group == "" || !strings.Contains(gvk.Group, ".") {
		return "", fmt.Errorf("the group of %s must be a domain name, as a CRD has it: write for: {apiVersion: GROUP.EXAMPLE.COM/v1, …}", m.For().APIVersion)
	}
	_, plural := o.resources(m.For().APIVersion, gvk.Kind)
	scope := "Namespaced"
	if o.ClusterScoped {
		scope = "Cluster"
	}
	return fill(crdText, map[string]any{
		"Machine": m.Name(), "Group": gvk.Group, "Version": gvk.Version, "Kind": gvk.Kind, "Scope": scope,
		"Plural": plural, "Singular": strings.ToLower(gvk.Kind), "Spec": specOf(m).text(), "Status": statusOf(m),
	})
}

// field is a part of spec.
type field struct {
	types            []string
	optional, inText bool
	below            map[string]*field
}

// at finds or makes the field at a path.
func (f *field) at(path []string) *field {
	for _, name := range path {
		if f.below == nil {
			f.below = map[string]*field{}
		}
		if f.below[name] == nil {
			f.below[name] = &field{}
		}
		f = f.below[name]
	}
	return f
}

func specOf(m *fsm.Machine) *field {
	root := &field{types: []string{"object"}}
	for _, read := range m.Fields() {
		if read.Path[0] != "spec" || len(read.Path) == 1 {
			continue
		}
		f := root.at(read.Path[1:])
		f.optional = f.optional || read.Optional
		f.inText = f.inText || read.InText
		f.types = append(f.types, read.Types...)
	}
	for text, kind := range usedAs(m) {
		if path := expr.FieldOf(text); len(path) > 1 && path[0] == "spec" {
			f := root.at(path[1:])
			f.types = append(f.types, kind)
		}
	}
	return root
}

// usedAs are the types that parameters and manifests want of expressions, by their text.
func usedAs(m *fsm.Machine) map[string]string {
	all := map[string]string{}
	for _, call := range m.Calls() {
		params := m.Bindings().Actions[call.Action].Params
		for name, v := range call.With {
			if text, isText := v.(string); isText && wanted[params[name].Type] != "" {
				all[text] = wanted[params[name].Type]
			}
		}
		maps.Copy(all, kubetypes.Variables(call.With.String("apiVersion", ""), call.With.String("kind", ""), call.With.Object("patch")))
		manifest := call.With.Object("manifest")
		apiVersion, _ := manifest["apiVersion"].(string)
		kind, _ := manifest["kind"].(string)
		if call.Action == "RunJob" {
			apiVersion, kind = "batch/v1", "Job"
		}
		maps.Copy(all, kubetypes.Variables(apiVersion, kind, manifest))
	}
	return all
}

var wanted = map[fsm.Type]string{
	fsm.TypeString: "string", fsm.TypeInt: "integer", fsm.TypeNumber: "number", fsm.TypeBool: "boolean", fsm.TypeDuration: "duration",
}

// text is the schema of spec, indented as it stands in the CRD.
func (f *field) text() string {
	var out strings.Builder
	const indent = "        "
	required := f.required()
	if required != "" {
		out.WriteString(indent + "required: [spec]\n")
	}
	out.WriteString(indent + "properties:\n" + indent + "  spec:\n")
	f.write(&out, indent+"    ")
	return out.String()
}

func (f *field) write(out *strings.Builder, indent string) {
	if f.below == nil {
		out.WriteString(indent + f.leaf() + "\n")
		return
	}
	out.WriteString(indent + "type: object\n")
	if required := f.required(); required != "" {
		out.WriteString(indent + "required: [" + required + "]\n")
	}
	out.WriteString(indent + "properties:\n")
	for _, name := range slices.Sorted(maps.Keys(f.below)) {
		part := f.below[name]
		if part.below == nil {
			fmt.Fprintf(out, "%s  %s: %s\n", indent, name, part.leaf())
			continue
		}
		fmt.Fprintf(out, "%s  %s:\n", indent, name)
		part.write(out, indent+"    ")
	}
}

func (f *field) required() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f.below)) {
		if !f.below[name].optional {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// leaf is the type of a field without fields; any where its uses do not agree.
func (f *field) leaf() string {
	types := slices.Compact(slices.Sorted(slices.Values(f.types)))
	if len(types) > 1 { // a date is a text as well
		types = slices.DeleteFunc(types, func(t string) bool {
			return t == "string" && (slices.Contains(types, "date-time") || slices.Contains(types, "duration"))
		})
	}
	if len(types) == 0 && f.inText {
		types = []string{"string"}
	}
	if len(types) != 1 {
		return "{x-kubernetes-preserve-unknown-fields: true} # any: the machine does not say which type"
	}
	switch types[0] {
	case "string":
		if f.optional {
			return "{type: string}"
		}
		return "{type: string, minLength: 1}"
	case "date-time", "duration":
		return "{type: string, format: " + types[0] + "}"
	case "array":
		return "{type: array, maxItems: 100, items: {x-kubernetes-preserve-unknown-fields: true}} # maxItems bounds what expressions over it cost"
	case "object":
		return "{type: object, x-kubernetes-preserve-unknown-fields: true}"
	}
	return "{type: " + types[0] + "}"
}
