package simulate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

func settled(t *testing.T, w *simulate.Fake) {
	t.Helper()
	w.Give("Look", simulate.Answer{Result: fsm.Result{Outputs: map[string]any{"n": 2}}})
	if err := w.RunUntilIdle(); err != nil {
		t.Fatal(err)
	}
}

// seen is what a person sees of the object, without times.
func seen(w *simulate.Fake) []any {
	st := w.ShownMachine
	return []any{w.Shown, st.Phase, st.Step, st.StepIndex, st.HeldNames(), st.OnDelete}
}

func TestTheViewIsRepaired(t *testing.T) {
	m := machine(t, named)
	calm := fsmtest.World(t, m, nil)
	settled(t, calm)
	for name, c := range map[string]struct {
		why    string
		happen func(w *simulate.Fake)
	}{
		"crash between the writes": {"the state says Two already", func(w *simulate.Fake) {
			w.Interrupt = func(cmd fsm.Decision, done bool) bool {
				return done && cmd.Do == fsm.Commit && cmd.Transition != nil && cmd.Transition.To == "Two"
			}
			_ = w.Run(time.Minute, func() bool { return w.Stored.Phase == "Two" })
			w.Interrupt = nil
			if w.ShownMachine.Phase != "One" || w.Shown.Phase != "One" {
				t.Errorf("the view is written after the state, and only then: %s", w.Shown.Phase)
			}
		}},
		"view lost":            {"another CRD keeps none of it", func(w *simulate.Fake) { settled(t, w); w.LoseView() }},
		"view lost on the way": {"nothing is read from it", func(w *simulate.Fake) { _, _ = w.Reconcile(); _, _ = w.Reconcile(); w.LoseView() }},
		"view forged":          {"a person who may write status changes nothing", func(w *simulate.Fake) { settled(t, w); w.ShownMachine = v1alpha1.MachineStatus{Phase: "One"} }},
	} {
		t.Run(name, func(t *testing.T) {
			w := fsmtest.World(t, m, nil)
			w.Give("Look", simulate.Answer{Result: fsm.Result{Outputs: map[string]any{"n": 2}}})
			c.happen(w)
			settled(t, w)
			if d := cmp.Diff(seen(calm), seen(w)); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
			if d := cmp.Diff(calm.Ending(), w.Ending()); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

// A driver that begins with the view must be found.
func TestTrustInTheViewIsFound(t *testing.T) {
	end := func(trust bool) simulate.Ending {
		w, err := simulate.New(machine(t, named), nil)
		if err != nil {
			t.Fatal(err)
		}
		w.TrustView = trust
		_ = w.Run(time.Minute, func() bool { return len(w.Stored.Held) == 2 })
		w.LoseView()
		settled(t, w)
		return w.Ending()
	}
	if good, bad := end(false), end(true); good.Phase != "Two" || cmp.Equal(good, bad) {
		t.Errorf("the view is lost: with the state %+v, with trust in the view %+v", good, bad)
	}
}

func TestTheStateIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		why, recover string
		want         simulate.Ending
		reason       string
	}{
		"recovered": {"what the cluster says is in place is released", "  recover: [{to: Out, holds: [volume, job]}]\n",
			simulate.Ending{Gone: true, Phase: "End", Path: []string{"Out", "End"}, Released: []string{"job", "volume"}}, ""},
		"not known": {"nothing is taken, released or let go", "", simulate.Ending{InPlace: []string{"job", "volume"}}, "StateLost"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fsmtest.World(t, machine(t, named+c.recover), nil)
			if err := w.RunUntilIdle(); err != nil {
				t.Fatal(err)
			}
			w.LoseState()
			w.Delete()
			settled(t, w)
			if d := cmp.Diff(c.want, w.Ending()); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
			if !w.Gone() && w.Shown.Conditions[2].Reason != c.reason {
				t.Errorf("%s: %+v", c.why, w.Shown)
			}
		})
	}
}

func TestVanish(t *testing.T) {
	w := fsmtest.World(t, machine(t, named), nil)
	if err := w.RunUntilIdle(); err != nil {
		t.Fatal(err)
	}
	w.Give("RemoveJob", simulate.Answer{Result: fsm.Result{Err: fsm.Wait("not yet")}, Times: 2})
	w.Vanish()
	_, _ = w.Reconcile()
	if !w.Gone() || w.Over() {
		t.Errorf("the object is gone at once, its state is not: gone %t, over %t", w.Gone(), w.Over())
	}
	if err := w.Run(time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	want := simulate.Ending{Gone: true, Phase: "Out", Path: []string{"One", "Out"}, Released: []string{"job", "volume"}}
	if d := cmp.Diff(want, w.Ending()); d != "" || !w.Over() {
		t.Errorf("the looks go on until nothing is held: over %t (-want +got):\n%s", w.Over(), d)
	}
}

// Each crash while what a vanished object held is released.
func TestVanishCrashedEverywhere(t *testing.T) {
	m := machine(t, named)
	crashes, changed := simulate.CrashEverywhere(func() *simulate.Fake { return fsmtest.World(t, m, nil) }, func(w *simulate.Fake) {
		_ = w.Run(time.Minute, func() bool { return len(w.Stored.Held) == 2 })
		w.Vanish()
		_ = w.Run(time.Minute, nil)
	})
	if crashes < 10 || len(changed) > 0 {
		t.Errorf("%d crashes, changed the end: %v", crashes, changed)
	}
}
