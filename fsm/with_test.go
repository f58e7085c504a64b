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

func TestParametersAreFoundWhenTheActionIsCalled(t *testing.T) {
	for name, c := range map[string]struct {
		why, value string
		as         Type
		want       any
	}{
		"plain":            {"nothing to find", `hi`, TypeString, "hi"},
		"text around":      {"it is a text then", `'n is ${result.n}!'`, TypeString, "n is 7!"},
		"whole number":     {"an expression alone keeps its type", `'${result.n}'`, TypeInt, int64(7)},
		"truth":            {"and so does this one", `'${result.n > 3}'`, TypeBool, true},
		"list":             {"of texts", `'${result.list}'`, TypeStrings, []any{"x", "y"}},
		"deep in a map":    {"a manifest has texts at every depth", `{a: [{b: '${result.n}', c: 'v${result.n}'}], d: 1}`, TypeObject, map[string]any{"a": []any{map[string]any{"b": int64(7), "c": "v7"}}, "d": 1.0}},
		"map of an object": {"content of the object itself can be handed on", `'${self.metadata}'`, TypeObject, map[string]any{"name": "x"}},
		"escaped":          {"shells have ${} of their own", `'echo $${HOME} ${result.n}'`, TypeString, "echo ${HOME} 7"},
		"duration":         {"in the words of the format", `'${duration("90s")}'`, TypeDuration, "1m30s"},
		"absent optional":  {"nothing is null, not a question mark", `'${self.?spec.?none}'`, TypeAny, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "test.yaml", []byte(withSpec(c.value)), withBindings(c.as))
			w.outputs("Look", map[string]any{"n": 7, "list": []string{"x", "y"}})
			var got Params
			w.interrupt = func(cmd Command, _ bool) bool {
				if cmd.Do == Act && cmd.Action == "Say" {
					got = cmd.With
				}
				return false
			}
			w.settle()
			if d := cmp.Diff(Params{"text": c.want, "to": "x"}, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

func TestParametersThatCannotBeFound(t *testing.T) {
	for name, c := range map[string]struct {
		why, value string
		as         Type
		got        string
	}{
		"missing field": {"a parameter is never a question mark", `'${self.spec.none}'`, TypeString, "with.text of Say: ${self.spec.none}: no such key: none"},
		"in a text":     {"nor is a part of one", `'x ${self.spec.none}'`, TypeString, "with.text of Say: ${self.spec.none}: no such key: none"},
		"deep":          {"it says where", `{a: ['${self.spec.none}']}`, TypeObject, "with.text of Say: a: [0]: ${self.spec.none}: no such key: none"},
		"other type":    {"the action would take its fall-back instead", `'${self.metadata.name}'`, TypeInt, "with.text of Say is x, not of type int"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "test.yaml", []byte(withSpec(c.value)), withBindings(c.as))
			w.settle()
			if strings.Contains(strings.Join(w.acted, " "), "Say") {
				t.Errorf("%s: the action was called", c.why)
			}
			if len(w.stored.Blocked) != 1 || w.stored.Blocked[0].Got != c.got {
				t.Errorf("%s: blocked %+v, want %q", c.why, w.stored.Blocked, c.got)
			}
		})
	}
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
			bad: file("  - {name: A, use: Say, with: {text: ⟦'${result.n}'}}\n"), good: file("  - {name: A, use: Say, with: {text: '${self.metadata.name}'}}\n"),
			contains: []string{"result.n is an output of no step"}},
		"name of the program's": {why: "which of the two would a step mean?", code: "PG000",
			bad: file("  - {name: ⟦Nod, use: Say}\n"), good: file("  - {name: Nod2, use: Say}\n"), contains: []string{"Nod is an action of the program"}},
		"required": {why: "an effect can give no parameter", code: "PG005",
			bad:      strings.Replace(file("  - {name: A, use: Say}\n"), "  phases:", "  finalizer: a/b\n  effects: [{name: e, acquire: ⟦A, release: Look}]\n  phases:", 1),
			good:     strings.Replace(file("  - {name: A, use: Say, with: {text: a}}\n"), "  phases:", "  finalizer: a/b\n  effects: [{name: e, acquire: A, release: Look}]\n  phases:", 1),
			contains: []string{`action Say needs parameter "text"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.bindings = withBindings(TypeString)
			c.check(t)
		})
	}
}
