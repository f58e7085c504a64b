package fsm

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// action is an action of the program as a step or an effect calls it: directly,
// or under a name that the machine gave it together with parameters.
type action struct {
	// use is the program's name of it; empty when nothing of that name is known.
	use  string
	spec ActionSpec
	with map[string]*value
}

// value is a `with` value: plain, or with ${CEL} in some of its texts.
type value struct {
	plain  any
	text   *template
	fields map[string]*value
	items  []*value
	// path is where it stands in the file.
	path string
}

// overlay lays values over others: objects field by field, all else whole.
func overlay(base, over map[string]*value) map[string]*value {
	all := map[string]*value{}
	maps.Copy(all, base)
	for name, v := range over {
		if below := all[name]; below != nil && below.fields != nil && v.fields != nil {
			v = &value{path: v.path, fields: overlay(below.fields, v.fields)}
		}
		all[name] = v
	}
	return all
}

// varies tells whether anything in it is found only when the action is called.
func (v *value) varies() bool {
	return v.text != nil || slices.ContainsFunc(v.items, (*value).varies) ||
		slices.ContainsFunc(slices.Collect(maps.Values(v.fields)), (*value).varies)
}

// plainly is the value of one that does not vary.
func (v *value) plainly() any {
	plain, _ := v.eval(nil) // there is no expression in it that could fail
	return plain
}

// written is the value with its expressions as texts.
func (v *value) written() any {
	switch {
	case v.fields != nil:
		out := make(map[string]any, len(v.fields))
		for key, field := range v.fields {
			out[key] = field.written()
		}
		return out
	case v.items != nil:
		out := make([]any, len(v.items))
		for i, item := range v.items {
			out[i] = item.written()
		}
		return out
	}
	return v.plain
}

// each visits the expressions in the value.
func (v *value) each(visit func(*expr)) {
	if v.text != nil {
		for _, part := range v.text.parts {
			visit(part.expr)
		}
	}
	for _, field := range v.fields {
		field.each(visit)
	}
	for _, item := range v.items {
		item.each(visit)
	}
}

// cel is the type of a value that varies.
func (v *value) cel() *cel.Type {
	switch {
	case v.fields != nil:
		return cel.MapType(cel.StringType, cel.DynType)
	case v.items != nil:
		return cel.ListType(cel.DynType)
	case v.text != nil && v.text.alone() != nil:
		return v.text.alone().out
	}
	return cel.StringType
}

func (v *value) eval(find evaluator) (any, error) {
	switch {
	case v.text != nil:
		return v.text.value(find)
	case v.fields != nil:
		out := make(map[string]any, len(v.fields))
		for key, field := range v.fields {
			got, err := field.eval(find)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			out[key] = got
		}
		return out, nil
	case v.items != nil:
		out := make([]any, len(v.items))
		for i, item := range v.items {
			got, err := item.eval(find)
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			out[i] = got
		}
		return out, nil
	}
	return v.plain, nil
}

// params evaluates all parameters; the types of what was found are checked as
// those of plain values were at load. One that varies is not evaluated where it is fixed.
func (a *action) params(find evaluator, fixed Params) (Params, error) {
	out := Params{}
	for name, v := range a.with {
		got, isFixed := fixed[name]
		if !isFixed || !v.varies() {
			var err error
			if got, err = v.eval(find); err != nil {
				return nil, fmt.Errorf("with.%s of %s: %w", name, a.use, err)
			}
		}
		if want := a.spec.Params[name].Type; !want.Accepts(got) {
			return nil, fmt.Errorf("with.%s of %s is %v, not of type %s", name, a.use, clip(fmt.Sprint(got), 120), want)
		}
		out[name] = got
	}
	return out, nil
}

// varying are those parameters that are found only when the action is called.
func (a *action) varying(find evaluator) (Params, error) {
	out := Params{}
	for name, v := range a.with {
		if !v.varies() {
			continue
		}
		got, err := v.eval(find)
		if err != nil {
			return nil, fmt.Errorf("with.%s of %s: %w", name, a.use, err)
		}
		out[name] = got
	}
	return out, nil
}

// native turns a CEL value into what JSON could hold.
func native(v ref.Val) (any, error) {
	switch x := v.(type) {
	case *types.Optional:
		if !x.HasValue() {
			return nil, nil
		}
		return native(x.GetValue())
	case traits.Mapper:
		return nativeMap(x)
	case traits.Lister:
		out := []any{}
		for it := x.Iterator(); it.HasNext() == types.True; {
			item, err := native(it.Next())
			if err != nil {
				return nil, err
			}
			out = append(out, item)
		}
		return out, nil
	}
	return nativeScalar(v)
}

func nativeScalar(v ref.Val) (any, error) {
	switch x := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool, types.Int, types.Double, types.String:
		return v.Value(), nil
	case types.Uint:
		return int64(x), nil // beyond what JSON's readers keep anyway
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(x), nil
	case types.Timestamp:
		return x.UTC().Format(time.RFC3339Nano), nil
	case types.Duration:
		return x.Duration.String(), nil
	}
	return nil, fmt.Errorf("a %s cannot be a parameter: convert it, for example with string(…)", v.Type().TypeName())
}

func nativeMap(m traits.Mapper) (any, error) {
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("key %v of a map is no text", key.Value())
		}
		got, err := native(m.Get(key))
		if err != nil {
			return nil, err
		}
		out[string(name)] = got
	}
	return out, nil
}
