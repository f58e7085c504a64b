package fsm_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/prove"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// An error of a class that is not retried ends the step as its last attempt would.
func TestErrorsThatAreNotRetried(t *testing.T) {
	refused := failing(errors.New("no right"), program.ClassForbidden)
	for name, c := range map[string]struct {
		why, defaults, phase, step string
		gives                      simulate.Answer
		calls                      int
		phaseThen, reason          string
	}{
		"the class":       {"it is caught at once", "", "nonRetryable: [Forbidden], attempts: 5", toForbidden, refused, 1, "Back", "ForbiddenError"},
		"another class":   {"it is retried", "", "nonRetryable: [Invalid], attempts: 5", toForbidden, refused, 5, "Back", "ForbiddenError"},
		"by any":          {"* catches the last attempt", "", "nonRetryable: [Forbidden]", ", onError: [{is: '*', to: Back}]", refused, 1, "Back", "ForbiddenError"},
		"to":              {"it leads where the last attempt does, also without a number of them", "", "nonRetryable: [Forbidden], to: Back", "", refused, 1, "Back", "RetriesExhausted"},
		"of the defaults": {"a retry that says nothing else has them", "  defaults: {retry: {nonRetryable: [Forbidden]}}\n", "base: 1s, attempts: 5", toForbidden, refused, 1, "Back", "ForbiddenError"},
		"none":            {"an empty list is none", "  defaults: {retry: {nonRetryable: [Forbidden]}}\n", "nonRetryable: [], attempts: 5", toForbidden, refused, 5, "Back", "ForbiddenError"},
		"stalled":         {"nothing catches it: it is told, and tried again after the longest pause", "", "nonRetryable: [Forbidden], max: 30m, jitter: 0", "", refused, 3, "One", "RetriesExhausted"},
		"a condition":     {"an error of the engine has a class, too", "", "nonRetryable: [Unavailable], attempts: 5", ", onError: [{is: Unavailable, to: Back}]", failing(errors.New("no"), program.ClassUnavailable), 1, "Back", "UnavailableError"},
	} {
		t.Run(name, func(t *testing.T) {
			more := ", onError: [{is: Conflict, to: Back}]"
			if c.step != "" {
				more = c.step
			}
			file := strings.Replace(phases("  - {name: One, retry: {"+c.phase+"}, steps: [{action: Take}]"+more+", timeout: {after: 24h, stalled: Slow}, next: [{to: Kept}], onDelete: {to: Out}}\n")+afterTimed, "  phases:", c.defaults+"  phases:", 1)
			w := newWorld(t, "test.yaml", []byte(file), testBindings)
			w.Give("Take", c.gives)
			_ = w.Run(70*time.Minute, func() bool { return w.Stored.Phase == "Back" })
			reason, _ := stalledBy(w)
			if w.Stored.Phase == "Back" {
				reason = w.Stored.History[len(w.Stored.History)-1].Reason
			}
			n := strings.Count(strings.Join(w.Called, " "), "Take")
			if w.Stored.Phase != c.phaseThen || reason != c.reason || n != c.calls {
				t.Errorf("%s: in %s by %s after %d calls; want %s by %s after %d", c.why, w.Stored.Phase, reason, n, c.phaseThen, c.reason, c.calls)
			}
			report, diags := prove.Prove(w.Machine, prove.Options{})
			if len(diags) > 0 || slices.ContainsFunc(report.EdgesNotTaken, func(e string) bool { return e == "RetriesExhausted" }) {
				t.Errorf("%s: the proof finds %v, and does not go by %v", c.why, diags, report.EdgesNotTaken)
			}
		})
	}
}

const toForbidden = ", onError: [{is: Forbidden, to: Back}]"

// In a forEach the item has failed for good.
func TestItemsThatAreNotRetried(t *testing.T) {
	a := fleetOf(t, strings.Replace(fleet, "poll: 5s}", "poll: 5s, retry: {nonRetryable: [Forbidden]}}", 1), "a", "b", "c")
	looks := a.Respond
	a.Respond = func(action string, cmd fsm.Decision) (simulate.Answer, bool) {
		if cmd.Action == "Look" && cmd.Key == "b" {
			return failing(errors.New("no right"), program.ClassForbidden), true
		}
		return looks(action, cmd)
	}
	_ = a.Run(time.Hour, func() bool { return a.Stored.Phase == "Done" })
	if d := cmp.Diff(map[string]string{"a": "new", "b": "old-b", "c": "new"}, a.images); d != "" || a.Stored.Phase != "Done" {
		t.Errorf("in %s; images (-want +got):\n%s", a.Stored.Phase, d)
	}
}
