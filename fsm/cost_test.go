package fsm

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

func TestExpressionsAreBounded(t *testing.T) {
	for name, c := range map[string]badFile{
		"PG016": {
			why: "10,000 times 10,000 is what nobody waits for", code: "PG016",
			bad: guarded(`'⟦self.spec.many.all(a, self.spec.many.exists_one(b, a == b))'`), good: guarded(`'self.spec.parts.all(a, self.spec.parts.exists_one(b, a == b))'`), contains: []string{"more than the 1000000 that one evaluation may cost"},
		},
		"size": {
			why: "a program is not a guard", code: "PG006",
			bad: guarded(`'⟦true` + strings.Repeat(" || false", 1000) + `'`), good: guarded(`'true` + strings.Repeat(" || false", 100) + `'`), contains: []string{"size exceeds limit"},
		},
		"parentheses": {
			why: "they cost a stack", code: "PG006",
			bad: guarded(`'⟦` + strings.Repeat("(", 100) + `true` + strings.Repeat(")", 100) + `'`), good: guarded(`'` + strings.Repeat("(", 20) + `true` + strings.Repeat(")", 20) + `'`), contains: []string{"recursion limit"},
		},
		"loops": {
			why: "each loop in a loop is another dimension", code: "PG006",
			bad: guarded(`'[1].all(a, [1].all(b, [1].all(c, [1].all⟦(d, true))))'`), good: guarded(`'[1].all(a, [1].all(b, [1].all(c, true)))'`), contains: []string{"nesting"},
		},
		"literals": {
			why: "a text that is no duration is found at load", code: "PG006",
			bad: guarded(`'phase.age > duration(⟦"5 s")'`), good: guarded(`'phase.age > duration("5s")'`), contains: []string{"invalid duration"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.bindings = jobBindings(t)
			c.check(t)
		})
	}
}

func TestUnboundedListsAreAWarning(t *testing.T) {
	file := guarded(`'self.spec.free.all(a, self.spec.free.exists_one(b, a == b))'`)
	def, diags := program.Load("test.yaml", []byte(file))
	if len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	m, diags := Bind(def, jobBindings(t))
	diags = slices.DeleteFunc(diags, func(d diag.Diagnostic) bool { return d.Code == "PG101" })
	if m == nil || len(diags) != 1 || diags[0].Code != "PG016" || diags[0].Severity != diag.SeverityWarning {
		t.Fatalf("an object of ordinary size passes: got %v, %v", m != nil, diags)
	}
	if want := "give maxItems, maxProperties or maxLength in the schema to self.spec.free, self.spec.free[]"; !strings.Contains(diags[0].Fix, want) {
		t.Errorf("the fix names what has no limit: got %q", diags[0].Fix)
	}
}

func TestOneEvaluationIsBounded(t *testing.T) {
	r := runOf(t, nil)
	e, errs := anything(t).Compile(`self.list.all(a, self.list.all(b, a + b < 0 || true))`)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	list := make([]any, 1000)
	for i := range list {
		list[i] = int64(i)
	}
	r.input.Self = StaticObject(map[string]any{"list": list})
	got := r.truth(t.Context(), e)
	if got.open || got.err == nil || !strings.Contains(got.got, "cost limit exceeded") {
		t.Errorf("a million steps are too many: %+v", got)
	}
	if r.spent < apiservercel.PerCallLimit || r.spent > 2*apiservercel.PerCallLimit {
		t.Errorf("it stops at the limit, not at the end: spent %d", r.spent)
	}
}

func TestAReconcileHasABudget(t *testing.T) {
	r := runOf(t, nil)
	e, errs := anything(t).Compile(`variables.big && variables.big && result.n == 7`)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if got := r.truth(t.Context(), e); !got.open {
		t.Fatalf("got %+v", got)
	}
	once := r.spent
	if _, err := r.value(t.Context())(r.m.prog.Variables["big"]); err != nil {
		t.Fatal(err)
	}
	if variable := r.spent - once; once < 2*variable || variable == 0 {
		t.Errorf("a variable that is read twice is paid twice: %d with two variables of %d", once, variable)
	}
	r.spent = expr.MaxRunCost + 1
	got := r.truth(t.Context(), e)
	want := verdict{because: e.Text, got: "error: " + errBudget.Error(), err: errBudget}
	if !errors.Is(got.err, errBudget) {
		t.Errorf("got %v", got.err)
	}
	if d := cmp.Diff([]string{want.because, want.got}, []string{got.because, got.got}); d != "" || got.open {
		t.Errorf("open %t (-want +got):\n%s", got.open, d)
	}
	if text, err := r.value(t.Context())(e); err == nil {
		t.Errorf("a message has no budget of its own: %v", text)
	}
}

func TestSelfIsReadWhenAskedFor(t *testing.T) {
	reads, unreadable := 0, errors.New("unreadable")
	for name, c := range map[string]struct {
		why, expr string
		err       error
		wantReads int
		wantErr   string
	}{
		"not asked":  {why: "it costs more than all the rest of a pass", expr: `result.n == 7`},
		"twice":      {why: "what it costs is paid once", expr: `self.x == 1 && self.x < 2`, wantReads: 1},
		"unreadable": {why: "a guard about an object that cannot be read stays closed", expr: `self.x == 1`, err: unreadable, wantReads: 1, wantErr: "unreadable"},
	} {
		t.Run(name, func(t *testing.T) {
			r := runOf(t, nil)
			reads = 0
			r.input.Self = func() (map[string]any, error) {
				reads++
				return map[string]any{"x": int64(1)}, c.err
			}
			e, errs := anything(t).Compile(c.expr)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			got := r.truth(t.Context(), e)
			if got.open != (c.wantErr == "") || reads != c.wantReads || c.wantErr != "" && (got.err == nil || !strings.Contains(got.err.Error(), c.wantErr)) {
				t.Errorf("%s: got %+v after %d reads, want error %q after %d", c.why, got, reads, c.wantErr, c.wantReads)
			}
		})
	}
}
