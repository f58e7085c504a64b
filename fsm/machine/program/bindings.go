package program

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// ActionSpec declares an action that a machine may name.
type ActionSpec struct {
	// Doc is one sentence for people.
	Doc string `json:"doc,omitempty"`
	// Params are the names that `with` may use.
	Params map[string]Param `json:"params,omitempty"`
	// Outputs are the names that the action adds to `result`, and their types.
	Outputs map[string]expr.Type `json:"outputs,omitempty"`
	// External says that the action calls something outside the cluster. It is not called before its
	// poll is due, whatever wakes the object; one that only reads the cluster is.
	External bool `json:"external,omitempty"`
	// Reads is the object that the outputs are about, and Writes the one that the action changes,
	// where the machine file says which: lint looks whether a phase may be run again.
	Reads  *Target `json:"reads,omitempty"`
	Writes *Target `json:"writes,omitempty"`
	// Runs names what the action starts and waits for, and what goes on when the step is left before it
	// is done: a Job. Empty: nothing.
	Runs string `json:"runs,omitempty"`
	// Ends tells whether a call ends for certain what a call of an action with Runs has started; both with the parameters that the
	// file has. nil: it ends nothing, unless it is the release of an effect.
	Ends func(with, run expr.Params) bool `json:"-"`
	// Inverse releases an effect that the action acquires, unless the file names a release. nil: there is none.
	Inverse *Inverse `json:"inverse,omitempty"`
	// Shapes are what is known of outputs of type object, by the parameters that the file has.
	Shapes func(with expr.Params) map[string]expr.Shape `json:"-"`
	// Check finds what the action can do nothing with in all parameters of a call together, as the file has them: a
	// text may hold ${…}. nil: nothing is looked for.
	Check func(with expr.Params) []Misfit `json:"-"`
}

// Inverse is the action that takes back what another one does: it releases an effect whose file names no release. It is data, so
// that a bindings file has it, too.
type Inverse struct {
	// Action is the program's name of it.
	Action string `json:"action"`
	// With says where in the parameters of the other action each of its own is, as in manifest.metadata.name. One that is
	// not there is left out.
	With map[string]string `json:"with,omitempty"`
	// If is a parameter of the other action that must be true, written plainly; empty: there always is an inverse.
	If string `json:"if,omitempty"`
}

// Misfit is a place in the parameters of a call that the action can do nothing with.
type Misfit struct {
	// Path begins with the name of the parameter: manifest.spec.replicas.
	Path string
	// Message says what is wrong.
	Message string
	// Name was written where only one of Known can be; empty: the value is wrong.
	Name  string
	Known []string
}

// Param declares one `with` value.
type Param struct {
	Type expr.Type `json:"type"`
	// Required parameters have no fall-back.
	Required bool `json:"required,omitempty"`
	// Doc is one sentence for people.
	Doc string `json:"doc,omitempty"`
	// Secrets is where in the value references to secrets may stand; empty: nowhere.
	Secrets SecretUse `json:"secrets,omitempty"`
	// Keeps: each field of the value names a secret output that the call makes.
	Keeps bool `json:"keepsSecrets,omitempty"`
	// Empties are outputs that are empty where the parameter is given.
	Empties []string `json:"empties,omitempty"`
	// Check refuses a value of that type that the action can do nothing with; nil: there is none. A file is refused for
	// what it says plainly. In an object, a text with ${…} is given as it is written.
	Check func(value any) error `json:"-"`
}

// Bindings are the actions and guards that the program has, and the type of the
// objects that it drives.
type Bindings struct {
	Actions map[string]ActionSpec
	// Guards maps the name of a guard to one sentence for people.
	Guards map[string]string
	// Roles are what phases and effects can be to the program: it knows none of their names.
	Roles map[string]Role
	// For is the kind that the actions are made for; none when they are for any.
	For v1alpha1.ObjectKind
	// Self is the type of `self`; nil: the program reads its objects as JSON has them, and what is read of them is not
	// checked until it is evaluated.
	Self *expr.Schema
	// Described is what a CRD says of the objects of a program without Self (expr.Describe). Everything is checked with it a
	// second time, and nothing is run with it: what passes with it passes without it, too. nil: no CRD is known.
	Described *expr.Schema
	// Fields are those of the whole object that the program reads; none: all.
	Fields []string
	// Reserved are the fields of a status that the program writes: spec.status has others. nil: the program cannot show any.
	Reserved []string
	// Kept is what a CRD says of the whole object, its status included, as Described is of what expressions read. nil: no CRD
	// is known.
	Kept *expr.Schema
}

