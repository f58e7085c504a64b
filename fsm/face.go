package fsm

import "github.com/phasegate/phasegate/fsm/expr"

// Who writes an action needs what it is given and what it answers, and nothing else of how a machine file is
// read: these names of the packages below are said here once more, so that such a package imports fsm alone.

// Params are the `with` values of a step, of the types that the action declares.
type Params = expr.Params

// Type is the type of a `with` value or of an output.
type Type = expr.Type

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
