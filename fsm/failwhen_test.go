package fsm_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/verify/prove"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

func TestWhatFailsByItsAnswer(t *testing.T) {
	const step = "    timeout: {after: 24h, to: Done}\n    retry: {base: 2s, factor: 1, max: 1m, jitter: 0}\n" +
		"    steps: [{name: Ask, action: Look, failWhen: 'result.n == 404 || result.list[0] == \"gone\"', until: 'result.n == 200', poll: 10s}]\n"
	const caught = step + "    onError: [{is: Terminal, to: Failed}]\n"
	type end struct {
		Phase, Step, Stalled, Message string
		Attempts                      int32
	}
	for name, c := range map[string]struct {
		why, file string
		answer    map[string]any
		want      end
	}{
		"not true": {"until decides", caught, map[string]any{"n": 500, "list": []any{"x"}}, end{Phase: "One", Step: "Ask", Message: "Waiting in step Ask until result.n == 200"}},
		"caught":   {"it leads on as any terminal error", caught, map[string]any{"n": 404, "list": []any{"x"}}, end{Phase: "Failed", Message: "CheckFailed: Ask: failWhen result.n == 404; seen: result.n = 404"}},
		"stalled": {"a person is told what was seen", step, map[string]any{"n": 404, "list": []any{"x"}},
			end{Phase: "One", Step: "Ask", Stalled: "CheckFailed", Message: "Ask: failWhen result.n == 404; seen: result.n = 404 (attempt 1, next in 1m0s)", Attempts: 1}},
		"before until": {"an answer can be both", strings.Replace(caught, "n == 200'", "n > 200'", 1), map[string]any{"n": 404, "list": []any{"x"}}, end{Phase: "Failed", Message: "CheckFailed: Ask: failWhen result.n == 404; seen: result.n = 404"}},
		"not evaluated": {"what nobody knows is no success: it is asked again", caught, map[string]any{"n": 200, "list": []any{}},
			end{Phase: "One", Step: "Ask", Message: `failWhen result.n == 404 || result.list[0] == "gone": index out of bounds: 0 (attempt 1, next in 2s)`, Attempts: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			file := one(c.file + toDone)
			if strings.Contains(file, "to: Failed") {
				file += "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n"
			}
			w := newWorld(t, "test.yaml", []byte(file), testBindings)
			w.Give("Look", answer(c.answer))
			w.settle()
			got := end{w.Stored.Phase, w.Stored.Step, "", w.Shown.Message, w.Stored.Attempts}
			for _, x := range w.Shown.Conditions {
				if x.Type == fsm.ConditionStalled && x.Status == "True" && w.Stored.Phase == "One" {
					got.Stalled = x.Reason
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
			if w.Stored.Phase == "Failed" {
				return
			}
			w.Give("Look", answer(map[string]any{"n": 200, "list": []any{"x"}}))
			w.advance(time.Minute)
			if w.Stored.Phase != "Done" {
				t.Errorf("%s: it is in %s once the answer is good", c.why, w.Stored.Phase)
			}
		})
	}
}

// What the step has acquired is held until the way out releases it, whatever crashes.
func TestWhatFailsIsStillHeld(t *testing.T) {
	file := phases("  - {name: One, steps: [{action: Take, failWhen: guards.a}], onError: [{is: Terminal, to: Back}], next: [{to: Kept}], timeout: {after: 1h, to: Back}, onDelete: {to: Out}}\n" +
		"  - {name: Back, steps: [{undo: held}], next: [{to: Done}], timeout: {after: 1h, stalled: Slow}, onDelete: {to: Out}}\n" +
		"  - {name: Kept, terminal: success, keeps: [lock], onDelete: {to: Out}}\n" + rest)
	m := machineOf(t, "test.yaml", []byte(file), testBindings)
	crashes, changed := simulate.CrashEverywhere(func() *simulate.Fake {
		return fsmtest.World(t, m, map[string]any{"metadata": map[string]any{"name": "x"}})
	}, func(w *simulate.Fake) {
		if err := w.RunUntilIdle(); err != nil {
			t.Fatal(err)
		}
		if w.Stored.Phase != "Done" || len(w.InPlace()) > 0 {
			t.Errorf("in %s, in place %v", w.Stored.Phase, w.InPlace())
		}
	})
	if crashes < 10 || changed != nil {
		t.Errorf("%d crashes, of which these change the end: %v", crashes, changed)
	}
	if report, diags := prove.Prove(m, prove.Options{}); diags != nil || report.EdgesNotTaken != nil {
		t.Errorf("the proof finds %v, and does not go by %v", diags, report.EdgesNotTaken)
	}
}

// In a forEach the item fails, as by an error of its action.
func TestItemsFailByTheirAnswers(t *testing.T) {
	a := fleetOf(t, strings.Replace(fleet, "until: result.ready, poll: 5s", `failWhen: '!result.ready && item.name == "b"', until: result.ready, poll: 5s`, 1), "a", "b", "c")
	_ = a.Run(time.Hour, func() bool { return a.Stored.Phase == "Done" })
	if d := cmp.Diff(map[string]string{"a": "new", "b": "old-b", "c": "new"}, a.images); d != "" || a.Stored.Phase != "Done" {
		t.Errorf("in %s; images (-want +got):\n%s", a.Stored.Phase, d)
	}
}

// What a step does by its answer is part of what it does: with another condition the phase begins again.
func TestFailWhenIsWhatAStepDoes(t *testing.T) {
	file := func(failWhen string) string {
		m := fileOf(t, "    timeout: {after: 24h, to: Done}\n    steps: [{action: Look"+failWhen+"}]\n")
		w := worldOf(t, m, nil)
		w.Give("Look", failing(fsm.Wait("not yet"), ""))
		w.settle()
		return w.Stored.PhaseRevision
	}
	if none, some, other := file(""), file(", failWhen: 'result.n > 1'"), file(", failWhen: 'result.n > 2'"); none == some || some == other {
		t.Errorf("phase revisions %s, %s, %s", none, some, other)
	}
}
