package fsm

import (
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// cel is the type in expressions.
func (t Type) cel() *cel.Type {
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

// fits tells whether a value of a type of expressions can be of the type, seen as
// the action gets it. What cannot be told before it is evaluated fits.
func (t Type) fits(of *cel.Type) bool {
	kind := of.Kind()
	switch kind {
	case types.DynKind, types.AnyKind, types.TypeParamKind, types.ErrorKind:
		return true
	case types.OpaqueKind: // an optional
		return len(of.Parameters()) != 1 || t.fits(of.Parameters()[0])
	case types.ListKind:
		if t == TypeStrings {
			return TypeString.fits(of.Parameters()[0])
		}
	}
	fit, typed := kinds[t]
	return !typed || slices.Contains(fit, kind)
}
