package processes

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	// stall is how long a migration may stand still after a server is back.
	stall = 5 * time.Second
	// paramKindUnknown is how long an API server that was started again refuses whatever a
	// policy with parameters of a CRD is about: it looks for new kinds every 30 seconds.
	paramKindUnknown = 30 * time.Second
	// pausing is the longest pause between two tries of a step while something is held, and its jitter.
	pausing = 6 * time.Second
	// crowded is how much longer a migration takes beside the sweeps, on the same two cores.
	crowded = 2
)

// What was stored is there when a server is back, what was not is done again; and
// nobody takes a server that does not answer for one that says no.
func TestServersKilled(t *testing.T) {
	dir, m := machine(t)
	for _, c := range []struct {
		name  string
		limit time.Duration
		some  int
	}{{harness.APIServer, crowded*wholeWay + stall + paramKindUnknown + pausing, 0}, {harness.Etcd, crowded*wholeWay + stall + pausing, 1}} {
		repeat(t, experiment{name: c.name + " killed and started again", all: 10, some: c.some, run: func(t *testing.T, random *rand.Rand) time.Duration {
			w := pristine(t)
			server, err := w.Server(c.name)
			if err != nil {
				t.Fatal(err)
			}
			w.manager(t, "--phases-dir", dir)
			w.start(t, nil)
			w.underTheLock(t, random)
			if err := server.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			pause(upTo(random, 2*time.Second))
			if err := server.Revive(); err != nil {
				t.Fatal(err)
			}
			if err := w.AwaitReady(t.Context(), server); err != nil {
				t.Fatal(err)
			}
			back := time.Now()
			p := w.watch(t, m) // a server that was restarted does not tell what was before
			w.until(t, "the gate", atGate(beforeConverged))
			recovered := time.Since(back)
			p.check(t, invariants.AtGate, recovered, c.limit)
			w.giveBack(t, m)
			return recovered
		}})
	}
}
