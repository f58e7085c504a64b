package fsm_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// releases of the shipped machine's effects.
func releases(w *world, held []string) []string {
	var calls []string
	for _, name := range slices.Backward(held) {
		for _, e := range w.Machine.Definition().Spec.Effects {
			if e.Name == name {
				calls = append(calls, e.Release)
			}
		}
	}
	return calls
}

// An object whose finalizer was removed by hand: what is held is released, and nothing
// else is done.
func TestVanishedFromEveryPhase(t *testing.T) {
	kept := []string{"apiService", "v1Fence", "v1Lock", "v1Owners", "v3Copies"}
	pending := func(w *world) {
		w.Give("OpenSideDoor", failing(errors.New("no"), program.ClassUnavailable))
		w.settle()
		w.Give("OpenSideDoor")
	}
	converged := func(w *world) { // as soon as it is entered: its steps release the rest
		w.Give("OpenSideDoor", answer(map[string]any{"sideDoor": true}))
		_ = w.Run(0, func() bool { return w.Stored.Phase == "Converged" }) // the phase is checked
	}
	cases := map[string]struct {
		why   string
		reach func(w *world)
		// did is what is called besides the releases of what is held, newest first.
		did  []string
		path []string
		left []string
	}{
		"Pending":                      {why: "the fence is held, and inert", reach: pending, path: []string{"Aborting"}},
		"Migrating":                    {why: "the whole ledger", path: []string{"Aborting"}},
		"WaitingForConflictResolution": {why: "locked while a person is asked", path: []string{"Aborting"}},
		"RollingBack":                  {why: "a rollback that is stuck goes on", path: []string{"Aborting"}},
		"Aborting":                     {why: "as before: it was being deleted already"},
		"Converged": {why: "no way leads back: its own steps go on as far as something is held", reach: converged, left: kept,
			did: []string{"UnlockV3", "AttachDependents", "DeleteDisabledAPIService", "BringLateWrites", "HandOverFields", "CloseSideDoor"}},
		"Failed":     {why: "nothing is held"},
		"Rejected":   {why: "nothing was ever taken"},
		"Complete":   {why: "the CRDs of v1 stay: nobody asked for the clean-up", left: kept},
		"CleaningUp": {why: "nothing is held, and the clean-up ends where it is", left: kept},
	}
	for phase, c := range cases {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			w := shipped(t)
			if c.reach == nil {
				c.reach = reach[phase]
			}
			c.reach(w)
			if w.Stored.Phase != phase {
				t.Fatalf("rests in %s", w.Stored.Phase)
			}
			before, want := len(w.Stored.History), releases(w, w.Stored.HeldNames())
			if c.did != nil {
				want = c.did
			}
			w.Called = nil
			w.Vanish()
			w.settle()
			w.advance(time.Hour)
			if d := cmp.Diff(want, w.Called); d != "" {
				t.Errorf("%s: calls (-want +got):\n%s", c.why, d)
			}
			var path []string
			for _, h := range w.Stored.History[before:] {
				path = append(path, h.To)
			}
			if d := cmp.Diff([]any{c.path, c.left, true}, []any{path, w.InPlace(), w.Over()}); d != "" {
				t.Errorf("%s: path, what is left in place, over (-want +got):\n%s", c.why, d)
			}
		})
	}
	covered := append(slices.Sorted(maps.Keys(cases)), "Deleted")
	if d := cmp.Diff(slices.Sorted(slices.Values(covered)), slices.Sorted(slices.Values(shipped(t).Machine.Phases()))); d != "" {
		t.Errorf("a case for each phase (-cases +phases):\n%s", d)
	}
}

// MCPServer holds nothing: its children have an owner, and go with it.
func TestVanishedWithoutEffects(t *testing.T) {
	m := proved(t)["mcpserver"]
	for _, phase := range append(m.Phases(), "", "Unknown") {
		run := m.Run(v1alpha1.MachineStatus{Phase: phase}, fsm.Observation{Gone: true, Now: func() time.Time { return simulate.Epoch }})
		if d := cmp.Diff(fsm.Decision{Do: fsm.Requeue}, run.Decide(t.Context())); d != "" {
			t.Errorf("phase %q: nothing is done (-want +got):\n%s", phase, d)
		}
		if stalled := run.Summary().Conditions[2]; stalled.Reason != "WithinDeadline" {
			t.Errorf("phase %q: it is over, not stalled: %+v", phase, stalled)
		}
	}
}

func TestGoneSeesNoChangeOfTheSpec(t *testing.T) {
	m := machineOf(t, "test.yaml", []byte(phases(`  - name: One
    poll: 1m
    steps: [{action: Take}]
    next: [{to: Two}]
    onDelete: {to: Out}
  - name: Two
    poll: 1m
    steps: [{action: Work, if: 'generationChanged'}, {action: Give}]
    next: [{to: Done}]
    onDelete: {hold: goes on}
`+rest)), testBindings)
	st := v1alpha1.MachineStatus{Phase: "Two", Revision: m.Revision(), Generation: 7, Held: v1alpha1.Held("lock")}
	run := m.Run(st, fsm.Observation{Gone: true, Now: func() time.Time { return simulate.Epoch }})
	if d := cmp.Diff(fsm.Decision{Do: fsm.RunAction, Action: "Give", Step: "Give", StepID: "Two/Give", With: expr.Params{}, Releases: true}, run.Decide(t.Context())); d != "" {
		t.Errorf("there is no spec that could change (-want +got):\n%s", d)
	}
	fire(t, run, fsm.Result{})
	if d := cmp.Diff(fsm.Decision{Do: fsm.Requeue}, run.Decide(t.Context())); d != "" || len(run.Status().Held) > 0 {
		t.Errorf("finished as soon as nothing is held: %v (-want +got):\n%s", run.Status().Held, d)
	}
}
