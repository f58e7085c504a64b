package fsm_test

import (
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

const grace = "    retry: {base: 1h, max: 1h, jitter: 0}\n    timeout: {after: 2000h, stalled: Slow}\n    steps: [{wait: '${duration(self.spec.grace)}', max: 720h}]\n"

// A wait is as long as the object says, counted from when the step began; what is no wait is an error that a person can correct.
func TestHowLongAnObjectWaits(t *testing.T) {
	for name, c := range map[string]struct {
		why, grace string
		message    string
		// after 10 min the object asks for this; the step is done then, from its beginning
		then string
		want time.Duration
	}{
		"as it says":   {"", "90m", "Waiting 1h30m0s", "90m", 90 * time.Minute},
		"shorter":      {"an edit counts at once", "90m", "Waiting 1h30m0s", "30m", 30 * time.Minute},
		"over already": {"the same", "90m", "Waiting 1h30m0s", "5m", 10 * time.Minute},
		"longer":       {"the same", "15m", "Waiting 15m0s", "720h", 720 * time.Hour},
		"negative": {"nobody waits backwards; the backoff ends with the edit", "-5m",
			"wait duration(self.spec.grace): it is -5m0s: correct what it reads, so that it is from 0s to 720h (max) (attempt 1, next in 1h0m0s)", "20m", 20 * time.Minute},
		"too long": {"the file bounds it", "721h",
			"wait duration(self.spec.grace): it is 721h0m0s: correct what it reads, so that it is from 0s to 720h (max) (attempt 1, next in 1h0m0s)", "20m", 20 * time.Minute},
		"no duration": {"it says what is wrong", "soon", "wait duration(self.spec.grace): type conversion error from 'string' to 'google.protobuf.Duration': correct what it reads, so that it is from 0s to 720h (max) (attempt 1, next in 1h0m0s)", "20m", 20 * time.Minute},
		"not there":   {"the same", "", "wait duration(self.spec.grace): no such key: grace: correct what it reads, so that it is from 0s to 720h (max) (attempt 1, next in 1h0m0s)", "20m", 20 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, fileOf(t, grace), nil)
			if c.grace != "" {
				w.set("spec.grace", c.grace)
			}
			w.settle()
			if w.Shown.Message != c.message {
				t.Errorf("%s: the message is %q, want %q", c.why, w.Shown.Message, c.message)
			}
			w.advance(10 * time.Minute)
			w.set("spec.grace", c.then)
			if err := w.Run(2000*time.Hour, func() bool { return w.Stored.Phase == "Done" }); err != nil {
				t.Fatal(err)
			}
			if got := w.Now().Sub(simulate.Epoch); got != c.want || w.Stored.Attempts != 0 {
				t.Errorf("%s: done after %s, want %s; attempts %d", c.why, got, c.want, w.Stored.Attempts)
			}
		})
	}
}

// A deadline comes, whatever an object says, and its state says when: from the write by which the phase is entered.
func TestWhenADeadlineOfAnObjectComes(t *testing.T) {
	file := strings.Replace(phases("  - {name: One, next: [{to: Two, when: guards.b}], timeout: {after: 99h, to: Done}, poll: 1m, onDelete: {to: Out}}\n"+
		"  - {name: Two, poll: 1h, timeout: {after: '${duration(state.limit)}', max: 24h, to: Done}, next: [{to: Done, when: guards.a}], onDelete: {to: Out}}\n"+rest),
		"  phases:", "  state: {limit: {type: string, initial: none}}\n  phases:", 1)
	file = strings.Replace(file, "{to: Two, when: guards.b}", "{to: Two, when: guards.b, set: {limit: self.spec.limit}}", 1)
	for name, c := range map[string]struct {
		why, limit string
		after      time.Duration
	}{
		"as it says":  {"", "90m", 90 * time.Minute},
		"longer":      {"the file bounds it", "25h", 24 * time.Hour},
		"zero":        {"0 may be meant as none, and there is one", "0s", 24 * time.Hour},
		"negative":    {"it is no duration to wait for", "-1h", 24 * time.Hour},
		"no duration": {"an expression that fails keeps no deadline from coming", "soon", 24 * time.Hour},
		"nanoseconds": {"a deadline is as exact as a state", "1h30m0.000000001s", 90 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, machineOf(t, "test.yaml", []byte(file), testBindings), map[string]any{"limit": c.limit})
			w.GiveGuard("a", simulate.GuardAnswer{})
			var entered, deadline time.Duration
			w.Tell = func(e simulate.Event) {
				if strings.HasPrefix(e.Text, "commit One → Two") {
					entered, deadline = w.Now().Sub(simulate.Epoch), w.Stored.Deadline.Sub(simulate.Epoch)
				}
			}
			if err := w.Run(100*time.Hour, func() bool { return w.Stored.Phase == "Done" }); err != nil {
				t.Fatal(err)
			}
			if got := w.Now().Sub(simulate.Epoch).Truncate(time.Microsecond); got != entered+c.after || deadline != entered+c.after {
				t.Errorf("%s: entered at %s, stored deadline %s, done at %s; want %s after the entry", c.why, entered, deadline, got, c.after)
			}
			want := fmt.Sprintf("Two lasted longer than %s: ", c.after)
			if last := w.Stored.History[len(w.Stored.History)-1]; last.Reason != "Timeout" || !strings.HasPrefix(last.Message, want) {
				t.Errorf("%s: %s: %q, want %q", c.why, last.Reason, last.Message, want)
			}
		})
	}
}

