package expr

import (
	"cmp"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// typeOf is what there is to know of a type: what it is in expressions, the kinds of expressions that an action can get as
// it (nil: all), and whether a value that JSON could hold is of it.
type typeOf struct {
	cel     *cel.Type
	kinds   []types.Kind
	accepts func(any) bool
}

var (
	numbers = []types.Kind{types.IntKind, types.UintKind, types.DoubleKind} // 3.0 is whole
	typesOf = map[Type]typeOf{
		TypeString:   {cel.StringType, []types.Kind{types.StringKind, types.BytesKind, types.TimestampKind, types.DurationKind}, is[string]},
		TypeInt:      {cel.IntType, numbers, isWhole},
		TypeNumber:   {cel.DoubleType, numbers, func(v any) bool { return is[float64](v) || isWhole(v) }},
		TypeBool:     {cel.BoolType, []types.Kind{types.BoolKind}, is[bool]},
		TypeDuration: {cel.DurationType, []types.Kind{types.DurationKind, types.StringKind}, isDuration},
		TypeStrings:  {cel.ListType(cel.StringType), []types.Kind{types.ListKind}, isStrings},
		TypeObject:   {cel.DynType, []types.Kind{types.MapKind, types.StructKind}, is[map[string]any]},
		TypeAny:      {cel.DynType, nil, func(any) bool { return true }},
	}
)

// CELType is the type in expressions.
func (t Type) CELType() *cel.Type { return cmp.Or(typesOf[t].cel, cel.DynType) }

// Known tells whether there is such a type.
func (t Type) Known() bool { return typesOf[t].cel != nil }

// Accepts tells whether a value that JSON could hold is of the type.
func (t Type) Accepts(v any) bool { return t.Known() && typesOf[t].accepts(v) }

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
	fit := typesOf[t].kinds
	return fit == nil || slices.Contains(fit, kind)
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
