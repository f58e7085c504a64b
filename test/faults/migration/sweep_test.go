package migration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/faults"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/faults/report"
)

// minWrites is what a sweep has to cover at least: a migration of one object of each sort has some 300 writes.
const minWrites = 200

// measure makes a migration that nothing disturbs, up to the gate and back, once.
func (w *world) measure(t *testing.T) {
	t.Helper()
	if w.clean > 0 {
		return
	}
	begun := time.Now()
	j := w.begin(t)
	n := 0
	j.survive(counted(&n), atGate)
	j.check(invariants.AtGate)
	j.back(healthy)
	if n < minWrites && !t.Failed() {
		t.Errorf("a migration has %d writes, fewer than %d: the sweep tests too little", n, minWrites)
	}
	w.clean = n
	t.Logf("without faults: %d writes, %s to the gate and back", n, time.Since(begun))
}

// crashesEach is how many processes of one journey of TestCrash meet the fault, each after as many writes: a sweep with one
// crash for each journey takes that many times as long, and tells nothing more (TestShortLives has a crash at every write).
const crashesEach = 4

// each runs an experiment for every write, until there is no such write any more; a few
// of them where there is little time. Each run has that many faults, by turns with the others.
func each(t *testing.T, experiment string, few, faultsEach int, attempt func(t *testing.T, w *world, write int) (came bool, recovery time.Duration)) {
	t.Helper()
	beside(t)
	w, of := shared.Lend(t), report.Of(experiment)
	w.measure(t)
	n := w.clean
	of.Writes(n)
	sample := random(uint64(len(experiment))).Perm(n)[:few]
	for i := 0; !t.Failed(); i++ {
		write := i + int(from)
		if !everything {
			if i == few {
				return
			}
			write = sample[i] + 1
		} else if faultsEach > 1 && (write-1)*faultsEach >= n {
			return // the later faults of the runs so far came at these writes
		}
		came := false
		passed := t.Run(fmt.Sprintf("write %d", write), func(t *testing.T) {
			var recovery time.Duration
			came, recovery = attempt(t, w, write)
			if came || t.Failed() {
				of.Ran(!t.Failed(), recovery)
			}
		})
		if passed && !came && everything {
			if write <= minWrites {
				t.Errorf("there is no write %d: the sweep tests too little", write)
			}
			return
		}
	}
}

// spread is for a fault that comes at one write of the first process, and of the next ones after as many writes more
// as make the faults of all journeys come at every write of a migration.
func (w *world) spread(fault faults.Fault, write int) lives {
	pace := (w.clean + crashesEach - 1) / crashesEach
	return func(n int) *faults.Transport {
		nth := write
		if n > 0 {
			nth = pace
		}
		return faults.New(&faults.Rule{When: faults.Write, Nth: nth, Do: fault})
	}
}

// Processes that crash at any writes of the way there, and others at the same writes
// of the way back, leave nothing undone and nothing done twice.
func TestCrash(t *testing.T) {
	beside(t)
	for name, fault := range map[string]faults.Fault{"a crash before a write": faults.CrashBefore, "a crash after a write": faults.CrashAfter} {
		t.Run(name, func(t *testing.T) {
			each(t, name, 2, crashesEach, func(t *testing.T, w *world, write int) (bool, time.Duration) {
				j := w.begin(t)
				came, there := j.survive(w.spread(fault, write), atGate)
				j.check(invariants.AtGate)
				_, back := j.back(w.spread(fault, write))
				return came, max(there, back)
			})
		})
	}
}

// A migration that is deleted right before any write releases everything.
func TestAbort(t *testing.T) {
	each(t, "deleted before a write", 2, 1, func(t *testing.T, w *world, write int) (bool, time.Duration) {
		j := w.begin(t)
		var asked time.Time
		deleted := faults.Before(func() {
			asked = time.Now()
			if err := w.askRemoval(); err != nil {
				t.Error(err)
			}
		})
		came, _ := j.survive(once(deleted, write), func(dm *migration) bool { return gone(dm) || atGate(dm) })
		if !came {
			j.back(healthy)
			return false, 0
		}
		j.survive(healthy, gone) // the last write may be an Event, sent when the gate has been seen already
		recovery := time.Since(asked)
		j.check(invariants.GivenBack)
		return true, recovery
	})
}

// Processes none of which lives longer than to its second write come to the end, and back.
func TestShortLives(t *testing.T) {
	cases := map[string]struct {
		fault faults.Fault
		nth   int
	}{
		"one write for each process":        {faults.CrashBefore, 2},
		"one unseen write for each process": {faults.CrashAfter, 1},
	}
	if !everything { // the way back alone, where a release must not undo what another one of its writes has done
		delete(cases, "one unseen write for each process")
	}
	w := shared.Lend(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var crashes int
			short := func(int) *faults.Transport {
				crashes++
				return faults.New(&faults.Rule{When: deed, Nth: tc.nth, Do: tc.fault})
			}
			j := w.begin(t)
			out := lives(healthy)
			if everything {
				out = short
			}
			_, there := j.survive(out, atGate)
			j.check(invariants.AtGate)
			_, back := j.back(short)
			report.Of(name).Writes(crashes)
			report.Of(name).Ran(!t.Failed(), max(there, back))
		})
	}
}
