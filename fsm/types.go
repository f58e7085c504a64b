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

// texts are the kinds that a parameter gets as a text.
var texts = []types.Kind{types.StringKind, types.BytesKind, types.TimestampKind, types.DurationKind}

var numbers = []types.Kind{types.IntKind, types.UintKind, types.DoubleKind}

// fits tells whether a value of a type of expressions can be of the type, seen as
// the action gets it. What cannot be told before it is evaluated fits.
func (t Type) fits(of *cel.Type) bool {
	kind := of.Kind()
	switch kind {
	case types.DynKind, types.AnyKind, types.TypeParamKind, types.ErrorKind:
		return true
	case types.OpaqueKind: // an optional
		return len(of.Parameters()) != 1 || t.fits(of.Parameters()[0])
	}
	switch t {
	case TypeString:
		return slices.Contains(texts, kind)
	case TypeInt, TypeNumber: // 3.0 is whole
		return slices.Contains(numbers, kind)
	case TypeBool:
		return kind == types.BoolKind
	case TypeDuration:
		return kind == types.DurationKind || kind == types.StringKind
	case TypeStrings:
		return kind == types.ListKind && TypeString.fits(of.Parameters()[0])
	case TypeObject:
		return kind == types.MapKind || kind == types.StructKind
	}
	return true
}
