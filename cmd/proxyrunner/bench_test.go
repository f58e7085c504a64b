package main_test

import (
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/phasegate/phasegate/test/support/harness"
)

// BenchmarkAddedLatency calls a tool directly and through the proxy, in turns, one
// call at a time, and reports both medians and their difference. The machine is
// then doing the same in either case.
func BenchmarkAddedLatency(b *testing.B) {
	cluster := harness.ForTest(b, harness.Options{Own: true, Nodes: 1})
	for _, transport := range httpTransports {
		b.Run(transport, func(b *testing.B) {
			w := newWorld(b, cluster, transport)
			w.startEcho()
			w.startProxy()
			w.await("healthy")
			direct, err := w.connect(w.echoAddress())
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = direct.Close() }() // what is said before is measured
			ways := []*mcp.ClientSession{direct, w.client()}
			var took [2][]time.Duration
			for b.Loop() {
				for way, session := range ways {
					began := time.Now()
					if err := say(b.Context(), session, "hello"); err != nil {
						b.Fatal(err)
					}
					took[way] = append(took[way], time.Since(began))
				}
			}
			var median [2]float64 // µs
			for way := range took {
				slices.Sort(took[way])
				median[way] = float64(took[way][len(took[way])/2]) / float64(time.Microsecond)
			}
			b.ReportMetric(0, "ns/op") // of two calls: hides it
			b.ReportMetric(median[0], "direct-p50-µs")
			b.ReportMetric(median[1], "proxied-p50-µs")
			b.ReportMetric(median[1]-median[0], "added-p50-µs")
		})
	}
}
