package fsm_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/prove"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// timed is a phase whose step takes a lock and has a minute; Back releases it.
func timed(step, more string) string {
	return phases("  - {name: One, retry: {base: 40s, factor: 1, max: 2m, jitter: 0}, steps: [{"+step+"}]"+more+", timeout: {after: 24h, stalled: Slow}, next: [{to: Kept}], onDelete: {to: Out}}\n") + afterTimed
}

const (
	toBack     = ", onError: [{is: Terminal, to: Back}]"
	afterTimed = "  - {name: Kept, terminal: success, keeps: [lock], onDelete: {to: Out}}\n" +
		"  - {name: Back, steps: [{undo: held}], next: [{to: Done}], timeout: {after: 1h, stalled: Slow}, onDelete: {to: Out}}\n" + rest
)

// A step fails when its time is up, and not at its next look: whatever it does then, it makes no further call.
func TestAStepFailsInTime(t *testing.T) {
	waiting, broken := failing(fsm.Wait("not yet"), ""), failing(errors.New("no"), program.ClassUnavailable)
	for name, c := range map[string]struct {
		why, step string
		gives     simulate.Answer
		calls     int
		message   string
	}{
		"waits":       {"the sleep until the next poll is cut", "action: Take, poll: 45s, timeout: 1m", waiting, 2, "Take is not done after 1m0s: not yet"},
		"until":       {"as is that of until", "action: Take, until: guards.a, poll: 45s, timeout: 1m", answer(nil), 2, "Take is not done after 1m0s: Waiting in step Take until guards.a"},
		"in a row":    {"three of five are not five", "action: Take, until: guards.b, consecutive: 5, poll: 25s, timeout: 1m", answer(nil), 3, "Take is not done after 1m0s: Waiting in step Take until guards.b: 3 of 5 in a row"},
		"backs off":   {"the backoff ends then, too", "action: Take, timeout: 1m", broken, 2, "Take is not done after 1m0s: no (attempt 2, next in 20s)"},
		"takes long":  {"the call ends first, and says that it is not done", "action: Take, timeout: 1m", simulate.Answer{Result: waiting.Result, Takes: time.Minute}, 1, "Take is not done after 1m0s: not yet"},
		"fails late":  {"a retry would come too late", "action: Take, timeout: 1m", simulate.Answer{Result: broken.Result, Takes: time.Minute}, 1, "Take is not done after 1m0s: no"},
		"if":          {"a condition that nobody can evaluate is not waited for either", "action: Take, if: guards.c, timeout: 1m", answer(nil), 0, "Take is not done after 1m0s: if guards.c: no guard"},
		"for an item": {"the step has the time, not each item", "action: Take, forEach: {in: '[\"a\", \"b\"]', toleratedFailures: 2}, poll: 45s, timeout: 1m", waiting, 2, "Take is not done after 1m0s: Take: 0 of 2 done, 1 under way"},
	} {
		t.Run(name, func(t *testing.T) {
			b := testBindings
			b.Guards = map[string]string{"a": "", "b": "", "c": ""}
			file := timed(c.step, toBack)
			w := worldOf(t, machineOf(t, "test.yaml", []byte(file), b), nil)
			w.GiveGuard("a", simulate.GuardAnswer{})
			w.GiveGuard("c", simulate.GuardAnswer{Err: errors.New("no guard")})
			w.Give("Take", c.gives)
			if err := w.Run(time.Hour, func() bool { return w.Stored.Phase == "Back" }); err != nil {
				t.Fatal(err)
			}
			if got := w.Now().Sub(simulate.Epoch); got != time.Minute {
				t.Errorf("%s: it fails after %s", c.why, got)
			}
			last := w.Stored.History[len(w.Stored.History)-1]
			if n := strings.Count(strings.Join(w.Called, " "), "Take"); last.Reason != "StepTimedOut" || last.Message != c.message || n != c.calls {
				t.Errorf("%s: %s: %q after %d calls; want %q after %d", c.why, last.Reason, last.Message, n, c.message, c.calls)
			}
			held := w.Stored.HeldNames()
			if w.settle(); c.calls > 0 && len(held) == 0 || w.Stored.Phase != "Done" || len(w.InPlace()) > 0 {
				t.Errorf("%s: held %v; in %s with %v in place", c.why, held, w.Stored.Phase, w.InPlace())
			}
		})
	}
}

