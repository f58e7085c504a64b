package fsm_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// A steady phase says Ready of the generation that was looked at. Where the look did
// not come to its end, nobody knows whether the object is as its spec wants it.
func TestSteadyIsReadyOnceALookCameToItsEnd(t *testing.T) {
	type shown struct {
		Conditions []string
		Message    string
	}
	is := func(ready, reconciling, stalled, message string) shown {
		return shown{[]string{"Ready=" + ready, "Reconciling=" + reconciling, "Stalled=" + stalled}, message}
	}
	failed := func(message string) shown {
		return is("False StepFailed", "True StepFailed", "False WithinDeadline", message)
	}
	notDone := func(message string) shown {
		return is("False StepNotDone", "True StepNotDone", "False WithinDeadline", message)
	}
	looks := func(n int) func(*world) {
		return func(w *world) {
			for range n {
				if _, err := w.Reconcile(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	ready := is("True Created", "False Created", "False WithinDeadline", "Created")
	gone := failing(errors.New("etcd is gone"), program.ClassUnavailable)
	cases := map[string]struct {
		why, phase string
		happens    func(w *world)
		want       shown
	}{
		"all is done":            {"the base of the others", "steps: [{action: Look}, {action: Work}], ", (*world).settle, ready},
		"created":                {"nothing was done yet", "steps: [{action: Work}], ", looks(1), notDone("the steps of One are not done yet")},
		"created, nothing to do": {"it is what it is", "", looks(1), ready},
		"in the middle":          {"the ledger was written before the deed", "steps: [{action: Take}], ", looks(3), notDone("the steps of One are not done yet")},
		"a step fails": {"what it should do is not done", "steps: [{action: Look}, {action: Work}], ",
			func(w *world) { w.Give("Work", gone); w.settle() }, failed("etcd is gone (attempt 1, next in 1s)")},
		"it fails again": {"as long as it does", "steps: [{action: Work}], ",
			func(w *world) { w.Give("Work", gone); w.settle(); w.Tick(time.Second); w.settle() }, failed("etcd is gone (attempt 2, next in 2s)")},
		"it fails no more": {"the look came to its end", "steps: [{action: Work}], ",
			func(w *world) { w.Once("Work", gone); w.settle(); w.Tick(time.Second); w.settle() }, ready},
		"it fails later": {"drift that cannot be corrected is no success either", "steps: [{action: Work}], ",
			func(w *world) { w.settle(); w.Give("Work", gone); w.Tick(time.Minute); w.settle() }, failed("etcd is gone (attempt 1, next in 1s)")},
		"it fails for good": {"nothing catches it: a person is needed", "steps: [{action: Work}], ",
			func(w *world) { w.Give("Work", failing(fsm.Terminal("BadSpec", "no such image"), "")); w.settle() },
			is("False StepFailed", "False StepFailed", "True BadSpec", "no such image (attempt 1, next in 5m0s)")},
		"its condition fails": {"whether it has to be done is not known", "steps: [{action: Work, if: 'guards.a'}], ",
			func(w *world) { w.GiveGuard("a", simulate.GuardAnswer{Err: errors.New("no answer")}); w.settle() },
			failed("if guards.a: no answer (attempt 1, next in 1s)")},
		"a precondition fails": {"no step was begun", "require: [{when: 'guards.a', else: Done}], steps: [{action: Work}], ",
			func(w *world) { w.GiveGuard("a", simulate.GuardAnswer{Err: errors.New("no answer")}); w.settle() },
			failed("checking whether guards.a: no answer (attempt 1, next in 1s)")},
		"a step says not yet": {"the same as a failure, but that nothing is wrong", "steps: [{action: Work}], ",
			func(w *world) { w.Give("Work", failing(fsm.Wait("the old one is going"), "")); w.settle() }, notDone("the old one is going")},
		"until": {"what is asked for is not there", "steps: [{action: Look, until: 'result.n > 1', message: '${result.n} of 2'}], ",
			func(w *world) { w.Give("Look", answer(map[string]any{"n": 1})); w.settle() }, notDone("1 of 2")},
		"a pause": {"what comes after it is not done; who wants a slow pace writes a poll", "steps: [{wait: 1h}, {action: Work}], ",
			(*world).settle, notDone("Waiting 1h")},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "test.yaml", []byte(phases("  - {name: One, kind: steady, poll: 1m, "+c.phase+"next: [{to: Done, when: 'guards.b'}], onDelete: {to: Out}}\n"+rest)), testBindings)
			w.GiveGuard("b", simulate.GuardAnswer{}) // a closed exit is waited for by nobody
			c.happens(w)
			got := shown{Message: w.Shown.Message}
			for _, x := range w.Shown.Conditions {
				got.Conditions = append(got.Conditions, fmt.Sprintf("%s=%s %s", x.Type, x.Status, x.Reason))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

// A stepIndex that was stored for one spec must not make a look at the next one Ready
// before all of its steps have seen it.
func TestANewSpecIsLookedAtFromTheFirstStepOn(t *testing.T) {
	for name, c := range map[string]struct {
		why, kind string
		want      []string
	}{
		"steady":      {"its look says Ready of the new spec", "kind: steady, ", []string{"Look", "Work"}},
		"progressing": {"it goes on; its exits can ask for generationChanged", "", []string{"Work"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "test.yaml", []byte(phases("  - {name: One, "+c.kind+"poll: 1m, timeout: {after: 9h, stalled: Late}, steps: [{action: Look}, {action: Work}], next: [{to: Done, when: 'guards.b'}], onDelete: {to: Out}}\n"+rest)), testBindings)
			w.GiveGuard("b", simulate.GuardAnswer{})
			w.Give("Work", failing(fsm.Wait("not yet"), ""))
			w.settle()
			w.Called = nil
			w.set("spec.size", 2)
			w.settle()
			if d := cmp.Diff(c.want, w.Called); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
			w.Called = nil
			w.Tick(time.Minute)
			w.settle()
			if d := cmp.Diff([]string{"Work"}, w.Called); d != "" {
				t.Errorf("and then it goes on where it was (-want +got):\n%s", d)
			}
		})
	}
}
