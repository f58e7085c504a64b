package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// gcRoom is how much garbage may come between two collections, in bytes: with a small heap they would be
	// a third of the manager's CPU, on the cores of the API server that it waits for.
	gcRoom = 48 << 20
	// gcPercent is GOGC where that is more than gcRoom, half of Go's own: what a migration keeps in memory grows
	// with the number of objects, and the peak is to be small.
	gcPercent = 50
)

// paceCollector sets GOGC by what is alive after each collection, unless the environment has it. GOMEMLIMIT
// stays in force.
func paceCollector() {
	if os.Getenv("GOGC") == "" {
		pace()
	}
}

func pace() {
	debug.SetGCPercent(percentFor(aliveBytes()))
	runtime.AddCleanup(&collected{}, func(struct{}) { pace() }, struct{}{}) // after the next collection
}

// collected has a pointer, and so is never allocated together with something that lives longer.
type collected struct{ _ *collected }

func percentFor(alive uint64) int {
	return int(max(gcPercent, 100*gcRoom/max(alive, 4<<20)))
}

// aliveBytes is what the last collection found in use.
func aliveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
