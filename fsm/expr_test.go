package fsm

import (
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// exit is a machine whose one guarded exit is given in YAML.
func guarded(when string) string {
	return one("    poll: 5s\n    steps: [{action: Look}]\n    next:\n    - to: Done\n      when: " + when + "\n")
}

func message(text string) string {
	return one("    poll: 5s\n    steps: [{action: Look}]\n" + toDone + "    message: " + text + "\n")
}

func TestExpressionsAreCheckedAtLoad(t *testing.T) {
	for name, c := range map[string]badFile{
		"PG006 syntax in single quotes": {
			why: "the column is exact", code: "PG006",
			bad: guarded(`'self.spec.x == ⟦== 3'`), good: guarded(`'self.spec.x == 3'`), contains: []string{"Syntax error"},
		},
		"PG006 syntax behind a doubled quote": {
			why: "'' is two columns in the file and one in the text", code: "PG006",
			bad: guarded(`'self.spec.x == ''a'' && ⟦&& true'`), good: guarded(`'self.spec.x == ''a'' && true'`), contains: []string{"Syntax error"},
		},
		"PG006 syntax behind letters of several bytes": {
			why: "a column is a character", code: "PG006",
			bad: guarded(`'self.spec.x == "äöü…" && ⟦&& true'`), good: guarded(`'self.spec.x == "äöü…" && true'`), contains: []string{"Syntax error"},
		},
		"PG006 syntax without quotes": {
			why: "the text begins where the value begins", code: "PG006",
			bad: guarded(`self.spec.x == ⟦== 3`), good: guarded(`self.spec.x == 3`), contains: []string{"Syntax error"},
		},
		"PG006 syntax in double quotes": {
			why: "each escaped quote has a backslash before it", code: "PG006",
			bad: guarded(`"self.spec.x == \"a\" && ⟦&& true"`), good: guarded(`"self.spec.x == \"a\" && true"`), contains: []string{"Syntax error"},
		},
		"PG006 syntax in a block": {
			why: "each line of a block is one of the text", code: "PG006",
			bad: guarded("|-\n        self.spec.x ==\n        ⟦== 3"), good: guarded("|-\n        self.spec.x ==\n        3"), contains: []string{"Syntax error"},
		},
		"PG006 type": {
			why: "a number is not a text", code: "PG006",
			bad: guarded(`'phase.age > duration("1s") && ("a" ⟦== 3)'`), good: guarded(`'phase.age > duration("1s") && ("a" == "3")'`), contains: []string{"== has a value of type string on its left and one of type int on its right"},
		},
		"PG006 undeclared variable": {
			why: "a misspelled root is found where it stands", code: "PG006",
			bad: guarded(`'true && ⟦results.n > 3'`), good: guarded(`'true && result.n > 3'`), contains: []string{"undeclared reference to 'results'"},
		},
		"PG006 in a message": {
			why: "the column is inside the ${}", code: "PG006",
			bad: message(`'… n is ${result.n +⟦} of 3'`), good: message(`'… n is ${result.n + 1} of 3'`), contains: []string{"Syntax error"},
		},
		"PG006 message without an end": {
			why: "the rest of the text would be the expression", code: "PG006",
			bad: message(`'… n is ⟦${result.n'`), good: message(`'… n is ${result.n}'`), contains: []string{"${ without a closing }"},
		},
		"PG006 result": {
			why: "no step before it has that output", code: "PG006",
			bad: guarded(`'result.⟦m > 3'`), good: guarded(`'result.n > 3'`), contains: []string{"result.m is an output of no step"},
		},
		"PG006 result by index": {
			why: "an index is a selection by another name", code: "PG006",
			bad: guarded(`'result[⟦"m"] > 3'`), good: guarded(`'result["n"] > 3'`), contains: []string{"result.m is an output of no step"},
		},
		"PG006 result of a later step": {
			why: "steps run in order", code: "PG006",
			bad:      one("    steps:\n    - {action: Work, if: 'result.⟦n > 0'}\n    - {action: Look}\n" + toDone),
			good:     one("    steps:\n    - {action: Look}\n    - {action: Work, if: 'result.n > 0'}\n" + toDone),
			contains: []string{"result.n is an output of no step before"},
		},
		"PG006 request": {
			why: "only declared requests have a token", code: "PG006",
			bad: guarded(`'request.⟦stop.pending'`), good: guarded(`'request.go.pending'`), contains: []string{"request.stop is not declared"},
		},
		"PG006 request by a computed name": {
			why: "it could not be recorded, and would be acted on for ever", code: "PG006",
			bad: guarded(`'⟦request[self.spec.name].pending'`), good: guarded(`'request["go"].pending'`), contains: []string{"request is read without a name"},
		},
		"PG006 all guards": {
			why: "guards are asked one by one", code: "PG006",
			bad: guarded(`'⟦guards.all(g, guards.a)'`), good: guarded(`'guards.a'`), contains: []string{"guards is read without a name"},
		},
		"PG006 token": {
			why: "an optional is not a text", code: "PG006",
			bad:      spec("  requests: [{name: go, token: ⟦'self.spec.x == 1'}]\n" + onePhase),
			good:     spec("  requests: [{name: go, token: 'self.spec.?go.orValue(\"\")'}]\n" + onePhase),
			contains: []string{"the token is bool, not a string"},
		},
		"PG006 variable before it is declared": {
			why: "a variable sees the variables before it, so none sees itself", code: "PG006",
			bad:      spec("  variables: [{name: a, expr: 'variables.⟦b'}, {name: b, expr: 'true'}]\n" + onePhase),
			good:     spec("  variables: [{name: b, expr: 'true'}, {name: a, expr: 'variables.b'}]\n" + onePhase),
			contains: []string{"variables.b is not declared before"},
		},
		"PG007": {
			why: "a number is neither open nor closed", code: "PG007",
			bad: guarded(`⟦'size(held)'`), good: guarded(`'size(held) > 0'`), contains: []string{"is int, not a boolean"},
		},
		"PG005 action": {
			why: "found at start-up, not when the phase is reached", code: "PG005",
			bad: one("    steps: [{action: ⟦Wok}]\n" + toDone), good: one("    steps: [{action: Work}]\n" + toDone), contains: []string{`action "Wok" is not known`},
		},
		"PG005 action of an effect": {
			why: "an effect that cannot be released must not be taken", code: "PG005",
			bad:      spec("  finalizer: a.b/c\n  effects: [{name: x, acquire: Take, release: ⟦Gvie}]\n" + onePhase),
			good:     spec("  finalizer: a.b/c\n  effects: [{name: x, acquire: Take, release: Give}]\n" + onePhase),
			contains: []string{`action "Gvie" is not known`},
		},
		"PG005 guard": {
			why: "an unknown guard would never open", code: "PG005",
			bad: guarded(`'guards.⟦c'`), good: guarded(`'guards.b'`), contains: []string{`guard "c" is not known`},
		},
		"PG005 guard in a request": {
			why: "every expression is checked, not only exits", code: "PG005",
			bad:      spec("  requests: [{name: go, token: 'self.x', valid: 'guards.⟦c', params: {p: 'guards.⟦d'}}]\n" + onePhase),
			good:     spec("  requests: [{name: go, token: 'self.x', valid: 'guards.a', params: {p: 'guards.b'}}]\n" + onePhase),
			contains: []string{`guard "c" is not known`, `guard "d" is not known`},
		},
		"PG005 guards in variables": {
			why: "each is found where it stands", code: "PG005",
			bad:      spec("  variables:\n  - {name: x, expr: 'guards.⟦c'}\n  - {name: y, expr: 'guards.⟦d'}\n" + onePhase),
			good:     spec("  variables:\n  - {name: x, expr: 'guards.a'}\n  - {name: y, expr: 'guards.b'}\n" + onePhase),
			contains: []string{`guard "c" is not known`, `guard "d" is not known`},
		},
		"PG005 parameter": {
			why: "a misspelled parameter would have its fall-back", code: "PG005",
			bad: one("    steps: [{action: Work, with: {cuont: ⟦3}}]\n" + toDone), good: one("    steps: [{action: Work, with: {count: 3}}]\n" + toDone), contains: []string{`action Work has no parameter "cuont"`},
		},
		"PG005 type of a parameter": {
			why: "3 is not 3s, and 1.5 is no count", code: "PG005",
			bad:      one("    steps: [{action: Work, with: {after: ⟦3, count: ⟦1.5, text: ⟦true}}]\n" + toDone),
			good:     one("    steps: [{action: Work, with: {after: 3s, count: 15, text: 'true'}}]\n" + toDone),
			contains: []string{"parameter after of Work is 3, not of type duration", "parameter count of Work is 1.5, not of type int", "parameter text of Work is true, not of type string"},
		},
		"PG005 keeps": {
			why: "a misspelled effect would be released after all", code: "PG005",
			bad: one("    keeps: [⟦lokc]\n" + toDone), good: one("    keeps: [lock]\n" + toDone), contains: []string{`effect "lokc" is not declared`},
		},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); c.check(t) })
	}
}