// Unused lists the actions that no step, effect or named action of any of the
// machines uses. A program whose shipped machines leave one unused has dead code
// or a misspelled file; its tests refuse that. An edited file may leave actions out.
func (b Bindings) Unused(defs ...*Definition) []string {
	unused := maps.Clone(b.Actions)
	for _, d := range defs {
		for _, a := range d.Spec.Actions {
			delete(unused, a.Use)
		}
		for _, e := range d.Spec.Effects {
			delete(unused, e.Acquire)
			delete(unused, e.Release)
			if inv := b.Actions[d.use(e.Acquire)].Inverse; inv != nil && e.Release == "" {
				delete(unused, inv.Action)
			}
		}
		for _, p := range d.Spec.Phases {
			for _, s := range p.Steps {
				delete(unused, s.Action)
			}
		}
	}
	return slices.Sorted(maps.Keys(unused))
}

// use is the program's name of an action of the file.
func (d *Definition) use(action string) string {
	for _, a := range d.Spec.Actions {
		if a.Name == action {
			return a.Use
		}
	}
	return action
}

// Target is an object that an action is about, as far as the machine file tells.
type Target struct {
	// Manifest is the parameter that holds the object. Empty: the parameters apiVersion, kind,
	// namespace and name say which it is, as far as the action has them.
	Manifest string `json:"manifest,omitempty"`
	// Param is the parameter that says which fields it is about: a list of paths, or an object
	// that has them. Where it is left out, or there is none, these are Fields.
	Param string `json:"param,omitempty"`
	// Fields are paths such as spec.replicas; none: the object is read or written as a whole.
	Fields []string `json:"fields,omitempty"`
	// Waits says of an action that reads that it waits until the fields say something.
	Waits bool `json:"waits,omitempty"`
}

// Role declares what a phase or an effect of a machine can be to the program.
type Role struct {
	// Doc is one sentence for people.
	Doc string `json:"doc,omitempty"`
	// Of is what may have it.
	Of RoleOf `json:"of"`
	// Required: a machine of the program has it.
	Required bool `json:"required,omitempty"`
	// Unique: no more than one has it.
	Unique bool `json:"unique,omitempty"`
}

// RoleOf is what a role is for.
type RoleOf string

// What has roles.
const (
	RoleOfPhase  RoleOf = "phase"
	RoleOfEffect RoleOf = "effect"
)

// String is what the role is of, and what it says.
func (r Role) String() string {
	text := "of a " + string(r.Of)
	if r.Of == RoleOfEffect {
		text = "of an effect"
	}
	if r.Unique {
		text += ", of one only"
	}
	if r.Required {
		text += ", required"
	}
	return text + ": " + r.Doc
}

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
	Reserved   []string              `json:"reserved,omitempty"`
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
			if name == expr.VarSteps {
				diags = append(diags, src.Finding(fmt.Sprintf("actions.%s.outputs.%s", action, name), "PG000", "an output cannot be called "+name, "choose another name: result keeps there what each step has said"))
			}
			check(fmt.Sprintf("actions.%s.outputs.%s", action, name), t)
		}
	}
	for name, role := range f.Roles {
		if role.Of != RoleOfPhase && role.Of != RoleOfEffect {
			diags = append(diags, src.Finding("roles."+name+".of", "PG000", fmt.Sprintf("a role of %q", role.Of), "write phase or effect"))
		}
	}
	return Bindings{Actions: f.Actions, Guards: f.Guards, Roles: f.Roles, Reserved: f.Reserved}, diags.Sorted()
}

// File renders bindings as LoadBindings reads them; name says whose they are.
func (b Bindings) File(name string) ([]byte, error) {
	return yaml.Marshal(bindingsFile{
		APIVersion: v1alpha1.APIVersion, Kind: KindBindings, Metadata: v1alpha1.FileMeta{Name: name},
		Actions: b.Actions, Guards: b.Guards, Roles: b.Roles, Reserved: b.Reserved,
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
