package mcpserver_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/faults"
)

// countedServers is how many servers are counted: how often a view is written depends on when
// pods become ready, so the median counts.
const countedServers = 5

// budget is how many writes something may take.
type budget struct {
	// median of all writes; states is for each single server.
	median, states int
}

// budgets by what is done. When status.machine was the truth, there was no state, and a
// start took 13 writes, a restart 8. States change where a phase is entered, and when the
// templates are stamped.
var budgets = map[string]budget{"a start": {16, 2}, "a restart": {12, 3}}

// A start, a restart and a look at a server at rest take no more writes than they have to.
func TestWritesOfALife(t *testing.T) {
	w := newWorld(t)
	all := map[string][][]string{}
	for i := range countedServers {
		name := fmt.Sprintf("srv-%d", i)
		w.create(name)
		all["a start"] = append(all["a start"], w.counted(name, ready))
		token := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC).Format(time.RFC3339)
		w.askRestart(name, token, v1beta1.StrategyRolling)
		all["a restart"] = append(all["a restart"], w.counted(name, restarted(token)))
		w.quiet(name)
	}
	for what, counts := range all {
		slices.SortFunc(counts, func(a, b []string) int { return len(a) - len(b) })
		median, want := counts[len(counts)/2], budgets[what]
		t.Logf("%s: %d to %d writes, median %d: %s", what, len(counts[0]), len(counts[len(counts)-1]), len(median), byResource(median))
		if len(median) > want.median {
			t.Errorf("%s takes %d writes, want %d at most: %q", what, len(median), want.median, median)
		}
		for _, writes := range counts {
			states := slices.DeleteFunc(slices.Clone(writes), func(write string) bool { return !strings.Contains(write, " machinestates ") })
			if len(states) > want.states {
				t.Errorf("%s writes the state %d times, want %d: %q", what, len(states), want.states, writes)
			}
		}
	}
}

// counted are the writes of a process that brings a server to where it should be. Events are
// not among them.
func (w *world) counted(name string, where func(*server) error) []string {
	w.t.Helper()
	listening := faults.New(&faults.Rule{When: faults.Write, Times: faults.Always, Do: faults.Pass})
	w.drive(listening, name, where)
	return listening.Met()
}

// byResource is how often each verb was used on each resource.
func byResource(writes []string) string {
	counts := map[string]int{}
	for _, write := range writes {
		fields := strings.Fields(write)
		counts[strings.Join(fields[:min(2, len(fields))], " ")]++
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, counts[what]))
	}
	return strings.Join(parts, ", ")
}
