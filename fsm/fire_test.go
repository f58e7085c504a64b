package fsm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	looplab "github.com/looplab/fsm"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
	"github.com/phasegate/phasegate/fsm/program"
)

// locked is a run of lockMachine that comes to the step Lock, and goes to Done after it.
func locked(t *testing.T, m *Machine) *Run {
	t.Helper()
	run := m.Run(v1alpha1.MachineStatus{Phase: "Work", Revision: m.Revision(), Held: v1alpha1.Held("lock")},
		Input{Finalizer: true, Now: func() time.Time { return fireNow }})
	if cmd := run.Next(t.Context()); cmd.Do != RunAction || cmd.Event != "Lock" {
		t.Fatalf("it asks for %+v", cmd)
	}
	return run
}

// does answers an action, and counts its calls.
func does(calls *int, o Result) Do {
	return func(context.Context, Command) (Result, error) {
		*calls++
		return o, nil
	}
}

// only replaces the event of a name in phase Work.
func only(name string, by ...looplab.EventDesc) func(string, []looplab.EventDesc) []looplab.EventDesc {
	return func(phase string, all []looplab.EventDesc) []looplab.EventDesc {
		if phase != "Work" {
			return all
		}
		return append(slices.DeleteFunc(all, func(e looplab.EventDesc) bool { return e.Name == name }), by...)
	}
}

// What looplab/fsm answers, and what becomes of it.
func TestAnswersOfAnEvent(t *testing.T) {
	found := errors.New("found")
	refuses := func(_ context.Context, e *looplab.Event) { e.Cancel(found) }
	finds := func(_ context.Context, e *looplab.Event) { e.Err = found }
	for name, c := range map[string]struct {
		why       string
		events    func(string, []looplab.EventDesc) []looplab.EventDesc
		callbacks looplab.Callbacks
		calls     int
		stall     string // empty: it goes to Done
	}{
		"as it should be":             {why: "the twin of all the others", calls: 1},
		"CanceledError of a step":     {"it is not called", nil, looplab.Callbacks{"before_Lock": refuses}, 0, "Lock from Work: found"},
		"CanceledError of an exit":    {"it is not taken", nil, looplab.Callbacks{"before_Done": refuses}, 1, "Done from Work: found"},
		"CanceledError while leaving": {"nor then", nil, looplab.Callbacks{"leave_Work": refuses}, 1, "Done from Work: found"},
		"CanceledError without words": {"a refusal all the same", nil, looplab.Callbacks{"before_Lock": func(_ context.Context, e *looplab.Event) { e.Cancel() }}, 0, "does not say why"},
		"NoTransitionError with a cause": {"what is found after the call is no success",
			nil, looplab.Callbacks{"after_Lock": finds}, 1, "Lock from Work: found"},
		"AsyncError with a cause": {"found before anything was decided", nil, looplab.Callbacks{"before_Done": finds}, 1, "Done from Work: found"},
		"AsyncError of another":   {"nothing was decided", nil, looplab.Callbacks{"leave_Work": func(_ context.Context, e *looplab.Event) { e.Async() }}, 1, "did not do"},
		"no answer":               {"it moved before it was stored", nil, looplab.Callbacks{"leave_state": func(context.Context, *looplab.Event) {}}, 1, "did not do"},
		"UnknownEventError":       {"no such step", only("Lock"), nil, 0, "no phase has such an event"},
		"InvalidEventError":       {"the step of another phase", only("Lock", looplab.EventDesc{Name: "Lock", Src: []string{"Out"}, Dst: "Out"}), nil, 0, "of another phase than Work"},
		"a step that leaves":      {"its action would be called in another phase's name", only("Lock", looplab.EventDesc{Name: "Lock", Src: []string{"Work"}, Dst: "Done"}), nil, 0, errNoCall.Error()},
		"an exit that stays":      {"no transition", only("Done", looplab.EventDesc{Name: "Done", Src: []string{"Work"}, Dst: "Work"}), nil, 1, errNoWay.Error()},
		"an exit to nowhere":      {"no such phase", only("Done", looplab.EventDesc{Name: "Done", Src: []string{"Work"}, Dst: "Nowhere"}), nil, 1, `no phase "Nowhere"`},
	} {
		t.Run(name, func(t *testing.T) {
			run, calls := locked(t, lockMachine(t).Altered(c.events, c.callbacks)), 0
			var told []string
			err := run.Fire(t.Context(), does(&calls, Result{}))
			cmd := run.Next(t.Context())
			if err := errors.Join(err, run.Stored(func(t *v1alpha1.Transition) { told = append(told, t.Reason) })); err != nil {
				t.Fatal(err)
			}
			if calls != c.calls {
				t.Errorf("%s: the action is called %d times, want %d", c.why, calls, c.calls)
			}
			want, stalled := []any{Commit, "Done", []string{"Done"}}, ""
			if c.stall != "" {
				want = []any{Requeue, "Work", []string(nil)}
			}
			if run.stall != nil {
				stalled = run.stall.message
			}
			if d := cmp.Diff(want, []any{cmd.Do, run.Status().Phase, told}); d != "" || !strings.Contains(stalled, c.stall) {
				t.Errorf("%s: stalled for %q, want %q (-want +got):\n%s", c.why, stalled, c.stall, d)
			}
		})
	}
}