// An edit of the object counts at the next look, as a changed file does.
func TestAnEditMovesDeadlines(t *testing.T) {
	for name, c := range map[string]struct{ why, phase, reason string }{
		"of the phase": {"it counts from the entry", "poll: 1m, timeout: {after: '${duration(self.spec.limit)}', max: 24h, to: Back}", "Timeout"},
		"of the step":  {"it counts from when the step began", "steps: [{action: Take, poll: 5m, timeout: '${duration(self.spec.limit)}', max: 24h}], onError: [{is: Terminal, to: Back}], poll: 5m, timeout: {after: 99h, stalled: Slow}", "StepTimedOut"},
	} {
		t.Run(name, func(t *testing.T) {
			file := phases("  - {name: One, "+c.phase+", next: [{to: Kept, when: guards.a}], onDelete: {to: Out}}\n") + afterTimed
			for then, want := range map[string]time.Duration{"2h": 2 * time.Hour, "20m": 20 * time.Minute, "5m": 10 * time.Minute, "soon": 24 * time.Hour} {
				w := worldOf(t, machineOf(t, "test.yaml", []byte(file), testBindings), map[string]any{"limit": "1h"})
				w.GiveGuard("a", simulate.GuardAnswer{})
				w.Give("Take", failing(fsm.Wait("not yet"), ""))
				w.advance(10 * time.Minute)
				w.set("spec.limit", then)
				if err := w.Run(100*time.Hour, func() bool { return w.Stored.Phase == "Back" }); err != nil {
					t.Fatal(err)
				}
				last := w.Stored.History[len(w.Stored.History)-1]
				if got := w.Now().Sub(simulate.Epoch); got != want || last.Reason != c.reason {
					t.Errorf("%s: with %s it ends after %s by %s, want %s by %s", c.why, then, got, last.Reason, want, c.reason)
				}
			}
		})
	}
}

// A proof tries that nobody can say how long to wait: where the object is gone, for example.
func TestDurationsInAProof(t *testing.T) {
	const caught = "  - {name: One, steps: [{action: Take}, {wait: '${duration(self.spec.grace)}', max: 1h}], onError: [{is: Invalid, to: Back}], next: [{to: Kept}], timeout: {after: 24h, stalled: Slow}, onDelete: {to: Out}}\n"
	file := phases(caught) + afterTimed
	leaving := func(step string) string {
		return strings.Replace(file, "deletion: true, steps: [", "deletion: true, steps: ["+step+", ", 1)
	}
	for name, c := range map[string]struct {
		why, file string
		want      []string
	}{
		"caught":                    {"the way of its error is gone by", file, nil},
		"a deletion waits for self": {"without an object nobody knows how long", leaving("{wait: '${duration(self.spec.grace)}', max: 1h}"), []string{"releasedWhenGone"}},
		"it waits for the file":     {"that is there", leaving("{wait: 1h}"), nil},
		"it has a deadline of self": {"its bound is there", strings.Replace(file, "{after: 1h, stalled: Slow}", "{after: '${duration(self.spec.grace)}', max: 1h, stalled: Slow}", 1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			def, diags := program.Load("test.yaml", []byte(c.file))
			if def == nil {
				t.Fatal(diags)
			}
			m, diags := fsm.Bind(def, testBindings)
			if m == nil {
				t.Fatal(diags)
			}
			report, diags := prove.Prove(m, prove.Options{})
			var broken []string
			for _, d := range diags {
				broken = append(broken, strings.TrimSuffix(strings.Fields(d.Message)[1], ":"))
			}
			if d := cmp.Diff(c.want, broken); d != "" || report.EdgesNotTaken != nil {
				t.Errorf("%s: not gone by %v; broken (-want +got):\n%s", c.why, report.EdgesNotTaken, d)
			}
		})
	}
}
