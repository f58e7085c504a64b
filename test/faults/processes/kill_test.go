package processes

import (
	"math/rand/v2"
	"testing"
	"time"
)

// SIGKILL at any moment of the locked window costs repeats and nothing else: the next
// manager ends where an undisturbed one ends. The way back is killed as well.
func TestKilled(t *testing.T) {
	w := pristine(t)
	dir := machine(t)
	repeat(t, experiment{name: "kill -9 at a random instant", all: 50, some: 3, run: func(t *testing.T, random *rand.Rand) time.Duration {
		p := w.manager(t, "--phases-dir", dir)
		w.start(t, nil)
		w.underTheLock(t, random)
		for range 1 + random.IntN(2) {
			p.Kill()
			p = w.manager(t, "--phases-dir", dir)
			pause(upTo(random, time.Second))
		}
		p.Kill()
		killed := time.Now()
		p = w.manager(t, "--phases-dir", dir)
		w.assertCopied(t, w.until(t, "the gate", atGate(beforeConverged)))
		recovered := time.Since(killed)

		w.remove(t)
		pause(upTo(random, 600*time.Millisecond))
		p.Kill()
		w.manager(t, "--phases-dir", dir)
		w.until(t, "the migration to be gone", isGone)
		w.assertUntouched(t)
		return recovered
	}})
}
