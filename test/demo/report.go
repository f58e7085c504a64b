package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/equality"
)

const (
	countColumns = 2
	// shownDifferences is how many of a kind are printed; the error counts all.
	shownDifferences = 10
)

// printCounts shows how many objects of each kind are on both sides.
func printCounts(out *terminal, kinds []*resources.Kind, v1, v3 equality.Side) {
	var cells []string
	for _, kind := range kinds {
		cells = append(cells, fmt.Sprintf("%-30s%4d %4d", kind.Name(), v1.Count(kind.Name()), v3.Count(kind.Name())))
	}
	head := fmt.Sprintf("%-30s%4s %4s", "", "v1", "v3")
	out.line("%s", head+"    "+head)
	for row := range slices.Chunk(cells, countColumns) {
		out.line("%s", strings.Join(row, "    "))
	}
}

// printComparison shows what differs, and what is no difference but a default.
func printComparison(out *terminal, c equality.Comparison) {
	for _, found := range []struct {
		what string
		list []string
	}{{"missing in v3", c.Missing}, {"only in v3", c.Extra}, {"different", c.Different}} {
		for i, text := range found.list {
			if i == shownDifferences {
				out.line("%s: %d more", found.what, len(found.list)-i)
				break
			}
			out.line("%s: %s", found.what, text)
		}
	}
	if c.Equal() {
		out.line("every field of every v1 object is in v3 with the same value")
	}
	if len(c.NoStatus) > 0 {
		out.line("the status of %d objects is not carried over; Calico's components report it anew", len(c.NoStatus))
	}
	for _, path := range slices.Sorted(maps.Keys(c.Added)) {
		out.line("added by v3, as a default: %s in %d objects", strings.TrimPrefix(path, "."), c.Added[path])
	}
}

// summary is what the demo measured.
type summary struct {
	objects, kinds    int
	migrating, waited time.Duration
	seen              availability
	describeLines     int
	took              time.Duration
}

func (s summary) print(out *terminal) {
	out.line("")
	for _, row := range [][2]string{
		{"objects", fmt.Sprintf("%d, %d kinds and the lock; both sides equal", s.objects, s.kinds)},
		{"time in Migrating", seconds(s.migrating)},
		{"waited for a person", seconds(s.waited) + ", while nothing was locked"},
		{"datastore locked", seconds(s.seen.notReady)},
		{"longest gap in v3 reads", fmt.Sprintf("%s of %s allowed (%d reads, %d failed)",
			seconds(s.seen.gap), seconds(gapLimit), s.seen.reads, s.seen.failed)},
		{"kubectl describe", fmt.Sprintf("%d lines of %d allowed", s.describeLines, describeLimit)},
		{"result", fmt.Sprintf("success after %.0f s", s.took.Seconds())},
	} {
		out.line("%-25s%s", row[0], row[1])
	}
}
