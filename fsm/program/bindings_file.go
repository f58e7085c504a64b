package program

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/diag"
	"github.com/phasegate/phasegate/fsm/expr"
)

// KindBindings is the kind of a bindings file.
const KindBindings = "Bindings"

// bindingsFile is the file form of Bindings: what a program has, for those who
// check its machines without it.
type bindingsFile struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Metadata   v1alpha1.FileMeta     `json:"metadata"`
	Actions    map[string]ActionSpec `json:"actions,omitempty"`
	Guards     map[string]string     `json:"guards,omitempty"`
	Roles      map[string]Role       `json:"roles,omitempty"`
}

var knownTypes = []expr.Type{expr.TypeString, expr.TypeInt, expr.TypeNumber, expr.TypeBool, expr.TypeDuration, expr.TypeStrings, expr.TypeObject, expr.TypeAny}

// LoadBindings reads a file of kind Bindings as strictly as a machine. The type of
// `self` is not in it: that is a CRD's to tell. It may be called any number of times.
func LoadBindings(file string, data []byte) (Bindings, diag.Diagnostics) {
	var f bindingsFile
	src, diags := diag.Decode(file, data, &f)
	if len(diags) > 0 {
		return Bindings{}, diags
	}
	if f.APIVersion != v1alpha1.APIVersion || f.Kind != KindBindings {
		return Bindings{}, diag.Diagnostics{src.Finding("apiVersion", "PG000", fmt.Sprintf("apiVersion %q, kind %q", f.APIVersion, f.Kind),
			fmt.Sprintf("write apiVersion: %s and kind: %s", v1alpha1.APIVersion, KindBindings))}
	}
	check := func(path string, t expr.Type) {
		if !t.Known() {
			diags = append(diags, src.Finding(path, "PG000", fmt.Sprintf("unknown type %q", t), fmt.Sprintf("write one of %q", knownTypes)))
		}
	}
	for action, spec := range f.Actions {
		for name, p := range spec.Params {
			check(fmt.Sprintf("actions.%s.params.%s.type", action, name), p.Type)
		}
		for name, t := range spec.Outputs {
			check(fmt.Sprintf("actions.%s.outputs.%s", action, name), t)
		}
	}
	for name, role := range f.Roles {
		if role.Of != RoleOfPhase && role.Of != RoleOfEffect {
			diags = append(diags, src.Finding("roles."+name+".of", "PG000", fmt.Sprintf("a role of %q", role.Of), "write phase or effect"))
		}
	}
	return Bindings{Actions: f.Actions, Guards: f.Guards, Roles: f.Roles}, diags.Sorted()
}

// File renders bindings as LoadBindings reads them; name says whose they are.
func (b Bindings) File(name string) ([]byte, error) {
	return yaml.Marshal(bindingsFile{
		APIVersion: v1alpha1.APIVersion, Kind: KindBindings, Metadata: v1alpha1.FileMeta{Name: name},
		Actions: b.Actions, Guards: b.Guards, Roles: b.Roles,
	})
}

// String lists actions, guards and roles for people: what each is for, what it takes and
// what it tells.
func (b Bindings) String() string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(b.Actions)) {
		spec := b.Actions[name]
		fmt.Fprintf(&out, "%s\n    %s\n", name, spec.Doc)
		for _, p := range slices.Sorted(maps.Keys(spec.Params)) {
			fmt.Fprintf(&out, "    with.%s: %s\n", p, spec.Params[p])
		}
		for _, o := range slices.Sorted(maps.Keys(spec.Outputs)) {
			fmt.Fprintf(&out, "    result.%s: %s\n", o, spec.Outputs[o])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Guards)) {
		fmt.Fprintf(&out, "guards.%s\n    %s\n", name, b.Guards[name])
	}
	for _, name := range slices.Sorted(maps.Keys(b.Roles)) {
		fmt.Fprintf(&out, "role: %s\n    %s\n", name, b.Roles[name])
	}
	return out.String()
}

// String is the type and what it is for.
func (p Param) String() string {
	text := string(p.Type)
	if p.Required {
		text += ", required"
	}
	if p.Doc != "" {
		text += ": " + p.Doc
	}
	return text
}
