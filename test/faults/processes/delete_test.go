package processes

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/setup"
)

const (
	// wholeWay is about what a migration takes here until it is Complete.
	wholeWay = 6 * time.Second
	// beforeTheEnd is when it is surely not Converged yet.
	beforeTheEnd = 2500 * time.Millisecond
)

// `kubectl delete` at any moment releases everything, or, past the point of no return,
// goes on to the end and cleans up.
func TestDeleted(t *testing.T) {
	dir, m := machine(t)
	repeat(t, experiment{name: "deleted at a random instant", all: 50, some: 2, run: func(t *testing.T, random *rand.Rand) time.Duration {
		w := pristine(t)
		// The components run on v3 already, so that Complete comes by itself.
		if err := fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace); err != nil {
			t.Fatal(err)
		}
		w.manager(t, "--phases-dir", dir)
		p := w.watch(t, m)
		w.start(t, through)
		// One that nobody has seen yet simply goes.
		w.until(t, "the migration to be taken on", func(dm *migration) bool { return dm != nil && len(dm.Finalizers) > 0 })
		window := wholeWay
		if !everything {
			window = beforeTheEnd // the other end takes the cluster
		}
		pause(upTo(random, window))
		w.remove(t)
		deleted := time.Now()
		passed := false
		w.until(t, "the migration to be gone", func(dm *migration) bool {
			passed = passed || dm != nil && slices.Contains(way(dm), "Converged")
			return isGone(dm)
		})
		took := time.Since(deleted)
		end := invariants.GivenBack
		if passed {
			end, w.spent = invariants.CleanedUp, true
		}
		p.check(t, end, took, soon)
		return took
	}})
}

// way are the phases that a migration came through.
func way(dm *migration) []string {
	var names []string
	for _, h := range dm.Status.Machine.History {
		names = append(names, h.To)
	}
	return names
}
