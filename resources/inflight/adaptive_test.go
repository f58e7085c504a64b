package inflight_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/phasegate/phasegate/resources/inflight"
)

// model is an API server that works on so many requests at a time, each for so long; the others wait.
type model struct {
	cores   chan struct{}
	service time.Duration
	inside  atomic.Int32
	most    atomic.Int32
	// bears, if it is set, is how many are answered at a time; the others are too many.
	bears int32
	// trouble, if it is set, is the answer instead.
	trouble atomic.Pointer[func() (*http.Response, error)]
	sent    atomic.Int32
}

func newModel(cores int, service time.Duration) *model {
	return &model{cores: make(chan struct{}, cores), service: service}
}

func (m *model) RoundTrip(*http.Request) (*http.Response, error) {
	m.sent.Add(1)
	now := m.inside.Add(1)
	defer m.inside.Add(-1)
	for most := m.most.Load(); now > most && !m.most.CompareAndSwap(most, now); most = m.most.Load() {
	}
	if trouble := m.trouble.Load(); trouble != nil {
		time.Sleep(m.service)
		return (*trouble)()
	}
	if m.bears > 0 && now > m.bears {
		time.Sleep(m.service)
		return answer(http.StatusTooManyRequests, nil), nil
	}
	m.cores <- struct{}{}
	time.Sleep(m.service)
	<-m.cores
	return answer(http.StatusCreated, nil), nil
}

func answer(code int, header http.Header) *http.Response {
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(""))}
}

// copying sends as much as it may, with so many workers, until stop is called.
func copying(ctx context.Context, t *testing.T, via http.RoundTripper, workers int) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if resp, err := ask(ctx, t, via, "/apis"); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	return func() {
		close(done)
		all.Wait()
	}
}

func limitOf(t *testing.T, registry *prometheus.Registry) int {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "phasegate_copy_requests_in_flight_limit" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	t.Fatal("no limit is told")
	return 0
}

// The limit settles where the server is busy, whatever that is, and not far beyond, but not below 32 unless the
// server says so.
func TestAdaptiveFindsTheKnee(t *testing.T) {
	cases := map[string]struct {
		why      string
		cores    int
		service  time.Duration
		bears    int32
		from, to int
	}{
		"a small machine": {why: "fewer are dearer each, which nobody sees from here", cores: 2, service: 20 * time.Millisecond, from: 32, to: 40},
		"a busy one":      {why: "what it does not bear is sent twice", cores: 2, service: 20 * time.Millisecond, bears: 10, from: 2, to: 10},
		"a usual one":     {why: "it is found from below", cores: 50, service: 40 * time.Millisecond, from: 40, to: 72},
		"a slow disk":     {why: "answers are late, and many at a time are welcome", cores: 60, service: 100 * time.Millisecond, from: 40, to: 90},
		"no end":          {why: "more do not fit into one connection", cores: 1000, service: 100 * time.Millisecond, from: 60, to: 90},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry, m := prometheus.NewRegistry(), newModel(c.cores, c.service)
				m.bears = c.bears
				stop := copying(t.Context(), t, inflight.NewAdaptive(90, registry).Wrap(m), 90)
				time.Sleep(12 * time.Second)
				sum, looks := 0, 12
				for range looks {
					time.Sleep(500 * time.Millisecond)
					sum += limitOf(t, registry)
				}
				stop()
				if mean := sum / looks; mean < c.from || mean > c.to {
					t.Errorf("the limit is %d, want %d to %d: %s", mean, c.from, c.to, c.why)
				}
				if most := m.most.Load(); most > 90 {
					t.Errorf("%d requests at a time", most)
				}
			})
		})
	}
}

// A server that has too much is left alone for as long as it asks, then asked for half as much, and for as
// much as before once it bears it again.
func TestAdaptiveYields(t *testing.T) {
	cases := map[string]struct {
		why     string
		trouble func() (*http.Response, error)
		// quiet is how long nothing is sent.
		quiet time.Duration
	}{
		"too many requests": {why: "priority and fairness says so", quiet: 3 * time.Second, trouble: func() (*http.Response, error) {
			return answer(http.StatusTooManyRequests, http.Header{"Retry-After": {"3"}}), nil
		}},
		"unavailable": {why: "it restarts", trouble: func() (*http.Response, error) {
			return answer(http.StatusServiceUnavailable, nil), nil
		}},
		"no answer": {why: "it does not come to it", trouble: func() (*http.Response, error) { return nil, errors.New("timeout") }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry, m := prometheus.NewRegistry(), newModel(40, 100*time.Millisecond)
				stop := copying(t.Context(), t, inflight.NewAdaptive(90, registry).Wrap(m), 90)
				time.Sleep(12 * time.Second)
				before := limitOf(t, registry)
				m.trouble.Store(&c.trouble)
				time.Sleep(250 * time.Millisecond)
				if now := limitOf(t, registry); now > before*3/4 || now < before/5 {
					t.Errorf("the limit is %d after the first trouble, %d before: %s", now, before, c.why)
				}
				time.Sleep(250 * time.Millisecond)
				sent := m.sent.Load()
				if c.quiet > 0 {
					time.Sleep(c.quiet - 500*time.Millisecond)
					if now := m.sent.Load(); now != sent {
						t.Errorf("%d requests were sent while the server asked for a pause", now-sent)
					}
				}
				time.Sleep(5 * time.Second)
				if now := limitOf(t, registry); now > before/3 {
					t.Errorf("the limit is still %d after lasting trouble", now)
				}
				m.trouble.Store(nil)
				time.Sleep(20 * time.Second)
				if now := limitOf(t, registry); now < 20 {
					t.Errorf("the limit is %d long after the trouble, %d before it", now, before)
				}
				stop()
			})
		})
	}
}
