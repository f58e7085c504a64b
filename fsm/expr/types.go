package expr

import (
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// CELType is the type in expressions.
func (t Type) CELType() *cel.Type {
	switch t {
	case TypeString:
		return cel.StringType
	case TypeInt:
		return cel.IntType
	case TypeNumber:
		return cel.DoubleType
	case TypeBool:
		return cel.BoolType
	case TypeDuration:
		return cel.DurationType
	case TypeStrings:
		return cel.ListType(cel.StringType)
	}
	return cel.DynType
}

// kinds are those of expressions that an action can get as a type. 3.0 is whole.
var kinds = map[Type][]types.Kind{
	TypeString:   {types.StringKind, types.BytesKind, types.TimestampKind, types.DurationKind},
	TypeInt:      {types.IntKind, types.UintKind, types.DoubleKind},
	TypeNumber:   {types.IntKind, types.UintKind, types.DoubleKind},
	TypeBool:     {types.BoolKind},
	TypeDuration: {types.DurationKind, types.StringKind},
	TypeStrings:  {types.ListKind},
	TypeObject:   {types.MapKind, types.StructKind},
}

// Fits tells whether a value of a type of expressions can be of the type, seen as
// the action gets it. What cannot be told before it is evaluated fits.
func (t Type) Fits(of *cel.Type) bool {
	kind := of.Kind()
	switch kind {
	case types.DynKind, types.AnyKind, types.TypeParamKind, types.ErrorKind:
		return true
	case types.OpaqueKind: // an optional
		return len(of.Parameters()) != 1 || t.Fits(of.Parameters()[0])
	case types.ListKind:
		if t == TypeStrings {
			return TypeString.Fits(of.Parameters()[0])
		}
	}
	fit, typed := kinds[t]
	return !typed || slices.Contains(fit, kind)
}

// Type is the type of a `with` value or of an output.
type Type string

// The types of parameters and outputs.
const (
	TypeString   Type = "string"
	TypeInt      Type = "int"
	TypeNumber   Type = "number"
	TypeBool     Type = "bool"
	TypeDuration Type = "duration"
	TypeStrings  Type = "[]string"
	// TypeObject is content that nobody declared: a manifest, or another object
	// of the cluster. An expression that reads one may fail when it is evaluated.
	TypeObject Type = "object"
	TypeAny    Type = "any"
)
