package fsm_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// never is longer than these tests look.
const never = 3 * time.Hour

// What is stored was read off the clock of a manager that may be wrong by an hour; the next one has another clock. The
// table is that of docs/explanation/ledger.md.
func TestAJumpOfTheClock(t *testing.T) {
	calls := func(name string) func(*world) bool {
		return func(w *world) bool { return strings.Contains(strings.Join(w.Called, " "), name) }
	}
	in := func(phase string) func(*world) bool { return func(w *world) bool { return w.Stored.Phase == phase } }
	failed := func(w *world) { w.Give("Work", failing(errors.New("no"), program.ClassUnavailable)) }
	for name, c := range map[string]struct {
		why, phase string
		given      func(*world)
		happens    func(*world) bool
		// within is when it happens without a jump; behind, where the clock is an hour behind what is stored; ahead, where
		// it is an hour ahead.
		within, behind, ahead time.Duration
	}{
		"notBefore": {
			why: "an error waits for no more than the longest backoff", phase: "retry: {base: 2m, max: 4m, jitter: 0}, steps: [{action: Work}]",
			given: failed, happens: calls("Work"), within: 2 * time.Minute, behind: 4 * time.Minute, ahead: 0,
		},
		"notBefore of a short backoff": {
			why: "a server may have asked for a minute, which is not known any more", phase: "retry: {base: 1s, max: 2s, jitter: 0}, steps: [{action: Work}]",
			given: failed, happens: calls("Work"), within: time.Second, behind: time.Minute, ahead: 0,
		},
		"notBefore in a release": {
			why: "nothing else would cut it short", phase: "poll: 10m, timeout: {after: 24h, stalled: Slow}, steps: [{action: Take}]",
			given: func(w *world) {
				w.settle()
				w.Give("Give", failing(errors.New("no"), program.ClassUnavailable))
				w.Delete()
			}, happens: calls("Give"), within: time.Second, behind: 6 * time.Minute, ahead: 0,
		},
		"poll": {
			why: "what is outside is called at its poll", phase: "steps: [{action: Look, poll: 3m}]",
			given: func(w *world) { w.Give("Look", failing(fsm.Wait("not yet"), "")) }, happens: calls("Look"), within: 3 * time.Minute, behind: 3 * time.Minute, ahead: 3 * time.Minute,
		},
		"enteredAt, deadline": {
			why: "a phase lasts no longer than its timeout; one that seems old ends at once", phase: "poll: 1m, timeout: {after: 30m, to: Done}",
			happens: in("Done"), within: 30 * time.Minute, behind: 30 * time.Minute, ahead: 0,
		},
		"enteredAt, phase.age": {
			why: "a guard about the age sees none that is negative", phase: "poll: 1m, next: [{to: Done, when: 'phase.age >= duration(\"30m\")'}]",
			happens: in("Done"), within: 30 * time.Minute, behind: 30 * time.Minute, ahead: 0,
		},
		"stepEnteredAt": {
			why: "a pause lasts no longer than the file says", phase: "steps: [{wait: 10m}], next: [{to: Done}]",
			happens: in("Done"), within: 10 * time.Minute, behind: 10 * time.Minute, ahead: 0,
		},
	} {
		for jump, want := range map[time.Duration]time.Duration{0: c.within, -time.Hour: c.behind, time.Hour: c.ahead} {
			t.Run(name+" "+jump.String(), func(t *testing.T) {
				one := c.phase
				if !strings.Contains(one, "next:") {
					one += ", next: [{to: Done, when: 'guards.b'}]"
				}
				if !strings.Contains(one, "timeout:") {
					one += ", timeout: {after: 24h, to: Done}"
				}
				file := phases("  - {name: One, " + one + ", onDelete: {to: Out}}\n" + rest)
				w := newWorld(t, "test.yaml", []byte(file), external())
				w.GiveGuard("b", simulate.GuardAnswer{})
				if c.given != nil {
					c.given(w)
				}
				w.settle()
				w.Crash("Requeue", true, 0) // the next process has another clock, and remembers nothing
				if _, err := w.Reconcile(); err == nil {
					t.Fatal("no crash")
				}
				w.Called = nil
				w.Tick(jump)
				after := w.Now()
				if err := w.Run(never, func() bool { return c.happens(w) }); err != nil {
					t.Fatal(err)
				}
				if got := w.Now().Sub(after); got != want || !c.happens(w) {
					t.Errorf("%s: after %s, want %s", c.why, got, want)
				}
			})
		}
	}
}
