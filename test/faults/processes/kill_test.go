package processes

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/faults/invariants"
)

// SIGKILL at any moment of the locked window costs repeats and nothing else: the next
// manager ends where an undisturbed one ends. The way back is killed as well.
func TestKilled(t *testing.T) {
	dir, m := machine(t)
	repeat(t, experiment{name: "kill -9 at a random instant", all: 50, some: 1, run: func(t *testing.T, random *rand.Rand) time.Duration {
		w := pristine(t)
		manager := w.manager(t, "--phases-dir", dir)
		p := w.watch(t, m)
		w.start(t, nil)
		w.underTheLock(t, random)
		killed := time.Now()
		for range 1 + random.IntN(3) {
			manager.Kill()
			killed = time.Now()
			manager = w.manager(t, "--phases-dir", dir)
			pause(upTo(random, time.Second))
		}
		w.until(t, "the gate", atGate(beforeConverged))
		recovered := time.Since(killed)
		p.check(t, invariants.AtGate, recovered, soon)

		p = w.watch(t, m)
		w.remove(t)
		pause(upTo(random, 600*time.Millisecond))
		manager.Kill()
		w.manager(t, "--phases-dir", dir)
		w.until(t, "the migration to be gone", isGone)
		p.check(t, invariants.GivenBack, 0, 0)
		return recovered
	}})
}
