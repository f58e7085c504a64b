package inflight

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// window is how long a limit is tried at least.
	window = 200 * time.Millisecond
	// rounds is how many answers each place must have had in a window.
	rounds = 4
)

// Adaptive bounds how many requests of a copy are on their way to the API server by what it gains: as many
// as bring more answers a second, and soon 32 whatever they bring. When the server has too much, which it says, or
// does not answer, the number is halved, and nothing is sent for as long as the server asks.
type Adaptive struct {
	turns
	climb  climb
	halved time.Time // answers to what was sent before say nothing new

	// The window: since when, how many writes were answered, and whether there was always one more to send.
	began   time.Time
	answers int
	idle    bool
}

// NewAdaptive allows most requests at a time, and registers its metrics; call it once for each registry.
func NewAdaptive(most int, reg prometheus.Registerer) *Adaptive {
	a := &Adaptive{turns: turns{limit: min(firstLimit, most)}, climb: climb{most: most, bears: most}, idle: true}
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "phasegate_copy_requests_in_flight",
			Help: "Requests of a copy in flight to the API server."}, a.told(func() int { return a.inFlight })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "phasegate_copy_requests_in_flight_limit",
			Help: "The present limit of requests of a copy in flight."}, a.told(func() int { return a.limit })))
	return a
}

// Wrap is for rest.Config.Wrap. A request has its turn until its answer is read or closed.
func (a *Adaptive) Wrap(next http.RoundTripper) http.RoundTripper { return &wrapped{next, a.send} }

func (a *Adaptive) send(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if err := a.enter(req.Context()); err != nil {
		return unsent(req, err)
	}
	sent := time.Now()
	resp, err := next.RoundTrip(req)
	if wait, tooMuch := overload(resp, err); tooMuch {
		a.halve(sent, wait)
	} else if err == nil && req.Method != http.MethodGet { // a list takes as long as it is long
		a.answered()
	}
	return whileRead(resp, err, a.leave)
}

// overload tells whether the API server has had too much, and how long it asks to be left alone.
func overload(resp *http.Response, err error) (wait time.Duration, tooMuch bool) {
	if err != nil {
		return 0, !errors.Is(err, context.Canceled)
	}
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError {
		return 0, false
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second, true
}

func (a *Adaptive) leave() {
	a.turns.leave()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.idle = a.idle || a.starves()
}

// answered counts a write, and ends the window when it has seen enough. One in which there was not always
// something to send tells nothing.
func (a *Adaptive) answered() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers++
	took := time.Since(a.began)
	if took < window || a.answers < rounds*a.limit {
		return
	}
	if !a.idle {
		a.limit = a.climb.next(a.limit, float64(a.answers)/took.Seconds())
	}
	a.begin()
}

func (a *Adaptive) begin() {
	a.began, a.answers, a.idle = time.Now(), 0, false
	a.admit()
	a.idle = a.starves()
}

// starves tells that there is not enough to send: to have as many waiting as there are places is too much
// to ask of as many workers.
func (a *Adaptive) starves() bool { return 2*a.inFlight < a.limit }

// halve is called for each request that was too much, and halves once for all that were sent together.
func (a *Adaptive) halve(sent time.Time, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if end := time.Now().Add(wait); wait > 0 && end.After(a.paused) {
		a.paused = end
		time.AfterFunc(wait, a.resume)
	}
	if sent.Before(a.halved) {
		return
	}
	a.halved = time.Now()
	a.limit = a.climb.halve(a.limit)
	a.begin()
}

func (a *Adaptive) resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin()
}
