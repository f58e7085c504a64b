package fsm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/prove"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

const fiveTimes = "    timeout: {after: 24h, to: Done}\n    retry: {base: 2s, factor: 1, jitter: 0}\n" +
	"    steps: [{name: Measure, action: Look, until: 'result.n > 1', consecutive: 5, poll: 10s}]\n"

// good answers by which the step is done.
func good() simulate.Answer { return answer(map[string]any{"n": 2}) }

// Five good answers in a row, ten seconds apart, end the step after 40 s. What comes in between must not end it earlier.
func TestGoodAnswersInARow(t *testing.T) {
	at := func(second int, happens func(w *world)) func(*world, int) {
		return func(w *world, tenth int) {
			if tenth == 10*second {
				happens(w)
			}
		}
	}
	edit := func(from, to string) func(*world, int) {
		return at(15, func(w *world) {
			w.Machine = fileOf(w.t, strings.Replace(fiveTimes, from, to, 1))
			w.Wake() // as a reload does
		})
	}
	bad := func(a simulate.Answer) func(w *world) { return func(w *world) { w.Once("Look", a) } }
	for name, c := range map[string]struct {
		why     string
		happens func(w *world, tenth int) // ten times a second
		want    time.Duration
		message string // after 25 s
	}{
		"nothing":               {"the first counts at once", func(*world, int) {}, 40 * time.Second, "Waiting in step Measure until result.n > 1: 3 of 5 in a row"},
		"wake-ups":              {"more looks are no longer time", func(w *world, _ int) { w.Wake() }, 40 * time.Second, "Waiting in step Measure until result.n > 1: 3 of 5 in a row"},
		"restarts":              {"the count is stored with its time", func(w *world, i int) { w.Crash("Requeue", i%2 == 0, 0); w.Wake() }, 40 * time.Second, "Waiting in step Measure until result.n > 1: 3 of 5 in a row"},
		"edits of the spec":     {"they do not begin the step anew", func(w *world, i int) { w.set("spec.size", i) }, 40 * time.Second, "Waiting in step Measure until result.n > 1: 3 of 5 in a row"},
		"a bad answer":          {"the row is broken: five more", at(22, func(w *world) { bad(answer(map[string]any{"n": 1}))(w); w.Wake() }), 72 * time.Second, "Waiting in step Measure until result.n > 1"},
		"the action waits":      {"that is no good answer", at(19, bad(failing(fsm.Wait("not yet"), ""))), 70 * time.Second, "not yet"},
		"an error":              {"nor is an error", at(19, bad(failing(errors.New("no"), program.ClassUnavailable))), 62 * time.Second, "Waiting in step Measure until result.n > 1: 1 of 5 in a row"},
		"the file asks for two": {"it is compared with what the file says now", edit("consecutive: 5", "consecutive: 2"), 20 * time.Second, ""},
		"the file asks anew":    {"another question has other answers", edit("n > 1", "n >= 2"), 55 * time.Second, "Waiting in step Measure until result.n >= 2: 2 of 5 in a row"},
		"a longer poll":         {"what counts is apart by the poll of now", edit("poll: 10s", "poll: 20s"), 70 * time.Second, "Waiting in step Measure until result.n > 1: 2 of 5 in a row"},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, fileOf(t, fiveTimes), nil)
			w.Give("Look", good())
			w.settle()
			for i := 0; w.Stored.Phase == "One" && i < 2000; i++ {
				c.happens(w, i)
				w.advance(100 * time.Millisecond)
				if i == 250 && w.Shown.Message != c.message {
					t.Errorf("%s: the message is %q, want %q", c.why, w.Shown.Message, c.message)
				}
			}
			if got := w.Now().Sub(simulate.Epoch).Round(time.Second); got != c.want || w.Stored.Streak != nil {
				t.Errorf("%s: done after %s, want %s; counted then %v", c.why, got, c.want, w.Stored.Streak)
			}
		})
	}
}

func fileOf(t testing.TB, phase string) *fsm.Machine {
	return machineOf(t, "test.yaml", []byte(one(phase+toDone)), testBindings)
}

// A crash at any moment, or a write that another one preceded, costs a count at most, and never adds one.
func TestCrashesNeverCount(t *testing.T) {
	for at := 0; ; at++ {
		w := worldOf(t, fileOf(t, fiveTimes), nil)
		w.Give("Look", good())
		moments := 0
		w.Interrupt = func(fsm.Decision, bool) bool { moments++; return moments-1 == at }
		if err := w.Run(time.Hour, func() bool { return w.Stored.Phase == "Done" }); err != nil {
			t.Fatal(err)
		}
		if moments <= at {
			if at < 15 {
				t.Errorf("only %d moments to crash at", at)
			}
			break
		}
		if got := w.Now().Sub(simulate.Epoch); w.Stored.Phase != "Done" || got < 40*time.Second || got > 51*time.Second {
			t.Errorf("crash at moment %d: phase %s after %s", at, w.Stored.Phase, got)
		}
	}
}

// What is outside the cluster is asked as often as its poll says, and each answer counts.
func TestAnswersFromOutsideInARow(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(one(fiveTimes+toDone)), external())
	var asked []time.Duration
	w.Respond = func(action string, _ fsm.Decision) (simulate.Answer, bool) {
		if action == "Look" {
			asked = append(asked, w.Now().Sub(simulate.Epoch))
		}
		return good(), action == "Look"
	}
	w.settle()
	for range 600 {
		w.Wake()
		w.advance(100 * time.Millisecond)
	}
	const s = time.Second
	if d := cmp.Diff([]time.Duration{0, 10 * s, 20 * s, 30 * s, 40 * s}, asked); d != "" || w.Stored.Phase != "Done" {
		t.Errorf("in %s; asked at (-want +got):\n%s", w.Stored.Phase, d)
	}
}

// A proof knows done and not yet: how often in a row is a way of not yet, and costs no states.
func TestInARowCostsAProofNothing(t *testing.T) {
	states := func(count string) string {
		file := one("    timeout: {after: 24h, to: Done}\n    steps: [{action: Take, until: 'guards.a', poll: 10s"+count+"}]\n    next: [{to: Back}]\n") +
			"  - {name: Back, steps: [{undo: held}], next: [{to: Done}], timeout: {after: 1h, stalled: Slow}, onDelete: {to: Out}}\n"
		file = strings.Replace(file, "timeout: {after: 24h, to: Done}", "timeout: {after: 24h, to: Back}", 1)
		report, diags := prove.Prove(machineOf(t, "test.yaml", []byte(file), testBindings), prove.Options{})
		return fmt.Sprint(report.States, report.Transitions, report.EdgesNotTaken, diags)
	}
	if once, often := states(""), states(", consecutive: 100"); once != often {
		t.Errorf("proved %s, and of 100 in a row %s", once, often)
	}
}
