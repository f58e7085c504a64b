package fsm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

const failingWork = "    retry: {base: 10s, max: 1m, jitter: 0, attempts: 5, to: Done}\n    timeout: {after: 1h, to: Done}\n    steps: [{action: Work, with: {count: '${int(self.spec.size)}'}}]\n"

// What is not time yet is not done, whatever wakes the object; what can wait for nobody is.
func TestAnEarlyLookAfterAnError(t *testing.T) {
	file := one(failingWork + toDone)
	for name, c := range map[string]struct {
		why     string
		happens func(w *world, i int)
		tries   int // besides the first
		wrote   bool
		want    v1alpha1.MachineStatus
	}{
		"wake-ups":    {"a watch knows nothing of the backoff", func(w *world, _ int) { w.Wake() }, 0, false, v1alpha1.MachineStatus{Phase: "One", Step: "Work", Attempts: 1}},
		"annotations": {"nor do annotations", func(w *world, i int) { w.Annotate(map[string]string{"somebody": fmt.Sprint(i)}) }, 0, false, v1alpha1.MachineStatus{Phase: "One", Step: "Work", Attempts: 1}},
		"restarts":    {"a driver begins with what is stored", func(w *world, _ int) { w.Crash("Requeue", false, 0) }, 0, false, v1alpha1.MachineStatus{Phase: "One", Step: "Work", Attempts: 1}},
		"edits of the spec": {"a corrected spec is tried at once, as an extra", func(w *world, i int) { w.set("spec.size", i) },
			12, true, v1alpha1.MachineStatus{Phase: "One", Step: "Work", Attempts: 1}},
		"edits of what the step does": {"so is a corrected file", func(w *world, i int) {
			w.Machine = machineOf(t, "test.yaml", []byte(strings.Replace(file, "${int(self.spec.size)}", fmt.Sprintf("${int(self.spec.size) + %d}", i), 1)), testBindings)
		}, 12, true, v1alpha1.MachineStatus{Phase: "One", Step: "Work", Attempts: 1}},
		"comments in the file": {"the step does the same", func(w *world, i int) {
			w.Machine = machineOf(t, "test.yaml", []byte(fmt.Sprint(file, "# ", i)), testBindings)
		}, 0, false, v1alpha1.MachineStatus{Phase: "One", Step: "Work", Attempts: 1}},
		"the finalizer is removed": {"it is put back first", func(w *world, _ int) { w.Finalizers = nil },
			0, true, v1alpha1.MachineStatus{Phase: "One", Step: "Work", Attempts: 1}},
		"a deletion": {"it waits for no backoff", func(w *world, _ int) { w.Delete() }, 0, true, v1alpha1.MachineStatus{Phase: "End"}},
		"the deadline": {"nor does a deadline", func(w *world, i int) {
			if i == 0 {
				w.Stored.EnteredAt.Time = w.Stored.EnteredAt.Add(-time.Hour)
			}
		}, 0, true, v1alpha1.MachineStatus{Phase: "Done"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "test.yaml", []byte(file), testBindings)
			w.set("spec.size", 100)
			w.Give("Work", failing(errors.New("no"), program.ClassUnavailable))
			w.settle()
			w.Called = nil
			stored, tries := *w.Stored.DeepCopy(), 0
			for i := range 12 {
				w.Tick(40 * time.Millisecond)
				c.happens(w, i)
				version := w.Version()
				w.settle()
				tries += strings.Count(strings.Join(w.Called, " "), "Work")
				w.Called = nil
				if !c.wrote && (version != w.Version() || cmp.Diff(stored, w.Stored) != "") {
					t.Fatalf("%s: look %d wrote (-before +after):\n%s", c.why, i, cmp.Diff(stored, w.Stored))
				}
			}
			got := v1alpha1.MachineStatus{Phase: w.Stored.Phase, Step: w.Stored.Step, Attempts: w.Stored.Attempts}
			if d := cmp.Diff(c.want, got); d != "" || tries != c.tries {
				t.Errorf("%s: %d tries, want %d (-want +got):\n%s", c.why, tries, c.tries, d)
			}
			if w.Stored.Phase != "One" {
				return
			}
			w.Tick(10*time.Second - w.Now().Sub(stored.NotBefore.Time) - 10*time.Second) // to the moment
			w.settle()
			if n := w.Stored.Attempts; n != 2 {
				t.Errorf("%s: attempts %d once the backoff is over, want 2", c.why, n)
			}
		})
	}
}

// A crash between the write of the state and that of the view leaves an old view, which is
// repaired before the next try.
func TestAnEarlyLookRepairsTheView(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(one(failingWork+toDone)), testBindings)
	w.set("spec.size", 100)
	w.Give("Work", failing(errors.New("no"), program.ClassUnavailable))
	w.Crash("WriteView", true, 0)
	w.settle()
	w.Shown.Message, w.ShownMachine.Attempts = "an older view", 0
	w.settle()
	if want := "Work failed (attempt 1), next at 2026-01-02T03:04:15Z"; w.Shown.Message != want || w.ShownMachine.Attempts != 1 {
		t.Errorf("shown: %q, attempts %d; want %q", w.Shown.Message, w.ShownMachine.Attempts, want)
	}
}

