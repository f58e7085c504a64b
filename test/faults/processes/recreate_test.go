package processes

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/faults/invariants"
)

// A migration of the same name is another one. It takes over nothing, and ends right,
// whatever nobody saw of the one before.
func TestRecreatedWhileNobodyLooks(t *testing.T) {
	dir, m := machine(t)
	repeat(t, experiment{name: "deleted and recreated while no manager runs", all: 20, some: 1, run: func(t *testing.T, random *rand.Rand) time.Duration {
		w := pristine(t)
		manager := w.manager(t, "--phases-dir", dir)
		w.start(t, nil)
		w.underTheLock(t, random)
		manager.Kill()
		w.remove(t) // its finalizer keeps it
		if random.IntN(2) == 0 {
			manager = w.manager(t, "--phases-dir", dir)
			pause(upTo(random, time.Second)) // some of it is given back
			manager.Kill()
		}
		began := time.Now()
		w.manager(t, "--phases-dir", dir)
		w.until(t, "the first to be gone", isGone)
		p := w.watch(t, m)
		w.start(t, nil)
		w.until(t, "the gate", atGate(beforeConverged))
		p.check(t, invariants.AtGate, time.Since(began), soon)
		w.giveBack(t, m)
		return time.Since(began)
	}})
}