func TestUnusedNames(t *testing.T) {
	def, diags := program.Load("test.yaml", []byte(one("    steps: [{action: Look}]\n"+toDone)))
	if len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	if d := cmp.Diff([]string{"Give2", "Take2", "Work"}, testBindings.Unused(def)); d != "" {
		t.Errorf("actions that the file does not name (-want +got):\n%s", d)
	}
}

// runOf is a run of a machine with variables, at rest in phase One.
func runOf(t *testing.T, guard func(string) (bool, string, error)) *Run {
	t.Helper()
	def, diags := program.Load("test.yaml", []byte(spec(`  variables:
  - {name: big, expr: 'result.n > 3'}
  - {name: bad, expr: 'self.spec.none'}
  phases:
  - {name: One, kind: steady, poll: 5s, steps: [{action: Look}], onDelete: {immediate: true}}
`)))
	if len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	m, diags := Bind(def, testBindings)
	if diags.Err() != nil {
		t.Fatal(diags.Err())
	}
	now := func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	r := m.Run(v1alpha1.MachineStatus{Phase: "One", Revision: m.Revision()}, Observation{Self: StaticObject(map[string]any{"spec": map[string]any{}}), Guard: guard, Now: now})
	if err := r.merge("Look", map[string]any{"n": 7, "ratio": 2.0, "list": []string{"x", "y"}, "deep": map[string]any{"b": 1, "a": []int{2}}, "name": "n", "no": false}); err != nil {
		t.Fatal(err)
	}
	return r
}

