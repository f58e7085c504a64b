package prove

import (
	"os"
	"slices"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/go-cmp/cmp"
	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

func lockBindings() program.Bindings {
	return program.Bindings{Actions: map[string]program.ActionSpec{"Lock": {}, "Unlock": {}}, Guards: map[string]string{"ready": ""}}
}

// lockProgram is compiled afresh each time, so that a test may damage it.
func lockProgram(t *testing.T) *fsm.Machine {
	t.Helper()
	data, err := os.ReadFile("../../testdata/lock.yaml")
	if err != nil {
		t.Fatal(err)
	}
	def, diags := program.Load("lock.yaml", data)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	m := fsm.Provable(def, lockBindings())
	if m == nil {
		t.Fatal("the machine is refused")
	}
	return m
}

// lockScope is what expressions of the machine can read.
func lockScope(t *testing.T) *expr.Scope {
	t.Helper()
	s, err := expr.NewScope(nil, []string{"ready"})
	if err != nil {
		t.Fatal(err)
	}
	s.Define(expr.VarVariables, map[string]*cel.Type{"locked": cel.BoolType, "big": cel.BoolType})
	s.Define(expr.VarRequest, map[string]*cel.Type{"go": s.Define("request.go", map[string]*cel.Type{"pending": cel.BoolType})})
	return s
}

// A defect of the engine cannot be written into a file: the program is damaged.
func TestDefectsOfTheEngineAreFound(t *testing.T) {
	cases := map[string]struct {
		why    string
		damage func(*program.Program)
		want   map[string][]string
	}{
		"none": {
			why:    "the twin of all the others",
			damage: func(*program.Program) {},
			want:   map[string][]string{},
		},
		"ledger": {
			why:    "a deed before the ledger is written is lost in a crash",
			damage: func(p *program.Program) { p.Phases["Work"].StepList[0].Acquires = "" },
			want: map[string][]string{
				"invariant ledger: lock is in place, but neither held nor kept: nothing would release it; it also breaks noLeak": {"Work: Lock done"},
			},
		},
		"legal": {
			why: "an event that the phase does not have leads nowhere",
			damage: func(p *program.Program) {
				work := p.Events["Work"]
				work.Events = slices.DeleteFunc(work.Events, func(e looplab.EventDesc) bool { return e.Name == program.ReasonDeletion })
			},
			want: map[string][]string{
				"invariant deletable: a deletion never ends from here, even if every action succeeds; it also breaks legal": {"kubectl delete"},
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := lockProgram(t)
			c.damage(m.Program())
			_, diags := Prove(m, Options{})
			got := map[string][]string{}
			for _, d := range diags {
				got[d.Message] = d.Trace
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

// The proof looks early at each step that may have failed; what an engine without patience does is found.
func TestProofLooksEarly(t *testing.T) {
	p := newProver(lockProgram(t))
	p.explore(defaultMaxStates)
	stays := map[string]bool{}
	for i, n := range p.nodes {
		w := &way{prover: p, at: i, from: n.state}
		for more := !n.gone && n.phase != noPhase; more; more = w.another() {
			if w.walk(); w.early {
				leaves := n.deleting && !p.phaseOf(n.state).Deletion // which waits for no backoff
				stays[p.phaseOf(n.state).Name] = leaves != (w.to == w.from)
				w.checkPatient(fsm.Decision{Do: fsm.RunAction})
			}
		}
	}
	if d := cmp.Diff(map[string]bool{"Work": true, "Out": true}, stays); d != "" {
		t.Errorf("early looks, and whether the state stays (-want +got):\n%s", d)
	}
	if len(p.findings()) != 1 || p.violations[invariantPatient].message == "" {
		t.Errorf("an action that is called early is found as %v", p.findings())
	}
}

func TestProofIsGivenUpAtItsBound(t *testing.T) {
	m := lockProgram(t)
	report, diags := Prove(m, Options{})
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	if _, diags = Prove(m, Options{MaxStates: report.States}); len(diags) > 0 {
		t.Errorf("as many states as allowed: %v", diags)
	}
	_, diags = Prove(m, Options{MaxStates: report.States - 1})
	if len(diags) != 1 || diags[0].Code != "PG201" || diags[0].Line == 0 {
		t.Errorf("one state more than allowed: %v", diags)
	}
}

// What the phase and the ledger decide is not tried the other way; all else is.
func TestWhatIsKnownOfAGuard(t *testing.T) {
	cases := map[string]struct {
		why  string
		held []string
		want any // nil: nothing is known
	}{
		`"lock" in held`:                                {"the ledger is known", []string{"lock"}, true},
		`"lock" in held || self.spec.open`:              {"true whatever self is", []string{"lock"}, true},
		`self.spec.open && !("lock" in held)`:           {"false whatever self is", []string{"lock"}, false},
		`self.spec.open && "lock" in held`:              {"it depends on self", []string{"lock"}, nil},
		`held.size() == 0 && guards.ready`:              {"it depends on a guard", nil, nil},
		`phase.name == "Work" && held.size() == 0`:      {"the phase is known", nil, true},
		`phase.attempts > 3 && held.size() == 0`:        {"attempts are not", nil, nil},
		`phase.age > duration("1h")`:                    {"nor is the time", nil, nil},
		`now > timestamp("2020-01-01T00:00:00Z")`:       {"nor is the time of day", nil, nil},
		`variables.locked`:                              {"a variable is as known as what it reads", []string{"lock"}, true},
		`variables.locked && variables.big`:             {"one variable is known, the other not", []string{"lock"}, nil},
		`variables.locked || variables.big`:             {"one variable is enough", []string{"lock"}, true},
		`request.go.pending`:                            {"a request may come at any time", nil, nil},
		`generationChanged ? held.size() > 0 : false`:   {"it depends on the generation", nil, nil},
		`self.spec.?x.orValue("") == "y"`:               {"an optional of what is not known is not absent", nil, nil},
		`has(self.spec.x)`:                              {"nor is has", nil, nil},
		`["lock"].exists(e, e in held && self.spec.ok)`: {"loops too", []string{"lock"}, nil},
		`["lock"].exists(e, e in held || self.spec.ok)`: {"loops too", []string{"lock"}, true},
	}
	m := lockProgram(t)
	p := newProver(m)
	scope := lockScope(t)
	for text, tc := range cases {
		t.Run(text, func(t *testing.T) {
			e, errs := scope.Compile(text)
			if e == nil {
				t.Fatal(errs)
			}
			var got any
			if v := p.known(e, "Work", tc.held); v != nil {
				got = v == types.True
			}
			if got != tc.want {
				t.Errorf("%s: known is %v, want %v", tc.why, got, tc.want)
			}
		})
	}
}

// A file cannot give the name of a built-in invariant to one of its own: program refuses those that are proved here.
func TestBuiltInInvariantsAreReserved(t *testing.T) {
	proved := []string{invariantLedger, invariantNoLeak, invariantDeletable, invariantReleased, invariantNoReturn, invariantLegal, invariantGone, invariantPatient}
	if d := cmp.Diff(program.BuiltInInvariants, proved); d != "" {
		t.Errorf("(-reserved +proved):\n%s", d)
	}
}
