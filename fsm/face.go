package fsm

import (
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// A program that has actions says what they are, binds a machine file to them, and answers when one is called. For
// this it imports fsm alone: the names of the packages below that it needs are said here once more. What reads a
// machine, as a drawing does, imports those packages.

// Definition is a machine file that decoded without a finding.
type Definition = program.Definition

// Load decodes a machine file strictly; what it says is checked by Bind. It reads
// nothing but data, and may be called any number of times. The definition is nil
// when there is a finding.
func Load(file string, data []byte) (*Definition, diag.Diagnostics) { return program.Load(file, data) }

// What a program has, for those who write machines for it.
type (
	// Bindings are the actions and guards that the program has, and the type of the objects that it drives.
	Bindings = program.Bindings
	// ActionSpec declares an action that a machine may name.
	ActionSpec = program.ActionSpec
	// Param declares one `with` value.
	Param = program.Param
	// Type is the type of a `with` value or of an output.
	Type = expr.Type
	// Inverse is the action that takes back what another one does.
	Inverse = program.Inverse
	// Target is an object that an action is about, as far as the machine file tells.
	Target = program.Target
	// Misfit is a place in the parameters of a call that the action can do nothing with.
	Misfit = program.Misfit
	// Shape is what is known of an output of type object.
	Shape = expr.Shape
	// Misshape is why a path leads to nothing in such an output.
	Misshape = expr.Misshape
	// Role declares what a phase or an effect of a machine can be to the program.
	Role = program.Role
	// SecretRef stands in the parameters of a call in place of a value that nobody may read there.
	SecretRef = program.SecretRef
	// Params are the `with` values of a step, of the types that the action declares.
	Params = expr.Params
	// Class is the kind of an error, as `onError[].is` names it.
	Class = program.Class
)

// AsSecretRef reads a reference to a secret. It is nil where the value is none, and an error where it is one with a mistake.
func AsSecretRef(value any) (*SecretRef, error) { return program.AsSecretRef(value) }

// SecretRefs are the references in a value, without those that have a mistake.
func SecretRefs(value any) []SecretRef { return program.SecretRefs(value) }

// Where in a parameter references to secrets may stand.
const (
	SecretsAnywhere = program.SecretsAnywhere
	SecretsInSecret = program.SecretsInSecret
)

// The types of parameters and outputs.
const (
	TypeString   = expr.TypeString
	TypeInt      = expr.TypeInt
	TypeNumber   = expr.TypeNumber
	TypeBool     = expr.TypeBool
	TypeDuration = expr.TypeDuration
	TypeStrings  = expr.TypeStrings
	TypeObject   = expr.TypeObject
	TypeAny      = expr.TypeAny
)

// What has roles.
const (
	RoleOfPhase  = program.RoleOfPhase
	RoleOfEffect = program.RoleOfEffect
)

// The classes of errors. The driver classifies; the engine only compares.
const (
	ClassTerminal    = program.ClassTerminal
	ClassConflict    = program.ClassConflict
	ClassForbidden   = program.ClassForbidden
	ClassNotFound    = program.ClassNotFound
	ClassInvalid     = program.ClassInvalid
	ClassTimeout     = program.ClassTimeout
	ClassThrottled   = program.ClassThrottled
	ClassUnavailable = program.ClassUnavailable
	ClassAny         = program.ClassAny
)
