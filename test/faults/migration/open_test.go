package migration_test

import (
	"testing"

	"github.com/phasegate/phasegate/test/faults"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/faults/report"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/setup"
)

// Past the point of no return it goes forward only, with a crash at every write: every
// process dies at its second write, or right after its first. That takes a cluster for
// each.
func TestCrashOpen(t *testing.T) {
	allOnly(t)
	cases := map[string]struct {
		fault faults.Fault
		nth   int
	}{
		"open and clean up, one write for each process":        {faults.CrashBefore, 2},
		"open and clean up, one unseen write for each process": {faults.CrashAfter, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			machine, err := quick(false)
			if err != nil {
				t.Fatal(err)
			}
			w, err := newWorld(setup.Options{Objects: fixture.Demo(1, 0)}, machine)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			})
			var crashes int
			short := func(int) *faults.Transport {
				crashes++
				return faults.New(&faults.Rule{When: deed, Nth: tc.nth, Do: tc.fault})
			}
			j := w.begin(t)
			j.survive(healthy, inPhase("Converged")) // the way there has sweeps of its own
			_, there := j.survive(short, atRest)
			j.check(invariants.Open)
			if err := fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace); err != nil {
				t.Fatal(err)
			}
			_, complete := j.survive(short, inPhase("Complete"))
			j.check(invariants.Open)
			if err := w.askRemoval(); err != nil {
				t.Fatal(err)
			}
			_, away := j.survive(short, gone)
			j.check(invariants.CleanedUp)
			report.Of(name).Writes(crashes)
			report.Of(name).Ran(!t.Failed(), max(there, complete, away))
		})
	}
}

// atRest is Converged when all is open that a migration opens, and only the components
// are waited for.
func atRest(dm *migration) bool {
	return inPhase("Converged")(dm) && dm.Status.Machine.Step == "ObserveRollout"
}