// anything sees what runOf has, whatever the results are.
func anything(t *testing.T) *expr.Scope {
	t.Helper()
	s, err := expr.NewScope(testBindings.Self, []string{"open", "shut", "fails"})
	if err != nil {
		t.Fatal(err)
	}
	s.AnyResult = true
	s.Define(expr.VarVariables, map[string]*cel.Type{"big": cel.BoolType, "bad": cel.DynType})
	return s
}

func TestMessagesNeverFail(t *testing.T) {
	for name, c := range map[string]struct{ why, text, want string }{
		"plain":          {"no expression, no change", "all $ is } well {", "all $ is } well {"},
		"values":         {"each in its own way", "${result.n} ${result.ratio} ${result.name} ${result.list} ${result.n > 3}", "7 2 n [x y] true"},
		"map":            {"the same text each time", "${result.deep}", `map[a:[2] b:1]`},
		"braces inside":  {"a map literal has braces of its own", `${{"a": {"b": "}"}}["a"]["b"]}!`, "}!"},
		"escaped quote":  {"a quote behind a backslash does not end the text", `${"a\"}"}!`, `a"}!`},
		"cannot be told": {"a message must not stop a machine", "n is ${result.none}!", "n is ?!"},
		"computed list":  {"a list made by the expression looks like any other", `${result.list.map(i, i + "!")}`, "[x! y!]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runOf(t, nil)
			tmpl, errs := expr.ParseTemplate(c.text, anything(t).Compile)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if got := tmpl.Render(r.value(t.Context())); got != c.want {
				t.Errorf("%s: got %q, want %q", c.why, got, c.want)
			}
		})
	}
}
