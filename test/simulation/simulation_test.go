// Package simulation plays the machine of a migration against whatever can go wrong
// around it, by chance: the driver is killed before and after any command, writes
// conflict, actions fail, wait, take their time, or do their work and say that they
// failed, guards close, the clock is set, a person deletes the object, its
// finalizer, its status or its state, or changes the machine file. The engine and the machine are those that are shipped; what actions do
// in a cluster is one bit for each effect.
//
// A failing schedule is printed, shrunk, with its seed:
//
//	go test ./test/simulation -run TestRandomSchedules -seed 4711 -runs 1 -v
package simulation

import (
	"flag"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
	"github.com/phasegate/phasegate/phases"
)

var (
	seed = flag.Uint64("seed", 0, "seed of the first schedule; 0: 1, or by chance in make faults")
	runs = flag.Int("runs", 0, "how many schedules are played; 0: 10,000 of faults, 10 of people")
)

// edited are files that the machine may change to while an object is on its way: with
// other paces, and with a step and a phase more.
var edited = [][]string{
	{},
	{"retry: {base: 500ms, max: 5s, attempts: 150, to: RollingBack} # short intervals: v1 is locked\n    timeout: {after: 30m,", "retry: {base: 1s, max: 10s, attempts: 5, to: RollingBack}\n    timeout: {after: 20m,"},
	{"    - {action: LockV3}\n", "    - {action: LockV3}\n    - {wait: 2s}\n",
		"    - {to: Migrating, reason: ReadyToCutOver}\n", "    - {to: Rehearsing, reason: ReadyToCutOver}\n",
		"  - name: Migrating\n", "  - name: Rehearsing\n    steps: [{action: Plan}]\n    next: [{to: Migrating, reason: Rehearsed}]\n    timeout: {after: 1h, to: RollingBack}\n    onDelete: {to: Aborting}\n\n  - name: Migrating\n"},
}

// machine is the shipped one with some texts replaced: old, new, old, new. A mutant is
// one that the linter would refuse.
func machine(t *testing.T, mutant bool, oldNew ...string) *fsm.Machine {
	t.Helper()
	data, err := fs.ReadFile(phases.Files, datastoremigration.MachineName+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(text, oldNew[i]) {
			t.Fatalf("the machine file does not say %q any more", oldNew[i])
		}
		text = strings.Replace(text, oldNew[i], oldNew[i+1], 1)
	}
	def, diags := fsm.Load("changed.yaml", []byte(text))
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	def.Spec.Recover = nil                 // what the cluster says of a lost state is not played: a backup is restored
	bindings, err := catalog.Bindings(def) // with the types of the CRD
	if err != nil {
		t.Fatal(err)
	}
	if mutant {
		return fsm.Provable(def, bindings)
	}
	m, diags := fsm.Bind(def, bindings)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRandomSchedules(t *testing.T) {
	var machines []*fsm.Machine
	for _, oldNew := range edited {
		machines = append(machines, machine(t, false, oldNew...))
	}
	first := *seed
	if first == 0 {
		first = 1
		if os.Getenv("FAULTS") == "all" {
			first = uint64(time.Now().Unix())
		}
	}
	began, n := time.Now(), *runs
	if n == 0 {
		n = 10_000
	}
	bad, wrong := search(first, n, machines, none)
	t.Logf("%d schedules from seed %d, in %s", n, first, time.Since(began).Round(time.Millisecond))
	if wrong == "" {
		return
	}
	s := shrink(draw(bad), func(s schedule) bool { return run(s, machines, none, nil) != "" })
	var story strings.Builder
	wrong = run(s, machines, none, func(e simulate.Event) { story.WriteString("\t" + e.At.String() + "\t" + e.Text + "\n") })
	t.Errorf("seed %d: %s\nwith:\n%s\nso:\n%s\nagain: go test ./test/simulation -run TestRandomSchedules -seed %d -runs 1", bad, wrong, s, story.String(), bad)
}

// search plays schedules on all processors until one fails; the seed that it answers is
// the first of those that were found.
func search(first uint64, n int, machines []*fsm.Machine, planted defect) (uint64, string) {
	var group sync.WaitGroup
	var mu sync.Mutex
	var next atomic.Uint64
	var found atomic.Bool
	bad, wrong := uint64(0), ""
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < uint64(n) && !found.Load(); i = next.Add(1) - 1 {
				said := run(draw(first+i), machines, planted, nil)
				if said == "" {
					continue
				}
				found.Store(true)
				mu.Lock()
				if wrong == "" || first+i < bad {
					bad, wrong = first+i, said
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return bad, wrong
}