// An error of a step cancels its event, and is what decides; one of the driver ends the run.
func TestErrorsOfAStep(t *testing.T) {
	run, calls := locked(t, lockMachine(t)), 0
	if err := run.Fire(t.Context(), does(&calls, Result{Err: errNotYet})); err != nil || run.stall != nil || run.Next(t.Context()).Do != Requeue || run.Status().Attempts != 0 {
		t.Errorf("a wait is no error: %v, %+v, %+v", err, run.stall, run.Status())
	}
	run = locked(t, lockMachine(t))
	if err := run.Fire(t.Context(), does(&calls, Result{Err: errAgain, Class: program.ClassUnavailable})); err != nil || run.stall != nil || run.Status().Attempts != 1 {
		t.Errorf("an error is an attempt: %v, %+v, %+v", err, run.stall, run.Status())
	}
	run = locked(t, lockMachine(t))
	ends := errors.New("the driver ends")
	if err := run.Fire(t.Context(), func(context.Context, Command) (Result, error) { return Result{}, ends }); !errors.Is(err, ends) {
		t.Errorf("the driver hears of its own error: %v", err)
	}
	if err := run.Fire(t.Context(), does(&calls, Result{})); err != nil || calls != 2 {
		t.Errorf("nothing is carried out twice: %v, %d calls", err, calls)
	}
}

// Who has not stored a transition comes to no other one.
func TestInTransitionError(t *testing.T) {
	run, calls := locked(t, lockMachine(t)), 0
	if err := run.Fire(t.Context(), does(&calls, Result{})); err != nil || run.Next(t.Context()).Do != Commit {
		t.Fatal(err)
	}
	run.st.Phase = "Work" // as if it had not been decided
	run.take(t.Context(), program.ReasonDeletion, "", nil)
	if run.stall == nil || !strings.Contains(run.stall.message, "an earlier event waits to be stored") {
		t.Errorf("stalled for %+v", run.stall)
	}
}

// A transition that was called off, or was none, is told nobody.
func TestStoredTellsNobodyOfWhatDidNotHappen(t *testing.T) {
	for name, spoil := range map[string]func(*Run){
		"called off": func(r *Run) {
			r.fsm = looplab.NewFSM("Work", r.m.Events("Work"), r.m.callbacks)
			r.st.Phase = "Work"
			var async looplab.AsyncError
			if err := r.fsm.Event(context.Background(), "Done", &firing{run: r}); !errors.As(err, &async) {
				t.Fatal(err)
			}
			async.CancelTransition()
		},
		"NotInTransitionError": func(r *Run) { r.fsm = looplab.NewFSM("Work", r.m.Events("Work"), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			run, calls := locked(t, lockMachine(t)), 0
			if err := run.Fire(t.Context(), does(&calls, Result{})); err != nil || run.Next(t.Context()).Do != Commit {
				t.Fatal(err)
			}
			spoil(run)
			if err := run.Stored(func(*v1alpha1.Transition) { t.Error("it is told") }); !errors.Is(err, errIllegal) {
				t.Errorf("nobody hears of it: %v", err)
			}
		})
	}
}

// At most once, and not before it is stored.
func TestATransitionIsToldOnce(t *testing.T) {
	run, calls, told := locked(t, lockMachine(t)), 0, 0
	tell := func(*v1alpha1.Transition) { told++ }
	if err := run.Fire(t.Context(), does(&calls, Result{})); err != nil {
		t.Fatal(err)
	}
	_, _ = run.Next(t.Context()), run.Next(t.Context())
	if told != 0 || run.fsm.Current() != "Work" {
		t.Errorf("told %d times in %s before it is stored", told, run.fsm.Current())
	}
	if err := errors.Join(run.Stored(tell), run.Stored(tell)); err != nil || told != 1 || run.fsm.Current() != "Done" {
		t.Errorf("told %d times, %v", told, err)
	}
}

