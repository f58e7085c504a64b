package fsm

import (
	"strings"
	"testing"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// FuzzLoad looks for a file that panics, takes long, or is taken in spite of a
// finding. What loads must also run a pass without a panic.
func FuzzLoad(f *testing.F) {
	f.Add(readFile(f, "../phases/datastore-migration.yaml"))
	f.Add([]byte(spec(onePhase)))
	f.Add([]byte(one("    poll: 5s\n    steps: [{action: Work, with: {count: 1}}, {wait: 1s}]\n    timeout: {after: 1h, stalled: Late}\n" + toDone)))
	f.Add([]byte("a: &a [*a, *a]"))
	f.Add([]byte("---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		def, diags := Load("fuzz.yaml", data)
		if (def == nil) == (len(diags) == 0) {
			t.Fatalf("a definition or findings, not both and not neither: %v", diags)
		}
		lines := 2 + strings.Count(string(data), "\n") + strings.Count(string(data), "\r")
		for _, d := range diags {
			if d.Code == "" || d.Message == "" || d.Line < 1 || d.Column < 1 || d.Line > lines {
				t.Errorf("a finding that points nowhere: %+v", d)
			}
		}
		if def == nil {
			return
		}
		m, diags := Bind(def, everything(def))
		if len(diags) > 0 {
			return
		}
		w := &world{t: t, m: m, now: epoch, actions: map[string][]answer{}, guards: map[string]guardAnswer{},
			self: map[string]any{}, taken: map[string]bool{}, released: map[string]bool{}, asked: map[string]int{}}
		for range 5 {
			_, _ = w.pass()
			w.now = w.now.Add(time.Second)
		}
	})
}

// everything binds whatever a file names.
func everything(def *Definition) Bindings {
	b := Bindings{Actions: map[string]ActionSpec{}, Guards: map[string]string{"a": "", "b": ""}}
	for _, a := range def.Spec.Actions {
		b.Actions[a.Use] = ActionSpec{Params: anyOf(a.With)}
	}
	for _, e := range def.Spec.Effects {
		b.Actions[e.Acquire], b.Actions[e.Release] = ActionSpec{}, ActionSpec{}
	}
	for _, p := range def.Spec.Phases {
		for _, s := range p.Steps {
			b.Actions[s.Action] = ActionSpec{Outputs: map[string]Type{"n": TypeInt}}
		}
	}
	return b
}

func anyOf(with map[string]any) map[string]Param {
	params := map[string]Param{}
	for name := range with {
		params[name] = Param{Type: TypeAny}
	}
	return params
}

func BenchmarkLoadAndBind(b *testing.B) {
	data := readFile(b, "../phases/datastore-migration.yaml")
	bindings := shippedBindings(b, data)
	b.ReportAllocs()
	for b.Loop() {
		def, diags := Load("datastore-migration.yaml", data)
		if len(diags) > 0 {
			b.Fatal(diags.Err())
		}
		if _, diags := Bind(def, bindings); len(diags) > 0 {
			b.Fatal(diags.Err())
		}
	}
}

// BenchmarkPass is one look at a conflict that nobody has resolved.
func BenchmarkPass(b *testing.B) {
	data := readFile(b, "../phases/datastore-migration.yaml")
	bindings := shippedBindings(b, data)
	def, _ := Load("datastore-migration.yaml", data)
	m, diags := Bind(def, bindings)
	if len(diags) > 0 {
		b.Fatal(diags.Err())
	}
	found := Outcome{Outputs: map[string]any{"conflicts": 1, "examples": []string{"Tier b: spec"}}}
	view := View{Self: map[string]any{}, Finalizer: true, Now: func() time.Time { return epoch }}
	start := v1alpha1.MachineStatus{Phase: "WaitingForConflictResolution", Held: []string{"v1Lock"}, Revision: m.Revision()}
	b.ReportAllocs()
	for b.Loop() {
		run := m.Run(start, view)
		for cmd := run.Next(); cmd.Do != Sleep; cmd = run.Next() {
			run.Done(found)
		}
		_, _ = run.Status(), run.Summary()
	}
}
