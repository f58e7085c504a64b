package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// kind of a fault: what happens to the driver, to an action, or to the object.
type kind string

const (
	crashes   kind = "the driver is killed"
	conflicts kind = "somebody else writes before the next status write"
	fails     kind = "the next action fails"
	outage    kind = "every action fails for 40 minutes"
	gives     kind = "the next action fails for good"
	waits     kind = "the next action is not done"
	lies      kind = "the next action does its work and says that it failed"
	finds     kind = "the next action finds something, for a while"
	drags     kind = "the next action takes 10 minutes"
	closes    kind = "a guard is closed for a while"
	blinds    kind = "a guard cannot be asked for a while"
	deletes   kind = "the object is deleted"
	asks      kind = "somebody asks for another try"
	wakes     kind = "a watched object changes"
	passes    kind = "time passes"
	steps     kind = "the clock is set"
	edits     kind = "the machine file changes"
	vanishes  kind = "the finalizer is removed by hand, and the object deleted"
	prunes    kind = "the status of the object is lost"
	loses     kind = "the state is deleted by hand, and restored some looks later"
)

// drawn are the kinds as often as they are drawn. A deletion ends most stories early.
var drawn = slices.Concat(
	slices.Repeat([]kind{crashes}, 8), slices.Repeat([]kind{conflicts}, 3), slices.Repeat([]kind{fails}, 3), slices.Repeat([]kind{finds}, 4),
	slices.Repeat([]kind{lies}, 3), slices.Repeat([]kind{waits}, 2), slices.Repeat([]kind{passes}, 3),
	[]kind{outage, outage, gives, drags, closes, blinds, deletes, asks, asks, wakes, steps, edits, edits, vanishes, prunes, loses})

// fault is one thing that goes wrong: as soon as it can, from an event on. Events are
// the looks of the driver, and the moments before and after each of its commands.
type fault struct {
	At   int
	Do   kind
	Pick int // which guard, how long, and so on
}

func (f fault) String() string { return fmt.Sprintf("from event %d on: %s (%d)", f.At, f.Do, f.Pick) }

type schedule []fault

func (s schedule) String() string {
	var lines []string
	for _, f := range s {
		lines = append(lines, "\t"+f.String())
	}
	return strings.Join(lines, "\n")
}

// draw makes the schedule of a seed: mostly a few faults, at times very many.
func draw(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 0))
	n, span := 1+r.IntN(8), []int{60, 150, 400}[r.IntN(3)]
	if r.IntN(8) == 0 {
		n = 20 + r.IntN(30)
	}
	s := make(schedule, n)
	for i := range s {
		s[i] = fault{At: r.IntN(span), Do: drawn[r.IntN(len(drawn))], Pick: r.IntN(1000)}
	}
	slices.SortStableFunc(s, func(a, b fault) int { return a.At - b.At })
	return s
}

// shrink leaves out what does not matter, as long as it still fails.
func shrink(s schedule, failing func(schedule) bool) schedule {
	for i := 0; i < len(s); {
		if fewer := slices.Delete(slices.Clone(s), i, i+1); failing(fewer) {
			s = fewer
		} else {
			i++
		}
	}
	return s
}
