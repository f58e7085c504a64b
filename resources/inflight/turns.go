package inflight

import (
	"context"
	"slices"
	"sync"
	"time"
)

// turns are places for requests, taken in the order of asking. Its fields are guarded by mu.
type turns struct {
	mu       sync.Mutex
	limit    int // how many requests there may be at a time
	inFlight int
	queue    []chan struct{} // the waiting requests, in order
	paused   time.Time       // until then nothing is sent
}

// enter waits for a turn. Without an error, the caller calls leave.
func (t *turns) enter(ctx context.Context) error {
	turn := make(chan struct{})
	t.mu.Lock()
	t.queue = append(t.queue, turn)
	t.admit()
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.queue, turn); i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
		return ctx.Err()
	}
	t.inFlight-- // it was admitted meanwhile
	t.admit()
	return ctx.Err()
}

// admit is called with mu held.
func (t *turns) admit() {
	if time.Now().Before(t.paused) {
		return // whoever paused it admits them
	}
	for len(t.queue) > 0 && t.inFlight < t.limit {
		close(t.queue[0])
		t.queue = t.queue[1:]
		t.inFlight++
	}
}

func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight--
	t.admit()
}

// told is what a metric tells of t, or of what it guards.
func (t *turns) told(value func() int) func() float64 {
	return func() float64 {
		t.mu.Lock()
		defer t.mu.Unlock()
		return float64(value())
	}
}
