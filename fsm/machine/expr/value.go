package expr

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
)

// Value is a `with` value: plain, or with ${CEL} in some of its texts.
type Value struct {
	plain  any
	text   *Template
	fields map[string]*Value
	items  []*Value
	// Path is where it stands in the file.
	Path string
}

// NewValue makes a value of what the file has at a path; compile compiles a text with ${CEL} in it.
func NewValue(path string, v any, compile func(path, text string) *Template) *Value {
	out := &Value{Path: path}
	switch x := v.(type) {
	case map[string]any:
		out.fields = map[string]*Value{}
		for _, key := range slices.Sorted(maps.Keys(x)) {
			out.fields[key] = NewValue(path+"."+key, x[key], compile)
		}
	case []any:
		out.items = make([]*Value, len(x))
		for i := range x {
			out.items[i] = NewValue(fmt.Sprintf("%s[%d]", path, i), x[i], compile)
		}
	case string:
		out.plain = x
		if strings.Contains(x, "${") {
			out.text = compile(path, x)
		}
	default:
		out.plain = v
	}
	return out
}

// IsText tells whether it is a text with expressions.
func (v *Value) IsText() bool { return v.text != nil }

// Overlay lays values over others: objects field by field, all else whole.
func Overlay(base, over map[string]*Value) map[string]*Value {
	all := map[string]*Value{}
	maps.Copy(all, base)
	for name, v := range over {
		if below := all[name]; below != nil && below.fields != nil && v.fields != nil {
			v = &Value{Path: v.Path, fields: Overlay(below.fields, v.fields)}
		}
		all[name] = v
	}
	return all
}

// Varies tells whether anything in it is found only when the action is called.
func (v *Value) Varies() bool {
	return v.text != nil || slices.ContainsFunc(v.items, (*Value).Varies) ||
		slices.ContainsFunc(slices.Collect(maps.Values(v.fields)), (*Value).Varies)
}

// Written is the value with its expressions as texts.
func (v *Value) Written() any {
	out, _ := v.Eval(nil) // nothing is evaluated that could fail
	return out
}

// At is the value at a path of fields in it, such as metadata.name; nil: there is none, or null. It is closed where an expression
// is in the way, which it answers then.
func (v *Value) At(path string) (at *Value, closed bool) {
	for path != "" && v != nil && v.text == nil {
		var name string
		name, path, _ = strings.Cut(path, ".")
		v = v.fields[name]
	}
	if v == nil || v.Written() == nil {
		return nil, false
	}
	return v, path != ""
}

// Each visits the expressions in the value.
func (v *Value) Each(visit func(*Expr)) {
	if v.text != nil {
		for _, part := range v.text.parts {
			if part.expr != nil { // else it is text
				visit(part.expr)
			}
		}
	}
	for _, field := range v.fields {
		field.Each(visit)
	}
	for _, item := range v.items {
		item.Each(visit)
	}
}

// Walk visits the value and those in it, each with the names that lead there. It does not go into one for which visit
// answers false.
func (v *Value) Walk(at []string, visit func(at []string, v *Value) bool) {
	if !visit(at, v) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(v.fields)) {
		v.fields[name].Walk(append(slices.Clone(at), name), visit)
	}
	for i, item := range v.items {
		item.Walk(append(slices.Clone(at), fmt.Sprintf("[%d]", i)), visit)
	}
}

// ReadsTime tells whether anything in it reads the clock, or how long and how often a phase was tried: it is another
// value at each look. Variables are those of the machine.
func (v *Value) ReadsTime(variables map[string]*Expr) bool {
	found := false
	v.Each(func(e *Expr) { found = found || e.readsTime(variables) })
	return found
}

func (e *Expr) readsTime(variables map[string]*Expr) bool {
	return e.ReadsBeside(func(root, name string) bool {
		return root != VarNow && root != VarPhase && (root != VarVariables || variables[name] == nil || !variables[name].readsTime(variables))
	})
}

// ReadsClock tells whether an expression is another value at each look, although nothing happens: it reads the time, or how old
// the phase is. Variables are those of the machine.
func (e *Expr) ReadsClock(variables map[string]*Expr) bool {
	return e.ReadsBeside(func(root, name string) bool {
		switch root {
		case VarNow:
			return false
		case VarPhase:
			return name != "" && name != "age"
		case VarVariables:
			return variables[name] == nil || !variables[name].ReadsClock(variables)
		}
		return true
	})
}

// CELType is the type of a value that varies.
func (v *Value) CELType() *cel.Type {
	switch {
	case v.fields != nil:
		return cel.MapType(cel.StringType, cel.DynType)
	case v.items != nil:
		return cel.ListType(cel.DynType)
	case v.text != nil && v.text.alone() != nil:
		return v.text.alone().Out
	}
	return cel.StringType
}

// Eval answers what JSON could hold; without an evaluator, expressions stay the texts that they are.
func (v *Value) Eval(find Evaluator) (any, error) {
	switch {
	case v.text != nil && find != nil:
		return v.text.Value(find)
	case v.fields != nil:
		out := make(map[string]any, len(v.fields))
		for key, field := range v.fields {
			got, err := field.Eval(find)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			out[key] = got
		}
		return out, nil
	case v.items != nil:
		out := make([]any, len(v.items))
		for i, item := range v.items {
			got, err := item.Eval(find)
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			out[i] = got
		}
		return out, nil
	}
	return v.plain, nil
}

// Place is where the file has what is at a path in the value, or what is next above it.
func (v *Value) Place(path string) string {
	if path == "" {
		return v.Path
	}
	name, rest, _ := strings.Cut(path, ".")
	if key, index, isItem := strings.Cut(name, "["); isItem {
		name, rest = key, strings.TrimSuffix("["+index+"."+rest, ".")
	}
	if name == "" { // [0].name
		return v.placeOfItem(path)
	}
	if field := v.fields[name]; field != nil {
		return field.Place(rest)
	}
	return v.Path
}

func (v *Value) placeOfItem(path string) string {
	at, rest := 0, ""
	if _, err := fmt.Sscanf(path, "[%d]", &at); err != nil || at >= len(v.items) {
		return v.Path
	}
	_, rest, _ = strings.Cut(path, "]")
	return v.items[at].Place(strings.TrimPrefix(rest, "."))
}
