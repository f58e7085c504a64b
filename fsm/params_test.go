package fsm_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

func TestParametersAreFoundWhenTheActionIsCalled(t *testing.T) {
	for name, c := range map[string]struct {
		why, value string
		as         expr.Type
		want       any
	}{
		"plain":            {"nothing to find", `hi`, expr.TypeString, "hi"},
		"text around":      {"it is a text then", `'n is ${result.n}!'`, expr.TypeString, "n is 7!"},
		"whole number":     {"an expression alone keeps its type", `'${result.n}'`, expr.TypeInt, int64(7)},
		"truth":            {"and so does this one", `'${result.n > 3}'`, expr.TypeBool, true},
		"list":             {"of texts", `'${result.list}'`, expr.TypeStrings, []any{"x", "y"}},
		"deep in a map":    {"a manifest has texts at every depth", `{a: [{b: '${result.n}', c: 'v${result.n}'}], d: 1}`, expr.TypeObject, map[string]any{"a": []any{map[string]any{"b": int64(7), "c": "v7"}}, "d": int64(1)}},
		"map of an object": {"content of the object itself can be handed on", `'${self.spec.box}'`, expr.TypeObject, map[string]any{"a": "b"}},
		"escaped":          {"shells have ${} of their own", `'echo $${HOME} ${result.n}'`, expr.TypeString, "echo ${HOME} 7"},
		"duration":         {"in the words of the format", `'${duration("90s")}'`, expr.TypeDuration, "1m30s"},
		"absent optional":  {"nothing is null, not a question mark", `'${self.?spec.?none}'`, expr.TypeAny, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "test.yaml", []byte(fsm.WithSpec(c.value)), fsm.WithBindings(c.as))
			w.set("spec.box", map[string]any{"a": "b"})
			w.Give("Look", answer(map[string]any{"n": 7, "list": []string{"x", "y"}}))
			var got expr.Params
			w.Interrupt = func(cmd fsm.Decision, _ bool) bool {
				if cmd.Do == fsm.RunAction && cmd.Action == "Say" {
					got = cmd.With
				}
				return false
			}
			w.settle()
			if d := cmp.Diff(expr.Params{"text": c.want, "to": "x"}, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

func TestParametersThatCannotBeFound(t *testing.T) {
	for name, c := range map[string]struct {
		why, value string
		as         expr.Type
		got        string
	}{
		"missing field": {"a parameter is never a question mark", `'${self.spec.none}'`, expr.TypeString, "with.text of Say: ${self.spec.none}: no such key: none"},
		"in a text":     {"nor is a part of one", `'x ${self.spec.none}'`, expr.TypeString, "with.text of Say: ${self.spec.none}: no such key: none"},
		"deep":          {"it says where", `{a: ['${self.spec.none}']}`, expr.TypeObject, "with.text of Say: a: [0]: ${self.spec.none}: no such key: none"},
		"other type":    {"the action would take its fall-back instead", `'${self.metadata.name}'`, expr.TypeInt, "with.text of Say is x, not of type int"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "test.yaml", []byte(fsm.WithSpec(c.value)), fsm.WithBindings(c.as))
			w.settle()
			if strings.Contains(strings.Join(w.Called, " "), "Say") {
				t.Errorf("%s: the action was called", c.why)
			}
			if len(w.ShownMachine.Blocked) != 1 || w.ShownMachine.Blocked[0].Value != c.got {
				t.Errorf("%s: blocked %+v, want %q", c.why, w.ShownMachine.Blocked, c.got)
			}
		})
	}
}
