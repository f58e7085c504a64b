package main

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// read is one read, ended so many milliseconds after the prober began.
type read struct {
	at      int
	failed  bool
	blocked bool // v3 answered that the datastore is not ready
}

func TestAvailability(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	cases := map[string]struct {
		why         string
		reads       []read
		end         int
		gap, closed int
		failed      int
	}{
		"Steady":     {why: "the pause between two reads is all there is", reads: []read{{at: 20}, {at: 40}, {at: 60}}, end: 61, gap: 20},
		"Slow":       {why: "a client that waits for an answer has none, although no read failed", reads: []read{{at: 20}, {at: 520}, {at: 540}}, end: 541, gap: 500},
		"Failures":   {why: "failures end no gap", reads: []read{{at: 20}, {at: 40, failed: true}, {at: 60, failed: true}, {at: 80}}, end: 81, gap: 60, failed: 2},
		"Longest":    {why: "the longest of several counts, not their sum", reads: []read{{at: 20}, {at: 120}, {at: 130}, {at: 180}}, end: 181, gap: 100},
		"NeverAgain": {why: "a gap that is open at the end counts up to the end", reads: []read{{at: 20}, {at: 40, failed: true}}, end: 3020, gap: 3000, failed: 1},
		"Never":      {why: "no answer at all is one gap from the beginning", end: 700, gap: 700},
		"Locked": {why: "from the first answer that says not ready to the first that says ready, twice",
			reads: []read{{at: 20}, {at: 40, blocked: true}, {at: 60, blocked: true}, {at: 80}, {at: 100, blocked: true}, {at: 120}}, end: 121, gap: 20, closed: 60},
		"LockedOverFailures": {why: "while nobody answers, the last answer holds",
			reads: []read{{at: 20, blocked: true}, {at: 40, failed: true}, {at: 60}}, end: 61, gap: 40, closed: 40, failed: 1},
		"StillLocked": {why: "a lock that is never lifted counts up to the end", reads: []read{{at: 20, blocked: true}}, end: 1020, gap: 1000, closed: 1000},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			var a availability
			a.begin(began)
			for _, r := range tc.reads {
				if r.failed {
					a.unanswered(errors.New("503"))
				} else {
					a.answered(began.Add(ms(r.at)), !r.blocked)
				}
			}
			a.end(began.Add(ms(tc.end)))
			type measured struct {
				Gap, NotReady time.Duration
				Reads, Failed int
			}
			want := measured{ms(tc.gap), ms(tc.closed), len(tc.reads), tc.failed}
			if diff := cmp.Diff(want, measured{a.gap, a.notReady, a.reads, a.failed}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

func TestDatastoreReady(t *testing.T) {
	cases := map[string]struct {
		why, body string
		want      bool
		fails     bool
	}{
		"Ready":  {why: "the usual answer", body: `{"items":[{"spec":{"datastoreReady":true}}]}`, want: true},
		"Locked": {why: "the lock", body: `{"items":[{"spec":{"datastoreReady":false}}]}`},
		"Unset":  {why: "Calico takes an absent flag for not ready", body: `{"items":[{"spec":{}}]}`},
		"Empty":  {why: "v3 is served, but nothing is there yet", body: `{"items":[]}`},
		"Other":  {why: "a page of a proxy is no answer of v3's", body: `<html>`, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := datastoreReady([]byte(tc.body))
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("%s: got %t, %v", tc.why, got, err)
			}
		})
	}
}
