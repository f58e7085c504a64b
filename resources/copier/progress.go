package copier

import (
	"slices"
	"sync"
	"time"

	"github.com/phasegate/phasegate/resources"
)

const (
	// reportEvery and reportPause keep reports cheap: one per so many objects, and no two within so short a
	// time. What is only compared takes microseconds.
	reportEvery = 16
	reportPause = 20 * time.Millisecond
)

// tracker adds up what workers do and reports it.
type tracker struct {
	mu       sync.Mutex
	progress Progress
	index    map[string]int
	report   Report
	reported time.Time
}

func newTracker(kinds []*resources.Kind, totals []int64, report Report) *tracker {
	t := &tracker{index: map[string]int{}, report: report}
	for i, kind := range kinds {
		t.index[kind.Name()] = i
		t.progress.Kinds = append(t.progress.Kinds, KindProgress{Kind: kind.Name(), Counts: Counts{Total: totals[i]}})
		t.progress.Total += totals[i]
	}
	t.flush()
	return t
}

// done counts one finished object of a kind in the counter that which selects.
func (t *tracker) done(kind *resources.Kind, which counter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := &t.progress.Kinds[t.index[kind.Name()]]
	*which(&t.progress.Counts)++
	*which(&of.Counts)++
	t.progress.Done++
	of.Done++
	// v1 grew since it was counted: a percentage above 100 helps nobody.
	of.Total = max(of.Total, of.Done)
	t.progress.Total = max(t.progress.Total, t.progress.Done)
	if t.progress.Done%reportEvery == 0 && time.Since(t.reported) >= reportPause {
		t.send()
	}
}

// rejected counts an object that could not be copied, and tells of the first while the others are copied: a person may have to act.
func (t *tracker) rejected(kind *resources.Kind, problem resources.Problem) {
	t.mu.Lock()
	if t.progress.Problem == nil {
		t.progress.Problem = &problem
	}
	t.mu.Unlock()
	t.done(kind, rejected)
}

// moved counts an object elsewhere that was done.
func (t *tracker) moved(kind *resources.Kind, from, to counter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, counts := range []*Counts{&t.progress.Counts, &t.progress.Kinds[t.index[kind.Name()]].Counts} {
		*from(counts)--
		*to(counts)++
	}
}

// deleted counts objects that are no v1 object's and so not part of the total.
func (t *tracker) deleted(kind *resources.Kind, objects int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.progress.Deleted += objects
	t.progress.Kinds[t.index[kind.Name()]].Deleted += objects
}

func (t *tracker) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.send()
}

// send needs the lock: reports arrive one at a time and in order.
func (t *tracker) send() {
	if t.report != nil {
		t.report(t.snapshot())
		t.reported = time.Now()
	}
}

func (t *tracker) snapshot() Progress {
	p := t.progress
	p.Kinds = slices.Clone(p.Kinds)
	return p
}

// counter selects one of Counts.
type counter = func(*Counts) *int64

// The counters, for done.
func created(c *Counts) *int64      { return &c.Created }
func alreadyEqual(c *Counts) *int64 { return &c.AlreadyEqual }
func updated(c *Counts) *int64      { return &c.Updated }
func conflicted(c *Counts) *int64   { return &c.Conflicts }
func rejected(c *Counts) *int64     { return &c.Rejected }
func terminating(c *Counts) *int64  { return &c.Terminating }
func planned(c *Counts) *int64      { return &c.Planned }

// equal is where an object counts that needs nothing: one of ours was copied by
// an earlier try, and people are told that it is migrated, not skipped.
func equal(ours bool) counter {
	if ours {
		return func(c *Counts) *int64 { return &c.Kept }
	}
	return alreadyEqual
}
