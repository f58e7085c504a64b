package inflight

import (
	"context"
	"math"
	"net/http"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type lowPriorityKey struct{}

// WithLowPriority marks the requests with this context as those that can wait; see LowPriority.
func WithLowPriority(ctx context.Context) context.Context {
	return context.WithValue(ctx, lowPriorityKey{}, true)
}

// IsLowPriority tells whether they are marked so.
func IsLowPriority(ctx context.Context) bool { return ctx.Value(lowPriorityKey{}) != nil }

// LowPriority leaves others the API server as they find it without us: while others write, the requests that are marked by
// WithLowPriority are as few as pace says, and rest when one is late. Those that are not marked, and watches, pass; and
// all of them while others write less than some objects a second. Reads of others are seen by our own latency only.
type LowPriority struct {
	turns
	census census
	pace   pace
	alone  bool
}

// NewLowPriority allows most requests at a time, and registers its metric; call it once for each registry. It is shared
// by all clients that are made from a rest.Config which wraps it.
func NewLowPriority(most int, reg prometheus.Registerer) *LowPriority {
	p := &LowPriority{turns: turns{limit: 1}, pace: newPace(most)}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "phasegate_copy_ahead_requests_in_flight_limit",
		Help: "The present limit of requests before the lock; 0 while no other client writes."}, p.told(func() int {
		if p.alone {
			return 0
		}
		return p.limit
	})))
	return p
}

// Wrap is for rest.Config.Wrap. A request has its turn until its answer is read or closed.
func (p *LowPriority) Wrap(next http.RoundTripper) http.RoundTripper { return &wrapped{next, p.send} }

func (p *LowPriority) send(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	marked := IsLowPriority(req.Context()) && !isWatch(req)
	if marked {
		if err := p.enter(req.Context()); err != nil {
			return unsent(req, err)
		}
	}
	sent := time.Now()
	resp, err := next.RoundTrip(req)
	if err == nil && req.Method != http.MethodGet && !req.URL.Query().Has("dryRun") {
		resp.Body = &revisionReader{resp.Body, p.wrote}
	}
	if !marked {
		return resp, err
	}
	return whileRead(resp, err, func() { p.rest(req, time.Since(sent)) })
}

// wrote counts a write of ours, to see those of others.
func (p *LowPriority) wrote(revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if others, known := p.census.wrote(revision, time.Now()); known {
		p.alone = !others
		p.setLimit()
	}
}

// rest ends the turn of a request, at once or later. What is not a create takes as long as it is long.
func (p *LowPriority) rest(req *http.Request, took time.Duration) {
	p.mu.Lock()
	var rest time.Duration
	if !p.alone && req.Method == http.MethodPost {
		rest = p.pace.created(path.Base(req.URL.Path), took)
		p.setLimit()
	}
	p.mu.Unlock()
	if rest > 0 {
		time.AfterFunc(rest, p.leave)
		return
	}
	p.leave()
}

// setLimit is called with mu held.
func (p *LowPriority) setLimit() {
	if p.limit = p.pace.limit; p.alone {
		p.limit = math.MaxInt
	}
	p.admit()
}
