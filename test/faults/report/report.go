// Package report collects what experiments with faults have come to, and prints a
// line for each at the end.
package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// Experiment is one kind of fault, tried many times. Its methods may be called from
// several goroutines.
type Experiment struct {
	mu sync.Mutex
	line
}

type line struct {
	name                   string
	runs, passes, ofWrites int
	worst                  time.Duration
}

var (
	mu  sync.Mutex
	all = map[string]*Experiment{}
)

// Of returns the experiment of this name; a name that is new begins one.
func Of(name string) *Experiment {
	mu.Lock()
	defer mu.Unlock()
	if all[name] == nil {
		all[name] = &Experiment{line: line{name: name}}
	}
	return all[name]
}

// Ran adds a run: whether everything held that must hold, and how long it took from the
// fault to the next place where the migration rests; 0 where there was no fault.
func (e *Experiment) Ran(passed bool, recovery time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs++
	if passed {
		e.passes++
	}
	e.worst = max(e.worst, recovery)
}

// Writes tells how many writes a run without faults has. The highest number counts.
func (e *Experiment) Writes(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ofWrites = max(e.ofWrites, n)
}

// Print writes the table, by name; nothing where there was no experiment.
func Print(to io.Writer) error {
	mu.Lock()
	defer mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	var lines []line
	for _, e := range all {
		e.mu.Lock()
		lines = append(lines, e.line)
		e.mu.Unlock()
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.name, b.name) })
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "EXPERIMENT\tRUNS\tPASSES\tWRITES\tWORST RECOVERY")
	for _, l := range lines {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\n", l.name, l.runs, l.passes, orDash(l.ofWrites > 0, l.ofWrites),
			orDash(l.worst > 0, l.worst.Round(10*time.Millisecond)))
	}
	return table.Flush()
}

func orDash(known bool, value any) string {
	if !known {
		return "-"
	}
	return fmt.Sprint(value)
}
