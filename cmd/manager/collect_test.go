package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/support/harness"
)

func TestPercentFor(t *testing.T) {
	cases := map[string]struct {
		why   string
		alive uint64
		want  int
	}{
		"start": {why: "nothing was collected yet, and what comes may be alive before this is set anew", alive: 0, want: 150},
		"small": {why: "80 MiB in all", alive: 40 << 20, want: 100},
		"edge":  {why: "with a quarter of 64 MiB it is 80 MiB in all, and the least by then", alive: 64 << 20, want: 25},
		"large": {why: "a quarter of what is alive, never less than nothing", alive: 1 << 30, want: 25},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := percentFor(c.alive); got != c.want {
				t.Errorf("%d bytes: %d %%, want %d: %s", c.alive, got, c.want, c.why)
			}
		})
	}
}

// The heap of a migration grows and shrinks, and the pace goes with it each time: what was set once would be
// too much for a large heap, or too little for a small one.
func TestPaceFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	paceCollector()
	awaitPercent(t, "of a small heap", func(p uint64) bool { return p > gcPercent })
	heap := make([]byte, 2*gcHeap)
	awaitPercent(t, "of a large one", func(p uint64) bool { return p == gcPercent })
	runtime.KeepAlive(heap)
	awaitPercent(t, "of a small one again", func(p uint64) bool { return p > gcPercent })
}

func awaitPercent(t *testing.T, what string, good func(uint64) bool) {
	t.Helper()
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	err := harness.Await(t.Context(), "GOGC "+what, 5*time.Second, func(context.Context) error {
		runtime.GC()
		if metrics.Read(sample); !good(sample[0].Value.Uint64()) {
			return fmt.Errorf("it is %d", sample[0].Value.Uint64())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
