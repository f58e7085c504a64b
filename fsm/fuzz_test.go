package fsm_test

import (
	"strings"
	"testing"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// FuzzLoad looks for a file that panics, takes long, or is taken in spite of a
// finding. What loads must also run a pass without a panic.
func FuzzLoad(f *testing.F) {
	f.Add(readFile(f, "../phases/datastore-migration.yaml"))
	f.Add([]byte(spec(onePhase)))
	f.Add([]byte(one("    poll: 5s\n    steps: [{action: Work, with: {count: 1}}, {wait: 1s}]\n    timeout: {after: 1h, stalled: Late}\n" + toDone)))
	f.Add([]byte("a: &a [*a, *a]"))
	f.Add([]byte("---\n"))
	f.Add([]byte(one("    poll: 5s\n    next:\n    - to: Done\n      when: >-\n        self.a ==\n\n        = 3\n    message: \"\\u00e4 ${self.a\\\n      == = 1}\"\n")))
	f.Fuzz(func(t *testing.T, data []byte) {
		def, diags := program.Load("fuzz.yaml", data)
		if (def == nil) == (len(diags) == 0) {
			t.Fatalf("a definition or findings, not both and not neither: %v", diags)
		}
		pointSomewhere(t, data, diags)
		if def == nil {
			return
		}
		m, diags := fsm.Bind(def, everything(def))
		pointSomewhere(t, data, diags)
		if len(diags) > 0 {
			return
		}
		w := worldOf(t, m, nil)
		for range 5 {
			_, _ = w.Reconcile()
			w.Tick(time.Second)
		}
	})
}

func pointSomewhere(t *testing.T, data []byte, diags diag.Diagnostics) {
	t.Helper()
	lines := 2 + strings.Count(string(data), "\n") + strings.Count(string(data), "\r")
	for _, d := range diags {
		if d.Code == "" || d.Message == "" || d.Line < 1 || d.Column < 1 || d.Line > lines {
			t.Errorf("a finding that points nowhere: %+v", d)
		}
	}
}

// everything binds whatever a file names.
func everything(def *program.Definition) program.Bindings {
	b := program.Bindings{Actions: map[string]program.ActionSpec{}, Guards: map[string]string{"a": "", "b": ""}}
	for _, a := range def.Spec.Actions {
		b.Actions[a.Use] = program.ActionSpec{Params: anyOf(a.With)}
	}
	for _, e := range def.Spec.Effects {
		b.Actions[e.Acquire], b.Actions[e.Release] = program.ActionSpec{}, program.ActionSpec{}
	}
	for _, p := range def.Spec.Phases {
		for _, s := range p.Steps {
			b.Actions[s.Action] = program.ActionSpec{Params: anyOf(s.With), Outputs: map[string]expr.Type{"n": expr.TypeInt}}
		}
	}
	return b
}

func anyOf(with map[string]any) map[string]program.Param {
	params := map[string]program.Param{}
	for name := range with {
		params[name] = program.Param{Type: expr.TypeAny}
	}
	return params
}

func BenchmarkLoadAndBind(b *testing.B) {
	data := readFile(b, "../phases/datastore-migration.yaml")
	bindings := shippedBindings(b)
	b.ReportAllocs()
	for b.Loop() {
		def, diags := program.Load("datastore-migration.yaml", data)
		if len(diags) > 0 {
			b.Fatal(diags.Err())
		}
		if _, diags := fsm.Bind(def, bindings); len(diags) > 0 {
			b.Fatal(diags.Err())
		}
	}
}

// BenchmarkPass is one look at a conflict that nobody has resolved.
func BenchmarkPass(b *testing.B) {
	data := readFile(b, "../phases/datastore-migration.yaml")
	bindings := shippedBindings(b)
	def, _ := program.Load("datastore-migration.yaml", data)
	m, diags := fsm.Bind(def, bindings)
	if len(diags) > 0 {
		b.Fatal(diags.Err())
	}
	found := fsm.Result{Outputs: map[string]any{"conflicts": 1, "examples": []string{"Tier b: spec"}}}
	view := fsm.Observation{Finalizer: true, Now: func() time.Time { return simulate.Epoch }}
	start := v1alpha1.MachineStatus{Phase: "WaitingForConflictResolution", Held: v1alpha1.Held("v1Lock"), Revision: m.Revision()}
	b.ReportAllocs()
	for b.Loop() {
		run := m.Run(start, view)
		for cmd := run.Decide(b.Context()); cmd.Do != fsm.Requeue; cmd = run.Decide(b.Context()) {
			fire(b, run, found)
		}
		_, _ = run.Status(), run.Summary()
	}
}
