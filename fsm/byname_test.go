package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// twice measures two things with one action, and a third one if the first is large.
const twice = header + `spec:
  for: {apiVersion: v1, kind: ConfigMap}
  initial: One
  finalizer: test.phasegate.dev/f
  variables: [{name: grew, expr: 'steps.After.n > steps.Before.n'}]
  phases:
  - name: One
    poll: 5s
    steps:
    - {name: Before, action: Measure, until: 'steps.Before.n > 0', message: 'at ${steps.Before.n}'}
    - {name: After, action: Measure}
    - {name: Large, action: Measure, if: 'steps.Before.n > 100'}
    - {action: Note, with: {text: '${steps.Before.n}, ${steps.After.n}, ${steps.?Large.?n.orValue(-1)}, last ${result.n}'}}
    next:
    - {to: Done, when: 'variables.grew && steps.After.took == duration("90s") && !has(steps.Large)', message: 'from ${steps.Before.n} to ${steps.After.n}'}
    onDelete: {to: Out}
` + rest

func twiceBindings() program.Bindings {
	return program.Bindings{Actions: map[string]program.ActionSpec{
		"Measure": {Outputs: map[string]expr.Type{"n": expr.TypeInt, "took": expr.TypeDuration}},
		"Note":    {Params: map[string]program.Param{"text": {Type: expr.TypeString}}},
	}}
}

// Whatever crashes, what a step has said is there by its name, and stays what it was when another step says the same of
// something else.
func TestOutputsByStep(t *testing.T) {
	said := map[string]int{"Before": 10, "After": 11, "Large": 12}
	for at := 0; ; at++ {
		w := worldOf(t, machineOf(t, "test.yaml", []byte(twice), twiceBindings()), nil)
		moments := 0
		w.Interrupt = func(fsm.Decision, bool) bool { moments++; return moments-1 == at }
		var notes []string
		w.Respond = func(_ string, cmd fsm.Decision) (simulate.Answer, bool) {
			if cmd.Action == "Note" {
				notes = append(notes, fmt.Sprint(cmd.With["text"]))
				return simulate.Answer{}, true
			}
			return answer(map[string]any{"n": said[cmd.Step], "took": "90s"}), true
		}
		w.settle()
		if moments <= at {
			if at < 5 {
				t.Errorf("only %d moments to crash at", at)
			}
			return
		}
		notes = slices.Compact(notes)
		if d := cmp.Diff([]string{"10, 11, -1, last 11"}, notes); d != "" || w.Stored.Phase != "Done" {
			t.Errorf("crash at moment %d: phase %s, notes (-want +got):\n%s", at, w.Stored.Phase, d)
		}
		if last := w.Stored.History[len(w.Stored.History)-1]; last.Message != "from 10 to 11" {
			t.Errorf("crash at moment %d: message %q, blocked %v", at, last.Message, w.ShownMachine.Blocked)
		}
	}
}

// Only what is read by name is stored by name; a new visit begins with nothing.
func TestWhatIsStoredByStep(t *testing.T) {
	w := worldOf(t, machineOf(t, "test.yaml", []byte(twice), twiceBindings()), nil)
	w.Respond = func(_ string, cmd fsm.Decision) (simulate.Answer, bool) {
		if cmd.Action == "Note" {
			return simulate.Answer{}, true
		}
		return answer(map[string]any{"n": 7, "took": "1s"}), true
	}
	_ = w.Run(time.Minute, func() bool { return len(w.ShownMachine.Blocked) > 0 })
	const want = `{"n":7,"steps":{"After":{"n":7,"took":"1s"},"Before":{"n":7,"took":"1s"}},"took":"1s"}`
	if w.Stored.Result != want {
		t.Errorf("stored %s, want %s", w.Stored.Result, want)
	}
	if seen := w.ShownMachine.Blocked[0].Value; !strings.Contains(seen, "variables.grew = false") {
		t.Errorf("the closed exit says %q, not what it has seen", seen)
	}
}