// What is done is done, be it late.
func TestAStepThatIsDoneLate(t *testing.T) {
	for name, c := range map[string]struct{ why, step string }{
		"a call":    {"it is not called again to fail", "action: Take, timeout: 1m"},
		"all items": {"none is left that could be late", "action: Take, forEach: {in: '[\"a\"]'}, timeout: 1m"},
		"left out":  {"what need not be done cannot be late", "action: Take, if: guards.a, timeout: 1m"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "test.yaml", []byte(timed(c.step, toBack)), testBindings)
			w.Give("Take", simulate.Answer{Takes: 2 * time.Minute})
			if name == "left out" {
				w.GiveGuard("a", simulate.GuardAnswer{Err: errors.New("no guard"), Times: 2}, simulate.GuardAnswer{})
			}
			w.settle()
			w.advance(2 * time.Minute)
			if w.Stored.Phase != "Kept" {
				t.Errorf("%s: in %s: %q", c.why, w.Stored.Phase, w.Shown.Message)
			}
		})
	}
}

// Where nothing catches it, the step is tried again at the pace of a terminal error, and goes on once it is done.
func TestAStepThatTimedOutIsTriedAgain(t *testing.T) {
	file := strings.Replace(timed("action: Take, poll: 10s, timeout: 1m", ""), "{to: Kept}]", "{to: Kept, when: guards.a}, {to: Back}]", 1)
	w := newWorld(t, "test.yaml", []byte(file), testBindings)
	w.Give("Take", failing(fsm.Wait("not yet"), ""))
	type look struct {
		At      time.Duration
		Calls   int
		Message string
	}
	var got []look
	w.settle()
	for range 40 {
		w.Wake() // so each poll has two looks, and the pause after the error none
		w.advance(10 * time.Second)
		if stalled, _ := stalledBy(w); stalled == "StepTimedOut" && (len(got) == 0 || got[len(got)-1].Message != w.Shown.Message) {
			got = append(got, look{w.Now().Sub(simulate.Epoch), strings.Count(strings.Join(w.Called, " "), "Take"), w.Shown.Message})
		}
	}
	want := []look{
		{time.Minute, 12, "Take is not done after 1m0s: not yet (attempt 1, next in 2m0s)"},
		{3 * time.Minute, 13, "Take is not done after 1m0s: not yet (attempt 2, next in 2m0s)"},
		{5 * time.Minute, 14, "Take is not done after 1m0s: not yet (attempt 3, next in 2m0s)"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("looks at which it is told (-want +got):\n%s", d)
	}
	w.Give("Take")
	w.advance(2 * time.Minute)
	if w.Stored.Phase != "Kept" {
		t.Errorf("in %s once it is done: %q", w.Stored.Phase, w.Shown.Message)
	}
}

func stalledBy(w *world) (reason, message string) {
	for _, x := range w.Shown.Conditions {
		if x.Type == fsm.ConditionStalled && x.Status == "True" {
			return x.Reason, x.Message
		}
	}
	return "", ""
}

// What an undo has not released in its time stays held.
func TestAnUndoThatTakesTooLong(t *testing.T) {
	file := strings.Replace(timed("action: Take", ""), "next: [{to: Kept}]", "next: [{to: Back}]", 1)
	file = strings.Replace(file, "steps: [{undo: held}], next: [{to: Done}]", "steps: [{undo: held, timeout: 5m}], onError: [{is: Terminal, to: Kept}], next: [{to: Done}]", 1)
	file = strings.Replace(file, "terminal: success, keeps: [lock]", "kind: waiting, poll: 1m, next: [{to: Back, when: guards.a}]", 1)
	w := newWorld(t, "test.yaml", []byte(file), testBindings)
	w.GiveGuard("a", simulate.GuardAnswer{})
	w.Give("Give", failing(fsm.Wait("not yet"), ""))
	w.settle()
	w.advance(5 * time.Minute)
	if d := cmp.Diff([]string{"lock"}, w.Stored.HeldNames()); d != "" || w.Stored.Phase != "Kept" {
		t.Errorf("in %s; held (-want +got):\n%s", w.Stored.Phase, d)
	}
	if _, diags := prove.Prove(w.Machine, prove.Options{}); diags != nil {
		t.Errorf("the proof finds %v", diags)
	}
}

// The time is counted from the first look that was stored, by the file of now.
func TestTheTimeOfAStepAndEdits(t *testing.T) {
	edit := func(step string) func(w *world) {
		return func(w *world) {
			w.Machine = machineOf(w.t, "test.yaml", []byte(timed(step, toBack)), testBindings)
			w.Wake()
		}
	}
	for name, c := range map[string]struct {
		why     string
		happens func(w *world) // after 30 s
		want    time.Duration
	}{
		"nothing":       {"a minute", func(*world) {}, time.Minute},
		"a restart":     {"the time is stored", func(w *world) { w.Crash("Requeue", false, 10*time.Second); w.Wake() }, time.Minute},
		"a longer one":  {"it counts from the entry", edit("action: Take, poll: 45s, timeout: 2m"), 2 * time.Minute},
		"a shorter one": {"the same", edit("action: Take, poll: 45s, timeout: 20s"), 30 * time.Second},
		"another step":  {"it begins then", edit("action: Take, poll: 45s, timeout: 1m, until: guards.a"), 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "test.yaml", []byte(timed("action: Take, poll: 45s, timeout: 1m", toBack)), testBindings)
			w.Give("Take", failing(fsm.Wait("not yet"), ""))
			w.advance(30 * time.Second)
			c.happens(w)
			if err := w.Run(time.Hour, func() bool { return w.Stored.Phase == "Back" }); err != nil {
				t.Fatal(err)
			}
			if got := w.Now().Sub(simulate.Epoch); got != c.want {
				t.Errorf("%s: after %s, want %s", c.why, got, c.want)
			}
		})
	}
}

