package fsm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withSpec is a machine whose only step gives an action a parameter.
func withSpec(value string) string {
	return spec(`  actions:
  - {name: Greet, use: Say, with: {to: '${self.metadata.name}'}}
  phases:
  - name: One
    poll: 5s
    steps:
    - {action: Look}
    - {action: Greet, with: {text: ` + value + `}}
    next: [{to: Done, when: 'result.n > 100'}]
    onDelete: {none: true}
  - {name: Done, terminal: success, onDelete: {none: true}}
`)
}

func withBindings(t Type) Bindings {
	return Bindings{Actions: map[string]ActionSpec{
		"Nod":  {},
		"Look": {Outputs: map[string]Type{"n": TypeInt, "list": TypeStrings}},
		"Say":  {Params: map[string]Param{"text": {Type: t, Required: true}, "to": {Type: TypeString}}},
	}}
}

func TestNamedActions(t *testing.T) {
	file := func(rest string) string {
		return strings.Replace(withSpec("hi"), "  actions:\n", "  actions:\n"+rest, 1)
	}
	for name, c := range map[string]badFile{
		"unknown use": {why: "a typo", code: "PG005",
			bad: file("  - {name: A, use: ⟦Sya}\n"), good: file("  - {name: A, use: Say, with: {text: a}}\n"), contains: []string{`action "Sya" is not known`}},
		"unknown parameter": {why: "a typo", code: "PG005",
			bad: file("  - {name: A, use: Say, with: {txet: ⟦a}}\n"), good: file("  - {name: A, use: Say, with: {text: a}}\n"), contains: []string{`no parameter "txet"`}},
		"result": {why: "an effect is given back in another phase, where it is not known", code: "PG006",
			bad: file("  - {name: A, use: Say, with: {text: '${result.⟦n}'}}\n"), good: file("  - {name: A, use: Say, with: {text: '${self.metadata.name}'}}\n"),
			contains: []string{"result.n is an output of no step"}},
		"name of the program's": {why: "which of the two would a step mean?", code: "PG000",
			bad: file("  - {name: ⟦Nod, use: Say}\n"), good: file("  - {name: Nod2, use: Say}\n"), contains: []string{"Nod is an action of the program"}},
		"required": {why: "an effect can give no parameter", code: "PG005",
			bad:      strings.Replace(file("  - {name: A, use: Say}\n"), "  phases:", "  finalizer: a/b\n  effects: [{name: e, acquire: ⟦A, release: Nod}]\n  phases:", 1),
			good:     strings.Replace(file("  - {name: A, use: Say, with: {text: a}}\n"), "  phases:", "  finalizer: a/b\n  effects: [{name: e, acquire: A, release: Nod}]\n  phases:", 1),
			contains: []string{`action Say needs parameter "text"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.bindings = withBindings(TypeString)
			c.check(t)
		})
	}
}

// A step changes a part of what a named action says.
func TestParametersAreLaidOverEachOther(t *testing.T) {
	plain := func(v any) *value { return &value{plain: v} }
	object := func(fields map[string]*value) *value { return &value{fields: fields} }
	list := func(items ...*value) *value { return &value{items: items} }
	cases := map[string]struct {
		why              string
		base, over, want map[string]*value
	}{
		"Fields":    {"what is not said stays", map[string]*value{"a": object(map[string]*value{"x": plain(1), "y": plain(2)})}, map[string]*value{"a": object(map[string]*value{"y": plain(3)})}, map[string]*value{"a": object(map[string]*value{"x": plain(1), "y": plain(3)})}},
		"Deep":      {"at every depth", map[string]*value{"a": object(map[string]*value{"b": object(map[string]*value{"x": plain(1)})})}, map[string]*value{"a": object(map[string]*value{"b": object(map[string]*value{"y": plain(2)})})}, map[string]*value{"a": object(map[string]*value{"b": object(map[string]*value{"x": plain(1), "y": plain(2)})})}},
		"Lists":     {"items have no names", map[string]*value{"a": list(plain(1), plain(2))}, map[string]*value{"a": list(plain(3))}, map[string]*value{"a": list(plain(3))}},
		"Null":      {"it is a value, too", map[string]*value{"a": object(map[string]*value{"x": plain(1)})}, map[string]*value{"a": object(map[string]*value{"x": plain(nil)})}, map[string]*value{"a": object(map[string]*value{"x": plain(nil)})}},
		"Otherwise": {"an object takes the place of a text", map[string]*value{"a": plain("t")}, map[string]*value{"a": object(nil)}, map[string]*value{"a": object(nil)}},
		"Nothing":   {"a step without parameters has those of the action", map[string]*value{"a": plain(1)}, nil, map[string]*value{"a": plain(1)}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := (&action{with: c.base}).written()
			got := (&action{with: overlay(c.base, c.over)}).written()
			if diff := cmp.Diff((&action{with: c.want}).written(), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			if diff := cmp.Diff(before, (&action{with: c.base}).written()); diff != "" {
				t.Errorf("the named action itself has changed (-before +after):\n%s", diff)
			}
		})
	}
}
