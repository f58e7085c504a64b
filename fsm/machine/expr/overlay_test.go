package expr

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A step changes a part of what a named action says.
func TestParametersAreLaidOverEachOther(t *testing.T) {
	plain := func(v any) *Value { return &Value{plain: v} }
	object := func(fields map[string]*Value) *Value { return &Value{fields: fields} }
	list := func(items ...*Value) *Value { return &Value{items: items} }
	cases := map[string]struct {
		why              string
		base, over, want map[string]*Value
	}{
		"Fields":    {"what is not said stays", map[string]*Value{"a": object(map[string]*Value{"x": plain(1), "y": plain(2)})}, map[string]*Value{"a": object(map[string]*Value{"y": plain(3)})}, map[string]*Value{"a": object(map[string]*Value{"x": plain(1), "y": plain(3)})}},
		"Deep":      {"at every depth", map[string]*Value{"a": object(map[string]*Value{"b": object(map[string]*Value{"x": plain(1)})})}, map[string]*Value{"a": object(map[string]*Value{"b": object(map[string]*Value{"y": plain(2)})})}, map[string]*Value{"a": object(map[string]*Value{"b": object(map[string]*Value{"x": plain(1), "y": plain(2)})})}},
		"Lists":     {"items have no names", map[string]*Value{"a": list(plain(1), plain(2))}, map[string]*Value{"a": list(plain(3))}, map[string]*Value{"a": list(plain(3))}},
		"Null":      {"it is a value, too", map[string]*Value{"a": object(map[string]*Value{"x": plain(1)})}, map[string]*Value{"a": object(map[string]*Value{"x": plain(nil)})}, map[string]*Value{"a": object(map[string]*Value{"x": plain(nil)})}},
		"Otherwise": {"an object takes the place of a text", map[string]*Value{"a": plain("t")}, map[string]*Value{"a": object(nil)}, map[string]*Value{"a": object(nil)}},
		"Nothing":   {"a step without parameters has those of the action", map[string]*Value{"a": plain(1)}, nil, map[string]*Value{"a": plain(1)}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := allWritten(c.base)
			got := allWritten(Overlay(c.base, c.over))
			if diff := cmp.Diff(allWritten(c.want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			if diff := cmp.Diff(before, allWritten(c.base)); diff != "" {
				t.Errorf("the named action itself has changed (-before +after):\n%s", diff)
			}
		})
	}
}

func allWritten(values map[string]*Value) map[string]any {
	all := map[string]any{}
	for name, v := range values {
		all[name] = v.Written()
	}
	return all
}
