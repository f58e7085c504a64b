package processes

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/faults/invariants"
)

// A manager that is told nothing new, and that is shown a migration which has been gone
// for long, does nothing in its name.
func TestStale(t *testing.T) {
	dir, m := machine(t)
	repeat(t, experiment{name: "watches frozen, old lists", all: 20, some: 1, run: func(t *testing.T, random *rand.Rand) time.Duration {
		w := pristine(t)
		proxy, kubeconfig := w.startProxy(t)
		manager := w.managerAt(t, kubeconfig, "--phases-dir", dir)
		p := w.watch(t, m)
		w.start(t, nil)
		w.underTheLock(t, random)
		proxy.freeze(true)
		frozen := time.Now()
		if random.IntN(2) == 0 {
			w.until(t, "the gate", atGate(beforeConverged)) // it needs no watch to go on
		}
		w.remove(t)
		pause(upTo(random, time.Second))
		if random.IntN(2) == 0 { // somebody else finishes what the one that is blind does not
			manager.Kill()
			other := w.manager(t, "--phases-dir", dir)
			w.until(t, "the migration to be gone", isGone)
			other.Kill()
			w.managerAt(t, kubeconfig, "--phases-dir", dir) // its first list is the old one
			pause(2 * time.Second)
		}
		proxy.freeze(false)
		w.until(t, "the migration to be gone", isGone)
		recovered := time.Since(frozen)
		p.check(t, invariants.GivenBack, recovered, soon)
		return recovered
	}})
}