// external are the bindings of the tests, in which Look calls something outside the cluster.
func external() program.Bindings {
	b := program.Bindings{Guards: testBindings.Guards, Actions: map[string]program.ActionSpec{}}
	for name, spec := range testBindings.Actions {
		spec.External = name == "Look" || name == "Give"
		b.Actions[name] = spec
	}
	return b
}

// What is called outside the cluster is called at its poll, and by nobody's wake-up.
func TestExternalActionsAreCalledAtTheirPoll(t *testing.T) {
	const second = time.Second
	wake := func(w *world, _ int) { w.Wake() }
	restart := func(w *world, i int) {
		if i%17 == 0 {
			w.Crash("Requeue", true, 0)
			w.Wake()
		}
	}
	waiting := failing(fsm.Wait("not yet"), "")
	for name, c := range map[string]struct {
		why, phase string
		gives      simulate.Answer
		happens    func(w *world, i int) // ten times a second
		want       []time.Duration
		wrote      int
	}{
		"until":               {"as often as it says", "steps: [{action: Look, until: 'result.n > 1', poll: 10s}]", answer(nil), wake, []time.Duration{0, 10 * second, 20 * second}, 0},
		"it waits":            {"the same", "steps: [{action: Look, poll: 10s}]", waiting, wake, []time.Duration{0, 10 * second, 20 * second}, 0},
		"it says how long":    {"the action knows best", "steps: [{action: Look, poll: 10s}]", failing(&fsm.WaitError{After: 15 * second}, ""), wake, []time.Duration{0, 15 * second}, 0},
		"an exit is closed":   {"the whole look is repeated at its poll", "poll: 10s, steps: [{action: Look}]", answer(nil), wake, []time.Duration{0, 10 * second, 20 * second}, 0},
		"after another step":  {"what only reads the cluster is called by the way", "poll: 10s, steps: [{action: Work}, {action: Look}]", answer(nil), wake, []time.Duration{0, 10 * second, 20 * second}, 0},
		"without a poll":      {"a phase that only a watch wakes", "watch: [{apiVersion: v1, kind: Pod, name: x}], steps: [{action: Look}]", answer(nil), wake, []time.Duration{0, 10 * second, 20 * second}, 0},
		"one after the other": {"the second was not called before", "poll: 10s, steps: [{action: Look}, {name: Again, action: Look}]", answer(nil), wake, []time.Duration{0, 0, 10 * second, 10 * second, 20 * second, 20 * second}, 0},
		"steady":              {"also where it is looked at for years", "kind: steady, poll: 10s, steps: [{action: Look}]", answer(nil), wake, []time.Duration{0, 10 * second, 20 * second}, 0},
		"restarts":            {"of a driver that cannot know when it called last", "steps: [{action: Look, until: 'result.n > 1', poll: 10s}]", answer(nil), restart, []time.Duration{0, 10 * second, 20 * second}, 0},
		"an error":            {"its backoff decides", "retry: {base: 7s, factor: 1, jitter: 0}, steps: [{action: Look, poll: 10s}]", failing(errors.New("no"), program.ClassUnavailable), wake, []time.Duration{0, 7 * second, 14 * second, 21 * second, 28 * second}, 2},
		"an edit": {"it asks for a new look", "steps: [{action: Look, until: 'result.n > 1', poll: 10s}]", answer(nil), func(w *world, i int) {
			if i == 42 {
				w.set("spec.size", 1)
			}
		}, []time.Duration{0, 4200 * time.Millisecond, 14200 * time.Millisecond, 24200 * time.Millisecond}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			file := phases("  - {name: One, " + c.phase + ", timeout: {after: 1h, to: Done}, next: [{to: Done, when: 'guards.b'}], onDelete: {to: Out}}\n" + rest)
			w := newWorld(t, "test.yaml", []byte(file), external())
			w.GiveGuard("b", simulate.GuardAnswer{})
			var called []time.Duration
			w.Respond = func(action string, _ fsm.Decision) (simulate.Answer, bool) {
				if action != "Look" {
					return simulate.Answer{}, false
				}
				called = append(called, w.Now().Sub(simulate.Epoch))
				return c.gives, true
			}
			w.settle()
			var version int
			for i := range 290 {
				if i == 150 { // what is read back is stored by then
					version = w.Version()
				}
				c.happens(w, i)
				w.advance(100 * time.Millisecond)
			}
			if d := cmp.Diff(c.want, called); d != "" {
				t.Errorf("%s: called at (-want +got):\n%s", c.why, d)
			}
			if got := w.Version() - version; got != c.wrote {
				t.Errorf("%s: %d writes from the 15th second on, want %d", c.why, got, c.wrote)
			}
		})
	}
}

