package fsm_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// waitingFile waits in a phase of a name for an action, as RunJob waits for its Job.
func waitingFile(upgrade, phase string) string {
	return header + `spec:
  for: {apiVersion: v1, kind: ConfigMap}
  initial: ` + phase + "\n" + upgrade + `  phases:
  - name: ` + phase + `
    poll: 5s
    steps: [{action: Look}, {action: Work}]
    next: [{to: Done}]
    timeout: {after: 1h, stalled: Slow}
    onDelete: {immediate: true}
  - name: Done
    terminal: success
    onDelete: {immediate: true}
`
}

// visitsAtWork are those in whose name Work is called, which never ends.
func (w *world) visitsAtWork() *[]string {
	visits := &[]string{}
	w.Respond = func(action string, _ fsm.Decision) (simulate.Answer, bool) {
		if action == "Work" {
			*visits = append(*visits, w.Stored.Visit())
		}
		return simulate.Answer{Result: fsm.Result{Err: fsm.Wait("it runs")}}, action == "Work"
	}
	return visits
}

// What a step makes has a name of the visit, so that it is found again. A phase that was
// renamed is the same visit; a phase that is entered again is another one.
func TestVisitGoesOnUnderAnotherName(t *testing.T) {
	renamed := waitingFile("  upgrade: {phaseMap: {One: First}}\n", "First")
	again := waitingFile("  upgrade: {phaseMap: {One: Primary, First: Primary}}\n", "Primary")
	for name, c := range map[string]struct {
		why   string
		files []string // one after the other
		as    string
	}{
		"comment":          {"no rename at all", []string{waitingFile("", "One") + "# a comment\n"}, ""},
		"renamed":          {"the visit keeps the name under which it began", []string{renamed}, "One"},
		"renamed twice":    {"the first name counts", []string{renamed, again}, "One"},
		"renamed and back": {"as if nothing had happened", []string{renamed, waitingFile("  upgrade: {phaseMap: {First: One}}\n", "One")}, ""},
		"lost and renamed": {"a file in between does not know the phase", []string{waitingFile("", "First"), renamed}, "One"},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, machineOf(t, "test.yaml", []byte(waitingFile("", "One")), testBindings), nil)
			visits := w.visitsAtWork()
			w.settle()
			began, deadline := w.Stored.EnteredAt, w.Stored.Deadline
			for _, file := range c.files {
				w.advance(time.Minute)
				w.Machine = machineOf(t, "test.yaml", []byte(file), testBindings)
				w.settle()
			}
			for _, visit := range *visits {
				if visit != (*visits)[0] {
					t.Errorf("%s: visit %q, and then %q", c.why, (*visits)[0], visit)
				}
			}
			if d := cmp.Diff([]any{began, deadline, c.as}, []any{w.Stored.EnteredAt, w.Stored.Deadline, w.Stored.EnteredAs}); d != "" {
				t.Errorf("%s: (-want +got):\n%s", c.why, d)
			}
		})
	}
}

// A visit is over when its phase is left: also one of a phase that was renamed.
func TestVisitsAreTold(t *testing.T) {
	w := worldOf(t, machineOf(t, "test.yaml", []byte(waitingFile("", "One")), testBindings), nil)
	w.Give("Work", simulate.Answer{Result: fsm.Result{Err: fsm.Wait("it runs")}, Times: 2}, simulate.Answer{})
	w.settle()
	first := w.Stored.Visit()
	w.Machine = machineOf(t, "test.yaml", []byte(strings.Replace(waitingFile("  upgrade: {phaseMap: {One: First}}\n", "First"),
		"    terminal: success\n", "    poll: 1h\n    timeout: {after: 9h, stalled: Slow}\n    next: [{to: First, when: 'self.spec.again == true'}]\n", 1)), testBindings)
	w.advance(time.Minute)
	second := w.Stored.Visit()
	w.set("spec.again", true)
	w.Give("Work", simulate.Answer{Result: fsm.Result{Err: fsm.Wait("it runs")}})
	w.settle()
	if third := w.Stored.Visit(); w.Stored.Phase != "First" || w.Stored.EnteredAs != "" || first == second || second == third || first == third {
		t.Errorf("phase %s, entered as %q, visits %q, %q and %q", w.Stored.Phase, w.Stored.EnteredAs, first, second, third)
	}
}

// A clock that was ahead changes when the phase was entered, and not which visit it is: what was made in its name would be
// made a second time.
func TestAVisitGoesOnWithAnotherClock(t *testing.T) {
	w := worldOf(t, machineOf(t, "test.yaml", []byte(waitingFile("", "One")), testBindings), nil)
	visits := w.visitsAtWork()
	w.settle()
	for range 3 { // each time another manager, whose clock is behind that of the one before
		w.Tick(-time.Hour)
		if _, err := w.Reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if len(*visits) < 4 || w.Stored.EnteredAt.After(w.Now()) {
		t.Errorf("%d calls, entered at %s: that is later than now, %s", len(*visits), w.Stored.EnteredAt, w.Now())
	}
	for _, visit := range *visits {
		if visit != (*visits)[0] {
			t.Fatalf("visit %q, and then %q", (*visits)[0], visit)
		}
	}
	w.Give("Work", simulate.Answer{})
	w.Respond = nil
	w.settle()
	if w.Stored.Phase != "Done" || w.Stored.Visit() == (*visits)[0] {
		t.Errorf("phase %s is the visit of the one before", w.Stored.Phase)
	}
}
