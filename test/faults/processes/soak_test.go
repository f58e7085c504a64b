package processes

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	// soakRuns is how many migrations one process sees.
	soakRuns = 100
	// settled is after how many of them a process has all that it keeps.
	settled = 10
	// Growth that is allowed since then: a buffer, a connection.
	moreGoroutines = 20
	moreMemory     = 32 << 20
)

// One process may see any number of migrations: it keeps nothing of those that are gone.
func TestSoak(t *testing.T) {
	if !everything {
		t.Skip("a hundred migrations take minutes: FAULTS=all")
	}
	dir, m := machine(t)
	w := pristine(t)
	address, err := harness.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	w.manager(t, "--phases-dir", dir, "--metrics-bind-address", address, "--metrics-secure=false")
	read := func() (goroutines, memory float64) {
		all, err := harness.Scrape(t.Context(), http.DefaultClient, "http://"+address)
		if err != nil {
			t.Fatal(err)
		}
		return all.Sum("go_goroutines"), all.Sum("process_resident_memory_bytes")
	}
	var goroutines, memory float64
	n := 0
	repeat(t, experiment{name: "soak: one process", all: soakRuns, run: func(t *testing.T, _ *rand.Rand) time.Duration {
		began := time.Now()
		p := w.watch(t, m)
		w.start(t, nil)
		w.until(t, "the gate", atGate(beforeConverged))
		w.remove(t)
		w.until(t, "the migration to be gone", isGone)
		p.check(t, invariants.GivenBack, time.Since(began), soon)
		if n++; n == settled {
			goroutines, memory = read()
		}
		return 0
	}})
	g, r := read()
	t.Logf("after %d migrations %.0f goroutines and %.1f MiB, after %d %.0f and %.1f", settled, goroutines, memory/(1<<20), n, g, r/(1<<20))
	if g > goroutines+moreGoroutines || r > memory+moreMemory {
		t.Error("the process grows with every migration")
	}
}
