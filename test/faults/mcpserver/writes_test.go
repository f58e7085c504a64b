package mcpserver_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/faults"
)

// countedServers is how many servers are counted: how often a view is written depends on when
// pods become ready, so the median counts.
const countedServers = 5

// budgets are how many writes something may take, as a median.
var budgets = map[string]int{"a start": 16, "a restart": 12}

// life is what has happened to one server.
type life struct {
	writes  []string
	entered []string // phases
}

// A start, a restart and a look at a server at rest take no more writes than they have to. A state is written where a
// phase is entered, and once when the templates are stamped: on a busy machine a server may be ready, not ready, and
// ready again. For the manager, no time passes: the end of a step that takes long is written as well.
func TestWritesOfALife(t *testing.T) {
	w := newWorld(t)
	w.clock = clocktesting.NewFakeClock(time.Now())
	all := map[string][]life{}
	for i := range countedServers {
		name := fmt.Sprintf("srv-%d", i)
		w.create(name)
		all["a start"] = append(all["a start"], w.counted(name, ready))
		token := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC).Format(time.RFC3339)
		w.askRestart(name, token, v1beta1.StrategyRolling)
		all["a restart"] = append(all["a restart"], w.counted(name, restarted(token)))
		w.quiet(name)
	}
	for what, lives := range all {
		slices.SortFunc(lives, func(a, b life) int { return len(a.writes) - len(b.writes) })
		median := lives[len(lives)/2].writes
		t.Logf("%s: %d to %d writes, median %d: %s", what, len(lives[0].writes), len(lives[len(lives)-1].writes), len(median), byResource(median))
		if len(median) > budgets[what] {
			t.Errorf("%s takes %d writes, want %d at most: %q", what, len(median), budgets[what], median)
		}
		for _, l := range lives {
			states := slices.DeleteFunc(slices.Clone(l.writes), func(write string) bool { return !strings.Contains(write, " machinestates") })
			if len(states) > len(l.entered)+1 {
				t.Errorf("%s enters %v and writes the state %d times, want once for each and once more: %q", what, l.entered, len(states), l.writes)
			}
		}
	}
}

// counted is what a process does that brings a server to where it should be. Events are not among its writes.
func (w *world) counted(name string, where func(*server) error) life {
	w.t.Helper()
	before := len(w.get(name).Status.Machine.History)
	listening := faults.New(&faults.Rule{When: faults.Write, Times: faults.Always, Do: faults.Pass})
	w.drive(listening, name, where)
	l := life{writes: listening.Met()}
	for _, t := range w.get(name).Status.Machine.History[before:] {
		l.entered = append(l.entered, t.To)
	}
	return l
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
