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

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// locked is a run of lockMachine that comes to the step Lock, and goes to Done after it.
func locked(t *testing.T, m *Machine) *Run {
	t.Helper()
	run := m.Run(v1alpha1.MachineStatus{Phase: "Work", Revision: m.Revision(), Held: v1alpha1.Held("lock")},
		Observation{Finalizer: true, Now: func() time.Time { return fireNow }})
	if d := run.Decide(t.Context()); d.Do != RunAction || d.Step != "Lock" {
		t.Fatalf("it asks for %+v", d)
	}
	return run
}

// does answers an action, and counts its calls.
func does(calls *int, o Result) Do {
	return func(context.Context, Decision) (Result, error) {
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
		"a cause without a refusal": {"found before anything was decided", nil, looplab.Callbacks{"before_Done": finds}, 1, "Done from Work: found"},
		"AsyncError":                {"nobody waits for it", nil, looplab.Callbacks{"leave_Work": func(_ context.Context, e *looplab.Event) { e.Async() }}, 1, "async started"},
		"nothing is noted":          {"it moved, and what is stored did not", nil, looplab.Callbacks{"enter_state": func(context.Context, *looplab.Event) {}}, 1, "did not do"},
		"UnknownEventError":         {"no such step", only("Lock"), nil, 0, "no phase has such an event"},
		"InvalidEventError":         {"the step of another phase", only("Lock", looplab.EventDesc{Name: "Lock", Src: []string{"Out"}, Dst: "Out"}), nil, 0, "of another phase than Work"},
		"a step that leaves":        {"its action would be called in another phase's name", only("Lock", looplab.EventDesc{Name: "Lock", Src: []string{"Work"}, Dst: "Done"}), nil, 0, errNoCall.Error()},
		"an exit that stays":        {"no transition", only("Done", looplab.EventDesc{Name: "Done", Src: []string{"Work"}, Dst: "Work"}), nil, 1, errNoWay.Error()},
		"an exit to nowhere":        {"no such phase", only("Done", looplab.EventDesc{Name: "Done", Src: []string{"Work"}, Dst: "Nowhere"}), nil, 1, `no phase "Nowhere"`},
	} {
		t.Run(name, func(t *testing.T) {
			run, calls := locked(t, lockMachine(t).Altered(c.events, c.callbacks)), 0
			if err := run.Apply(t.Context(), does(&calls, Result{})); err != nil {
				t.Fatal(err)
			}
			var told []string
			d := run.Decide(t.Context())
			if d.Transition != nil {
				told = append(told, d.Transition.Reason)
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
			if d := cmp.Diff(want, []any{d.Do, run.Status().Phase, told}); d != "" || !strings.Contains(stalled, c.stall) {
				t.Errorf("%s: stalled for %q, want %q (-want +got):\n%s", c.why, stalled, c.stall, d)
			}
		})
	}
}

// An error of a step cancels its event, and is what decides; one of the driver ends the run.
func TestErrorsOfAStep(t *testing.T) {
	run, calls := locked(t, lockMachine(t)), 0
	if err := run.Apply(t.Context(), does(&calls, Result{Err: errNotYet})); err != nil || run.stall != nil || run.Decide(t.Context()).Do != Requeue || run.Status().Attempts != 0 {
		t.Errorf("a wait is no error: %v, %+v, %+v", err, run.stall, run.Status())
	}
	run = locked(t, lockMachine(t))
	if err := run.Apply(t.Context(), does(&calls, Result{Err: errAgain, Class: program.ClassUnavailable})); err != nil || run.stall != nil || run.Status().Attempts != 1 {
		t.Errorf("an error is an attempt: %v, %+v, %+v", err, run.stall, run.Status())
	}
	run = locked(t, lockMachine(t))
	ends := errors.New("the driver ends")
	if err := run.Apply(t.Context(), func(context.Context, Decision) (Result, error) { return Result{}, ends }); !errors.Is(err, ends) {
		t.Errorf("the driver hears of its own error: %v", err)
	}
	if err := run.Apply(t.Context(), does(&calls, Result{})); err != nil || calls != 2 {
		t.Errorf("nothing is carried out twice: %v, %d calls", err, calls)
	}
}

// An exit is tried by its event, whose guard is asked once, and nobody can give the guard of another.
func TestExitsAreTriedByTheirEvents(t *testing.T) {
	def, diags := program.Load("test.yaml", []byte(one("    poll: 5s\n    next: [{to: Done, when: 'guards.a', reason: Opened}, {to: Done}]\n")))
	if def == nil {
		t.Fatal(diags)
	}
	m, diags := Bind(def, testBindings)
	if m == nil {
		t.Fatal(diags)
	}
	for name, c := range map[string]struct {
		why  string
		open bool
		take string
	}{
		"open":   {"the first that is not cancelled is taken", true, "Opened"},
		"closed": {"the next one is tried", false, "Done"},
	} {
		t.Run(name, func(t *testing.T) {
			var tried []string
			asked := 0
			watched := m.Altered(nil, looplab.Callbacks{"before_event": func(ctx context.Context, e *looplab.Event) {
				tried = append(tried, e.Event)
				beforeEvent(ctx, e)
			}})
			run := watched.Run(v1alpha1.MachineStatus{Phase: "One", Revision: m.Revision()}, Observation{Finalizer: true, Now: func() time.Time { return fireNow },
				Guard: func(string) (bool, string, error) { asked++; return c.open, "", nil }})
			d := run.Decide(t.Context())
			if d.Transition == nil || d.Transition.Reason != c.take || asked != 1 || tried[len(tried)-1] != c.take {
				t.Errorf("%s: %+v, tried %v, the guard was asked %d times", c.why, d.Transition, tried, asked)
			}
		})
	}
	run := m.Run(v1alpha1.MachineStatus{Phase: "One", Revision: m.Revision()}, Observation{Finalizer: true, Now: func() time.Time { return fireNow }})
	if run.take(t.Context(), "Opened", firing{}); run.stall == nil || !strings.Contains(run.stall.message, "that of another event") {
		t.Errorf("a caller can leave the guard out: %+v", run.stall)
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
		run := m.Run(v1alpha1.MachineStatus{Phase: "One", Revision: m.Revision()}, Observation{Finalizer: true, Now: func() time.Time { return fireNow }, Guard: noGuard})
		run.Decide(t.Context())
		if err := run.Apply(t.Context(), func(context.Context, Decision) (Result, error) {
			return Result{Err: &TerminalError{Reason: reason, Err: errAgain}}, nil
		}); err != nil {
			t.Fatal(err)
		}
		took := run.Decide(t.Context()).Transition
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
