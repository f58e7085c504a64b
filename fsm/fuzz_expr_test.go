package fsm

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// fullRun is a run that has something of everything to read.
func fullRun(f testing.TB) (*expr.Scope, *Run) {
	f.Helper()
	def, diags := program.Load("fuzz.yaml", []byte(spec(`  variables:
  - {name: big, expr: 'result.n > 3'}
  requests: [{name: go, token: 'self.metadata.name', params: {n: 'self.spec.size'}}]
  phases:
  - {name: One, kind: steady, poll: 5s, steps: [{action: Look}], onDelete: {immediate: true}}
`)))
	if len(diags) > 0 {
		f.Fatal(diags.Err())
	}
	b := jobBindings(f)
	m, diags := Bind(def, b)
	if m == nil {
		f.Fatal(diags.Err())
	}
	self := map[string]any{
		"metadata": map[string]any{"name": "a", "labels": map[string]any{"x/y": "z"}},
		"spec":     map[string]any{"size": int64(3), "parts": []any{map[string]any{"name": "a", "ready": true}}, "free": []any{"b"}},
	}
	r := m.Run(v1alpha1.MachineStatus{Phase: "One", Held: v1alpha1.Held("lock"), Result: `{"n": 7, "list": ["x", "y"]}`},
		Observation{Self: StaticObject(self), Now: func() time.Time { return time.Unix(1e9, 0) }, Guard: func(name string) (bool, string, error) { return name == "a", name, nil }})
	return scopeLike(f, b), r
}

// scopeLike is that of an exit of the phase: what it sees of variables, requests and outputs.
func scopeLike(f testing.TB, b program.Bindings) *expr.Scope {
	s, err := expr.NewScope(b.Self, slices.Collect(maps.Keys(b.Guards)))
	if err != nil {
		f.Fatal(err)
	}
	s.Define(expr.VarVariables, map[string]*cel.Type{"big": cel.BoolType})
	s.Define(expr.VarRequest, map[string]*cel.Type{"go": s.Define("request.go", map[string]*cel.Type{
		"pending": cel.BoolType, "token": cel.StringType, "params": s.Define("request.go.params", map[string]*cel.Type{"n": cel.IntType})})})
	s.AddResults(b.Actions["Look"].Outputs, nil, true)
	return s
}

// again makes a run of the same status that has spent nothing.
func again(r *Run) *Run { return r.m.Run(r.st, r.input) }

func checkOffsets(t *testing.T, text string, errs []expr.Problem) {
	t.Helper()
	for _, e := range errs {
		if e.Code == "" || e.Message == "" || e.Fix == "" || e.Offset < 0 || e.Offset > utf8.RuneCountInString(text) {
			t.Errorf("a finding that points nowhere in %d characters: %+v", utf8.RuneCountInString(text), e)
		}
	}
}

// FuzzExpression looks for a text that panics, costs more than it may, or is
// refused without a place in it. What is refused must never be evaluated.
func FuzzExpression(f *testing.F) {
	scope, r := fullRun(f)
	for _, text := range []string{
		`result.n == 7 && "lock" in held`, `!(guards.a || variables.big) ? request.go.pending : phase.attempts > 3`,
		`self.spec.parts.all(p, p.ready && p.name != "")`, `self.metadata.?labels[?"x/y"].orValue("") == 'z'`,
		`result.list.map(a, result.list.map(b, a + b)).size() > 2`, `result["n"] == request["go"].params.n`, `has(self.spec.name) && self.spec.name.matches("^(a+)+$")`,
		`self.spec.parts.exists(result, result.ready)`, "result.n ==\n  ä", `variables`, `type(self) == type(result)`, `duration("1h") < phase.age && now > timestamp("2020-01-01T00:00:00Z")`,
		`result{n: 1}`, `[1, 2].transformList(i, v, i * v)`, `cel.bind(x, result.n, x > 1)`, `"%s".format([self])`, "true // äö\n|| fales",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, errs := scope.Compile(text)
		checkOffsets(t, text, errs)
		if e == nil {
			if len(errs) == 0 {
				t.Fatal("refused without a finding")
			}
			return
		}
		r := again(r)
		s := r.activation(t.Context())
		d := r.evaluate(e, s)
		r.explain(e, s, &d)
		if d.open && d.err != nil || !d.open && d.because == "" {
			t.Errorf("neither open nor closed for a reason: %+v", d)
		}
		if len(d.because) > v1alpha1.TextLimit || len(d.got) > v1alpha1.TextLimit || r.spent > expr.MaxRunCost+apiservercel.PerCallLimit {
			t.Errorf("without bounds: %d and %d bytes, %d spent", len(d.because), len(d.got), r.spent)
		}
	})
}

// FuzzTemplate looks for a text that panics, or that loses what is not an
// expression of it.
func FuzzTemplate(f *testing.F) {
	scope, r := fullRun(f)
	for _, text := range []string{
		"n is ${result.n}!", "$${HOME} ${self.metadata.name}", "${", "$", "$$", "$$${result.n}", "${{'a': {'b': '}'}}['a']['b']}", "${result.none} ${variables.big}",
		"ä${\"}\"}ö${ressult.n}", "${}", "a $${ b } c", "${result.list}", "${r'\\'}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tmpl, errs := expr.ParseTemplate(text, scope.Compile)
		checkOffsets(t, text, errs)
		if strings.Count(text, "${") == strings.Count(text, "$${") {
			got := tmpl.Render(nil) // nothing in it is evaluated
			if want := strings.ReplaceAll(text, "$${", "${"); len(errs) > 0 || got != want {
				t.Errorf("a text without an expression: got %q, want %q, findings %+v", got, want, errs)
			}
			return
		}
		if len(errs) > 0 {
			return
		}
		r := again(r)
		_ = tmpl.Render(r.value(t.Context()))
		if _, err := tmpl.Value(r.value(t.Context())); err == nil && r.spent > expr.MaxRunCost+apiservercel.PerCallLimit {
			t.Errorf("without bounds: %d spent", r.spent)
		}
	})
}
