package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// gcHeap is what the heap may grow to before it is collected, in bytes: with GOGC alone, the collections of a
	// small heap would be a third of the manager's CPU, on the cores of the API server that it waits for.
	gcHeap = 80 << 20
	// gcLeast is how much is taken to be alive at least, in bytes, so that GOGC is never above 150. What is set after
	// a collection takes effect when its sweep comes by, which may be half of the way to the next one: what leads
	// 4 MiB to 80 would lead 20 to 400 meanwhile.
	gcLeast = 32 << 20
	// gcPercent is GOGC where that lets the heap grow further, a quarter of Go's own: what a migration keeps in memory
	// grows with the number of objects, and the peak is to be small.
	gcPercent = 25
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
	alive = min(max(alive, gcLeast), gcHeap)
	return int(max(gcPercent, 100*(gcHeap-alive)/alive))
}

// aliveBytes is what the last collection found in use.
func aliveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
