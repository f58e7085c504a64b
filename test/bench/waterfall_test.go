package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/test/support/audit"
)

// longest is how many of the longest things in a locked window are named.
const longest = 3

// waterfallOf prints what the manager asked in a locked window, by the API server's audit log.
func waterfallOf(path string, c closure) error {
	calls, err := audit.Calls(path, "system:serviceaccount:default:"+chartAccount)
	if err != nil {
		return err
	}
	fmt.Print(waterfall(calls, c))
	return nil
}

// waterfall lists each call in a locked window, and each time without one, in ms since the lock; then the longest.
func waterfall(calls []audit.Call, c closure) string {
	var things []audit.Call
	free := c.closed
	for _, call := range append(slices.Clone(calls), audit.Call{From: c.opened, To: c.opened}) {
		if !call.To.After(c.closed) || call.From.After(c.opened) {
			continue
		}
		if call.From.Sub(free) >= time.Millisecond {
			things = append(things, audit.Call{Verb: "(no request)", From: free, To: call.From})
		}
		if call.To.After(free) {
			free = call.To
		}
		if call.Verb != "" {
			things = append(things, call)
		}
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	line := func(t audit.Call) string {
		return fmt.Sprintf("%8.1f %7.1f  %s\n", ms(t.From.Sub(c.closed)), ms(t.To.Sub(t.From)), t)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "locked for %.1f ms; start and length in ms since the lock:\n", ms(c.locked()))
	for _, t := range things {
		b.WriteString(line(t))
	}
	slices.SortStableFunc(things, func(a, b audit.Call) int { return cmp.Compare(b.To.Sub(b.From), a.To.Sub(a.From)) })
	b.WriteString("the longest:\n")
	for _, t := range things[:min(longest, len(things))] {
		b.WriteString(line(t))
	}
	return b.String()
}

// Requests side by side are no time without one, and what is before and after the lock does not count.
func TestWaterfall(t *testing.T) {
	began := time.Unix(100, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	got := waterfall([]audit.Call{
		{Verb: "get", Resource: "leases", From: at(-20), To: at(-10)},
		{Verb: "patch", Resource: "clusterinformations", Name: "default", From: at(-2), To: at(3)},
		{Verb: "list", Resource: "tiers", From: at(203), To: at(243)},
		{Verb: "list", Resource: "ippools", From: at(205), To: at(215)},
		{Verb: "list", Resource: "tiers", From: at(301), To: at(302)},
	}, closure{closed: began, opened: at(250)})
	want := `locked for 250.0 ms; start and length in ms since the lock:
    -2.0     5.0  patch clusterinformations default
     3.0   200.0  (no request)
   203.0    40.0  list tiers
   205.0    10.0  list ippools
   243.0     7.0  (no request)
the longest:
     3.0   200.0  (no request)
   203.0    40.0  list tiers
   205.0    10.0  list ippools
`
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
