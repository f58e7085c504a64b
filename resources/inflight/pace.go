package inflight

import (
	"slices"
	"time"
)

const (
	// sample is how many answers each place must have had before their median counts.
	sample = 8
	// floorDrift is what the floor grows with each median: what the API server needs for an object may change.
	floorDrift = 1.001
	// spare is up to how many times its floor a median says that nothing waits; beyond crowded, most requests do.
	spare, crowded = 1.1, 1.25
	// firstPatience is how many medians in a row must say so before one more is tried, and twice as many after each try
	// that was one too many, up to mostPatience: one more doubles the latency of others where there are two cores.
	firstPatience, mostPatience = 4, 256
	// lateAfter is from how many times its floor an answer is late, and restFor how long nothing is sent then, in times
	// by which it was late. The API server is busy with others, or collects garbage, for some tenths of a second.
	lateAfter, restFor = 2, 3
	// longestRest is after a request that hung.
	longestRest = time.Second
)

// pace decides how many requests there are at a time, and when none, by how long our own creates take: a gradient limiter,
// with a floor for each kind, since a policy takes three times as long as a handle. It keeps others from waiting, so that
// it stops at the first request that waits, while climb goes on as long as more answers come. github.com/failsafe-go's
// adaptivelimiter would not do: its baseline is the mean of the last ten windows, of which each is as slow as this copy
// made it; it never goes below one at a time without pauses, and has no means against 429 and Retry-After.
type pace struct {
	limit, most    int
	patience, good int
	creates        map[string]*latency // by resource
}

// latency is that of the creates of one kind.
type latency struct {
	floor time.Duration // the lowest of the medians; 0: not known yet
	last  []time.Duration
}

func newPace(most int) pace {
	return pace{limit: 1, most: most, patience: firstPatience, creates: map[string]*latency{}}
}

// created notes how long a create took, and returns how long its place is to rest.
func (p *pace) created(resource string, took time.Duration) time.Duration {
	l := p.creates[resource]
	if l == nil {
		l = &latency{}
		p.creates[resource] = l
	}
	late := time.Duration(0)
	if l.floor > 0 {
		late = max(0, took-lateAfter*l.floor)
	}
	if l.last = append(l.last, took); len(l.last) >= sample*p.limit {
		p.judge(l)
	}
	return min(longestRest, restFor*late)
}

// judge compares the median of the last creates with the floor.
func (p *pace) judge(l *latency) {
	slices.Sort(l.last)
	median := l.last[len(l.last)/2]
	l.last = l.last[:0]
	if l.floor = time.Duration(floorDrift * float64(l.floor)); l.floor == 0 || median < l.floor {
		l.floor = median
	}
	switch ratio := float64(median) / float64(l.floor); {
	case ratio > crowded && p.limit > 1:
		p.limit, p.good, p.patience = p.limit-1, 0, min(mostPatience, 2*p.patience)
	case ratio > spare:
		p.good = 0
	default:
		p.good++
	}
	if p.good >= p.patience {
		p.limit, p.good = min(p.most, p.limit+1), 0
	}
}
