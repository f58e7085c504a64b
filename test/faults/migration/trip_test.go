package migration_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/phasegate/phasegate/test/faults"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// lives are the transports of one process after the other: what happens to the n-th,
// from 0 on.
type lives func(n int) *faults.Transport

// healthy is a process to which nothing happens.
func healthy(int) *faults.Transport { return faults.New() }

// once is for a fault that comes at one write of the first process.
func once(fault faults.Fault, write int) lives {
	return func(n int) *faults.Transport {
		if n > 0 {
			return faults.New()
		}
		return faults.New(&faults.Rule{When: faults.Write, Nth: write, Do: fault})
	}
}

// counted tells how many writes all processes try.
func counted(writes *int) lives {
	return func(int) *faults.Transport {
		return faults.New(&faults.Rule{When: faults.Write, Times: faults.Always, Do: faults.Before(func() { *writes++ })})
	}
}

// deed is a write that brings the migration forward. What its status says while it works
// is written as often as time goes by, and the garbage collector is asked with a ConfigMap
// by each process anew: who could do nothing else would never come forward.
func deed(info *request.RequestInfo) bool {
	asks := info.Resource == "configmaps" || info.Resource == "datastoremigrations" && info.Subresource == "status"
	return faults.Write(info) && !asks
}

// maxLives is more than there are writes: who needs more does not come forward.
const maxLives = 600

// survive drives the migration by one process after the other. It tells whether the
// fault of the first one came, and how long it took from then on.
func (w *world) survive(all lives, where func(*migration) bool) (came bool, recovery time.Duration) {
	w.t.Helper()
	first := all(0)
	var hit time.Time
	var deaths []string
	for n, faulty := 0, first; n < maxLives; n++ {
		if n > 0 {
			faulty = all(n)
		}
		if w.drive(faulty, where) {
			if !hit.IsZero() {
				recovery = time.Since(hit)
			}
			return len(first.Met()) > 0, recovery
		}
		if hit.IsZero() {
			hit = time.Now()
		}
		deaths = append(deaths, faulty.Met()...)
	}
	w.t.Fatalf("after %d processes %s; the last ones died at %v", maxLives, describe(w.read()), deaths[max(0, len(deaths)-6):])
	return false, 0
}

// journey is one migration that is given up in the end, and what is known of it.
type journey struct {
	*world
	recorder *invariants.Recorder
}

func (w *world) begin(t *testing.T) *journey {
	t.Helper()
	j := &journey{world: w}
	w.t = t
	var err error
	if j.recorder, err = invariants.StartRecorder(t.Context(), w.eye.Client, setup.MigrationName); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.recorder.Stop)
	if err := w.Migrate(t.Context(), setup.MigrationName); err != nil {
		t.Fatal(err)
	}
	return j
}

// check fails the test for each invariant that does not hold.
func (j *journey) check(end invariants.End) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), harness.Patience)
	defer cancel()
	record, err := j.recorder.Seen(ctx)
	if err != nil {
		j.t.Fatal(err)
	}
	run := invariants.Run{End: end, Before: j.before, After: j.look(), Record: record, Machine: j.machine}
	for _, violation := range run.Check() {
		j.t.Error(violation)
	}
}

// back gives the migration up and checks that all is as it was.
func (j *journey) back(all lives) (came bool, recovery time.Duration) {
	j.t.Helper()
	if err := j.askRemoval(); err != nil {
		j.t.Fatal(err)
	}
	came, recovery = j.survive(all, gone)
	j.check(invariants.GivenBack)
	return came, recovery
}
