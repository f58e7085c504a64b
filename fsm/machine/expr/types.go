package expr

import (
	"cmp"
	"slices"
	"time"

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
	case types.OpaqueKind: // a number that may be whole or not, or an optional
		if of.IsExactType(numberType) {
			kind = types.DoubleKind
			break
		}
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

func is[T any](v any) bool { _, ok := v.(T); return ok }

func isWhole(v any) bool { _, ok := wholeNumber(v); return ok }

func isDuration(v any) bool {
	text, ok := v.(string)
	_, err := time.ParseDuration(text)
	return ok && err == nil
}

func isStrings(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(item any) bool { return !is[string](item) })
}

func wholeNumber(v any) (int, bool) {
	switch n := v.(type) {
	case int64:
		return int(n), true
	case float64: // JSON has no whole numbers
		return int(n), n == float64(int(n))
	}
	return 0, false
}

// Params are the `with` values of a step, of the types that the action declares.
type Params map[string]any

// String answers a text, or the fall-back when it is not given.
func (p Params) String(name, fallback string) string { return given(p, name, fallback) }

// Bool answers a truth value, or the fall-back when it is not given.
func (p Params) Bool(name string, fallback bool) bool { return given(p, name, fallback) }

// Object answers free-form content; nil when it is not given.
func (p Params) Object(name string) map[string]any {
	return given[map[string]any](p, name, nil)
}

// Int answers a whole number, or the fall-back when it is not given.
func (p Params) Int(name string, fallback int) int {
	if n, ok := wholeNumber(p[name]); ok {
		return n
	}
	return fallback
}

// Duration answers a duration, or the fall-back when it is not given.
func (p Params) Duration(name string, fallback time.Duration) time.Duration {
	if d, err := time.ParseDuration(p.String(name, "")); err == nil {
		return d
	}
	return fallback
}

// Strings answers a list of texts; nil when it is not given.
func (p Params) Strings(name string) []string {
	var out []string
	for _, item := range given[[]any](p, name, nil) {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func given[T any](p Params, name string, fallback T) T {
	if v, ok := p[name].(T); ok {
		return v
	}
	return fallback
}
