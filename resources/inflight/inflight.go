// Package inflight bounds how many requests of a process are on their way to the
// API server. It is no rate limit: when answers come fast, requests may go fast.
//
// An HTTP/2 connection has some hundred streams, and clients of a process may
// share one: more requests would wait in it where nobody sees them.
package inflight

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limit is shared by all clients that are made from a rest.Config which wraps it.
type Limit struct {
	slots   chan struct{}
	waiting prometheus.Histogram
}

// New allows most requests at a time and registers its metrics; call it once for
// each registry.
func New(most int, reg prometheus.Registerer) *Limit {
	l := &Limit{
		slots: make(chan struct{}, most),
		waiting: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "phasegate_requests_waiting_seconds",
			Help:    "How long requests waited because of --max-requests-in-flight.",
			Buckets: []float64{0.001, 0.01, 0.1, 1, 10}}),
	}
	reg.MustRegister(l.waiting,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "phasegate_requests_in_flight",
			Help: "Requests in flight to the API server, without watches and the lease."}, func() float64 { return float64(len(l.slots)) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "phasegate_requests_in_flight_limit",
			Help: "The limit of requests in flight, --max-requests-in-flight."}, func() float64 { return float64(cap(l.slots)) }))
	return l
}

// Wrap is for rest.Config.Wrap. A request has its turn until its answer is read or
// closed; a watch, whose answer does not end, needs none.
func (l *Limit) Wrap(next http.RoundTripper) http.RoundTripper { return &wrapped{next, l.send} }

func (l *Limit) send(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if isWatch(req) {
		return next.RoundTrip(req)
	}
	began := time.Now()
	select {
	case l.slots <- struct{}{}:
	case <-req.Context().Done():
		return unsent(req, req.Context().Err())
	}
	l.waiting.Observe(time.Since(began).Seconds())
	resp, err := next.RoundTrip(req)
	return whileRead(resp, err, func() { <-l.slots })
}

// wrapped sends each request as a limit says.
type wrapped struct {
	next http.RoundTripper
	send func(next http.RoundTripper, req *http.Request) (*http.Response, error)
}

func (w *wrapped) RoundTrip(req *http.Request) (*http.Response, error) { return w.send(w.next, req) }

// WrappedRoundTripper lets client-go find what is underneath.
func (w *wrapped) WrappedRoundTripper() http.RoundTripper { return w.next }

// unsent is for a request that did not get its turn.
func unsent(req *http.Request, err error) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close() // as every RoundTripper must
	}
	return nil, err
}

// whileRead keeps a turn until the answer is read or closed, or at once releases it where there is none.
func whileRead(resp *http.Response, err error, leave func()) (*http.Response, error) {
	if err != nil {
		leave()
		return nil, err
	}
	resp.Body = &body{resp.Body, sync.OnceFunc(leave)}
	return resp, nil
}

func isWatch(req *http.Request) bool {
	watch := req.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// body releases the turn with the answer's end.
type body struct {
	io.ReadCloser
	free func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.free()
	}
	return n, err
}

func (b *body) Close() error {
	defer b.free()
	return b.ReadCloser.Close()
}