// A commit that is lost does not make a call outside the cluster undone.
func TestExternalActionIsNotRepeatedForALostCommit(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(one("    poll: 10s\n    steps: [{action: Look, poll: 10s}]\n"+toDone)), external())
	for range 2 {
		_, _ = w.Reconcile()
	}
	w.ConflictNext = true
	w.settle()
	if d := cmp.Diff([]string{"Look"}, w.Called); d != "" {
		t.Errorf("calls before the poll is over (-want +got):\n%s", d)
	}
	w.advance(10 * time.Second)
	if w.Stored.Phase != "Done" {
		t.Errorf("it is in %s after the poll", w.Stored.Phase)
	}
}

// One rule for all requests, wherever they lead: A, B, A is acted on twice.
func TestRequestsAreActedOnOnce(t *testing.T) {
	file := strings.Replace(phases("  - {name: One, poll: 5s, next: [{to: Two, when: 'request.go.pending'}], onDelete: {to: Out}}\n"+
		"  - {name: Two, poll: 5s, next: [{to: One}], onDelete: {to: Out}}\n"+
		strings.SplitAfterN(rest, "\n", 2)[1]),
		"token: 'self.spec.go'", "token: 'self.metadata.?annotations[?\"go\"].orValue(\"\")', record: {annotation: went}", 1)
	for name, c := range map[string]struct {
		why    string
		tokens []string
		acted  int
	}{
		"A, B, A":        {"A was acted on", []string{"A", "B", "A"}, 2},
		"times":          {"an older one is not acted on, whether or not it was before", []string{"2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-02T12:00:00Z"}, 2},
		"of the record":  {"another program acted on it", []string{"A", "of another"}, 1},
		"older than it":  {"nor on one before it", []string{"2026-01-02T00:00:00Z"}, 0},
		"a new one each": {"that is what a request is", []string{"A", "B", "C"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "test.yaml", []byte(file), testBindings)
			w.settle()
			acted := 0
			for _, token := range c.tokens {
				switch name {
				case "of the record":
					w.Annotate(map[string]string{"went": "of another"})
					w.Stored.Requests = nil
				case "older than it":
					w.Annotate(map[string]string{"went": "2026-06-01T00:00:00Z"})
				}
				w.Annotate(map[string]string{"go": token})
				before := len(w.Stored.History)
				w.settle()
				acted += (len(w.Stored.History) - before) / 2
			}
			if acted != c.acted {
				t.Errorf("%s: acted %d times, want %d", c.why, acted, c.acted)
			}
		})
	}
}

// A phase that waits for a person looks whenever something has changed: that may be the correction.
func TestAWaitingPhaseLooksAtOnce(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(one("    kind: waiting\n    poll: 1m\n    steps: [{action: Work}]\n"+toDone)), testBindings)
	w.Give("Work", failing(errors.New("it is in the way"), program.ClassUnavailable))
	w.settle()
	w.Called = nil
	for range 3 {
		w.Tick(2 * time.Second)
		w.Wake()
		w.settle()
	}
	if d := cmp.Diff([]string{"Work", "Work", "Work"}, w.Called); d != "" || w.Stored.Attempts != 1 {
		t.Errorf("each look tries, and none of them counts: attempt %d (-want +got):\n%s", w.Stored.Attempts, d)
	}
	w.Give("Work", simulate.Answer{})
	w.Tick(time.Second)
	w.Wake()
	w.settle()
	if w.Stored.Phase != "Done" {
		t.Errorf("the phase is %s after the correction, want Done", w.Stored.Phase)
	}
}

// A time that comes while a run decides is still to come for all of it: nothing else would wake the object.
func TestATimeThatPassesWhileARunDecides(t *testing.T) {
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	micro := func(d time.Duration) *metav1.MicroTime { return new(metav1.NewMicroTime(at.Add(d))) }
	file := one("    timeout: {after: 1h, to: Done}\n    steps: [{action: Work}]\n" + toDone)
	m := machineOf(t, "test.yaml", []byte(file), testBindings)
	st := v1alpha1.MachineStatus{Revision: m.Revision(), Phase: "One", Step: "Work", Attempts: 1, Generation: 1, TriedGeneration: 1, EnteredAt: micro(-time.Minute), NotBefore: micro(10 * time.Microsecond)}
	for reads := range 12 {
		left := reads
		d := m.Run(st, fsm.Observation{Finalizer: true, Generation: 1, Now: func() time.Time {
			if left--; left < 0 {
				return at.Add(time.Millisecond)
			}
			return at
		}}).Decide(t.Context())
		if d.Do == fsm.Requeue && d.After <= 0 {
			t.Errorf("the clock goes on after %d looks at it: back after %s, which is never", reads, d.After)
		}
	}
}
