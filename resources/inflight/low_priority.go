package inflight

import (
	"context"
	"net/http"
	"time"
)

const (
	// restFor is how long nothing is sent after a polite request, in times that it took. Others are late while
	// the API server collects garbage, for some tenths of a second, which it does the more often the more it is
	// given. The 99th percentile of their answers is to be at most twice what it is at rest: with a rest of three
	// times it was 1.8 to 2.9 times that, with seven 1.6 to 2.4 (make bench-neighbour, 5,000 objects, two cores).
	restFor = 10
	// longestRest is after a request that hung.
	longestRest = time.Second
)

type lowPriorityKey struct{}

// WithLowPriority marks the requests with this context as those that can wait; see LowPriority.
func WithLowPriority(ctx context.Context) context.Context {
	return context.WithValue(ctx, lowPriorityKey{}, true)
}

// IsLowPriority tells whether they are marked so.
func IsLowPriority(ctx context.Context) bool { return ctx.Value(lowPriorityKey{}) != nil }

// LowPriority leaves others most of the API server: of the requests that are marked by WithLowPriority there is one at a
// time, and after each none for ten times as long as it took. Those that are not marked, and watches, pass.
type LowPriority struct{ turn chan struct{} }

// NewLowPriority is shared by all clients that are made from a rest.Config which wraps it.
func NewLowPriority() *LowPriority { return &LowPriority{turn: make(chan struct{}, 1)} }

// Wrap is for rest.Config.Wrap. A request has its turn until its answer is read or closed.
func (p *LowPriority) Wrap(next http.RoundTripper) http.RoundTripper { return &wrapped{next, p.send} }

func (p *LowPriority) send(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if !IsLowPriority(req.Context()) || isWatch(req) {
		return next.RoundTrip(req)
	}
	select {
	case p.turn <- struct{}{}:
	case <-req.Context().Done():
		return unsent(req, req.Context().Err())
	}
	sent := time.Now()
	resp, err := next.RoundTrip(req)
	return whileRead(resp, err, func() {
		time.AfterFunc(min(longestRest, restFor*time.Since(sent)), func() { <-p.turn })
	})
}
