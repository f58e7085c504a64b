package runner

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// How often one object is looked at because something has changed: some times at once, since one deed
// makes several events, and then once a second. Forty events a second do not make a hot loop of a poll of 10 s.
// Its own times to be looked at, and its deletion, are not among these.
const (
	wakeEvery = time.Second
	wakeBurst = 5
)

// spread keeps the wake-ups of each object apart. The zero value is ready.
type spread struct {
	mu sync.Mutex
	// last is when an object was woken last, or will be; up to wakeBurst turns ago counts as free.
	last map[types.NamespacedName]time.Time
	// sweepAt is how many entries are looked through for those that count for nothing any more.
	sweepAt int
}

// sweepLeast is how many objects are remembered in any case.
const sweepLeast = 1024

// turn tells how long a wake-up is put off. Each event has one, also where a look is planned already: the
// queue may have brought that forward, to before the event, when it joined it with a sooner one.
func (s *spread) turn(key types.NamespacedName, now time.Time) (after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last[key]
	if last.After(now) {
		return last.Sub(now)
	}
	free := now.Add(-wakeBurst * wakeEvery)
	if last.Before(free) {
		last = free
	}
	if len(s.last) >= s.sweepAt { // what was not woken for a while is as if it never was, whether it exists or not
		left := map[types.NamespacedName]time.Time{} // a map that was large stays so
		for other, at := range s.last {
			if at.After(free) {
				left[other] = at
			}
		}
		s.last, s.sweepAt = left, max(2*len(left), sweepLeast)
	}
	next := last.Add(wakeEvery)
	s.last[key] = next
	return max(next.Sub(now), 0)
}

// drop forgets an object.
func (s *spread) drop(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, key)
}