// A proof lets the time of a step pass, in the middle of a list, too: what was taken by then is held on the way out.
func TestTheTimeOfAStepInAProof(t *testing.T) {
	file := timed("action: Take, forEach: {in: '[\"a\", \"b\"]', toleratedFailures: 1}, timeout: 1m", ", onError: [{is: Terminal, to: Back}]")
	for name, c := range map[string]struct {
		why, file string
		broken    string
	}{
		"released":     {"all is released", file, ""},
		"of one alone": {"a timeout comes while one of two is held, although one may fail", strings.Replace(file, "{undo: held}], next", "{undo: held, if: 'held.size() != 2'}], next", 1), "PG201: invariant released"},
	} {
		t.Run(name, func(t *testing.T) {
			def, _ := program.Load("test.yaml", []byte(c.file))
			m := fsm.Provable(def, testBindings)
			if m == nil {
				t.Fatal("the file is refused")
			}
			report, diags := prove.Prove(m, prove.Options{})
			var text strings.Builder
			for _, d := range diags {
				text.WriteString(d.String())
			}
			if (c.broken == "") != (len(diags) == 0) || !strings.Contains(text.String(), c.broken) || report.EdgesNotTaken != nil {
				t.Errorf("%s: found %q, want %q; not gone by: %v", c.why, text.String(), c.broken, report.EdgesNotTaken)
			}
		})
	}
}