// A guard that is shut by the time of the event keeps the exit shut, and nobody can give the guard of another.
func TestGuardIsAskedAgain(t *testing.T) {
	def, diags := program.Load("test.yaml", []byte(one("    poll: 5s\n    next: [{to: Done, when: 'guards.a', reason: Opened}, {to: Done}]\n")))
	if def == nil {
		t.Fatal(diags)
	}
	m, diags := Bind(def, testBindings)
	if m == nil {
		t.Fatal(diags)
	}
	for name, c := range map[string]struct {
		why   string
		open  bool
		guard func(p *program.Phase) *expr.Expr
		stall string
	}{
		"open":       {"as Next found it", true, func(p *program.Phase) *expr.Expr { return p.Exits[0].WhenExpr }, ""},
		"shut":       {"by now", false, func(p *program.Phase) *expr.Expr { return p.Exits[0].WhenExpr }, "guard guards.a"},
		"of another": {"no caller can leave it out", false, func(*program.Phase) *expr.Expr { return nil }, "that of another event"},
	} {
		t.Run(name, func(t *testing.T) {
			run := m.Run(v1alpha1.MachineStatus{Phase: "One", Revision: m.Revision()}, Input{Finalizer: true, Now: func() time.Time { return fireNow },
				Guard: func(string) (bool, string, error) { return c.open, "", nil }})
			cmd := run.take(t.Context(), "Opened", "", c.guard(run.phase()))
			if stalled := run.stall != nil; stalled != (c.stall != "") || stalled && !strings.Contains(run.stall.message, c.stall) || !stalled && cmd.Transition.Reason != "Opened" {
				t.Errorf("%s: %+v, %+v", c.why, cmd, run.stall)
			}
		})
	}
}

// A look that comes to no event makes no state machine.
func TestEarlyLookMakesNoFSM(t *testing.T) {
	m := lockMachine(t)
	run := m.Run(v1alpha1.MachineStatus{Phase: "Work", Step: "Lock", Revision: m.Revision(), Held: v1alpha1.Held("lock"), Attempts: 1, NotBefore: microTime(fireNow.Add(time.Minute))},
		Input{Finalizer: true, Now: func() time.Time { return fireNow }})
	if cmd := run.Next(t.Context()); !cmd.Early || run.fsm != nil {
		t.Errorf("%+v, %v", cmd, run.fsm)
	}
}

// What an error brings as its reason is the event's name, unless that is the name of something else.
func TestEventOfAnError(t *testing.T) {
	const file = `    poll: 5s
    steps: [{action: Work}, {action: Look}]
    next: [{to: Done, when: 'guards.a', reason: Finished}, {to: Two, when: 'guards.b', reason: Broken}]
    timeout: {after: 1h, to: Done}
    onError: [{is: Terminal, to: Two}]
  - {name: Two, terminal: failure, onDelete: {to: Out}}
`
	def, diags := program.Load("test.yaml", []byte(one(file)))
	if def == nil {
		t.Fatal(diags)
	}
	m, diags := Bind(def, testBindings)
	if m == nil {
		t.Fatal(diags)
	}
	got := map[string]string{}
	for _, reason := range []string{"Stuck", "Look", "Finished", "Broken", ""} {
		run := m.Run(v1alpha1.MachineStatus{Phase: "One", Revision: m.Revision()}, Input{Finalizer: true, Now: func() time.Time { return fireNow }, Guard: noGuard})
		run.Next(t.Context())
		if err := run.Fire(t.Context(), func(context.Context, Command) (Result, error) {
			return Result{Err: &TerminalError{Reason: reason, Err: errAgain}}, nil
		}); err != nil {
			t.Fatal(err)
		}
		took := run.Next(t.Context()).Transition
		if took == nil {
			t.Fatalf("%q: %+v", reason, run.stall)
		}
		got[reason] = took.Reason + " " + took.To
	}
	want := map[string]string{
		"Stuck": "Stuck Two", "Look": "TerminalError Two", // a step
		"Finished": "TerminalError Two", // leads elsewhere
		"Broken":   "Broken Two",        // leads there, too, and its guard is not asked
		"":         "TerminalError Two",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

var (
	fireNow   = time.Unix(1_000_000_000, 0)
	errAgain  = errors.New("fails")
	errNotYet = Wait("not yet")
)

func noGuard(string) (bool, string, error) { return false, "", errAgain }

func microTime(t time.Time) *metav1.MicroTime {
	m := metav1.NewMicroTime(t)
	return &m
}

// lockMachine is compiled afresh each time, so that a test may damage it.
func lockMachine(t *testing.T) *Machine {
	t.Helper()
	def, diags := program.Load("lock.yaml", ReadFile(t, "testdata/lock.yaml"))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	m := Provable(def, program.Bindings{Actions: map[string]program.ActionSpec{"Lock": {}, "Unlock": {}}})
	if m == nil {
		t.Fatal("the machine is refused")
	}
	return m
}
