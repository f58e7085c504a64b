package fsm

import (
	"strings"
	"testing"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
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
    onDelete: {immediate: true}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
`)
}

func withBindings(t expr.Type) program.Bindings {
	return program.Bindings{Actions: map[string]program.ActionSpec{
		"Nod":  {},
		"Look": {Outputs: map[string]expr.Type{"n": expr.TypeInt, "list": expr.TypeStrings}},
		"Say":  {Params: map[string]program.Param{"text": {Type: t, Required: true}, "to": {Type: expr.TypeString}}},
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
		"result": {why: "an effect is released in another phase, where it is not known", code: "PG006",
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
			c.bindings = withBindings(expr.TypeString)
			c.check(t)
		})
	}
}
