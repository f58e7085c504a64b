package program

import (
	"maps"
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
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
	// Check finds what the action can do nothing with in all parameters of a call together, as the file has them: a
	// text may hold ${…}. nil: nothing is looked for.
	Check func(with expr.Params) []Misfit `json:"-"`
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
	// Self is the type of `self`; nil leaves it unchecked until it is evaluated.
	Self *expr.Schema
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
		}
		for _, p := range d.Spec.Phases {
			for _, s := range p.Steps {
				delete(unused, s.Action)
			}
		}
	}
	return slices.Sorted(maps.Keys(unused))
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
