package processes

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/harness"
)

// What was stored is there when a server is back, what was not is done again; and
// nobody takes a server that does not answer for one that says no.
func TestServersKilled(t *testing.T) {
	dir, m := machine(t)
	for _, c := range []struct {
		name string
		some int
	}{{harness.APIServer, 0}, {harness.Etcd, 1}} {
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
			p.check(t, invariants.AtGate, recovered, soon)
			w.giveBack(t, m)
			return recovered
		}})
	}
}
