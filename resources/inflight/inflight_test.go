package inflight_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/phasegate/phasegate/resources/inflight"
)

// server answers at once, with a body that its reader holds open.
type server struct{ sent atomic.Int32 }

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	s.sent.Add(1)
	if req.URL.Path == "/broken" {
		return nil, errors.New("broken")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("answer"))}, nil
}

func ask(ctx context.Context, t *testing.T, via http.RoundTripper, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://kubernetes"+url, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	return via.RoundTrip(req)
}

// Whatever ends a request releases its turn, once.
func TestTurns(t *testing.T) {
	cases := map[string]struct {
		why string
		url string
		end func(*http.Response)
		// free tells that the only turn is there again.
		free bool
	}{
		"an open answer":       {why: "its stream is in use", url: "/api", end: func(*http.Response) {}},
		"a half-read answer":   {why: "its stream is in use", url: "/api", end: func(r *http.Response) { _, _ = r.Body.Read(make([]byte, 2)) }},
		"read to the end":      {why: "nothing more comes", url: "/api", end: func(r *http.Response) { _, _ = io.ReadAll(r.Body) }, free: true},
		"closed":               {why: "nobody wants the rest", url: "/api", end: func(r *http.Response) { r.Body.Close() }, free: true},
		"read and closed":      {why: "as client-go does it, and a turn released twice would be one too many", url: "/api", end: func(r *http.Response) { _, _ = io.ReadAll(r.Body); r.Body.Close(); r.Body.Close() }, free: true},
		"no answer":            {why: "there is nothing to close", url: "/broken", free: true},
		"a watch":              {why: "its answer does not end", url: "/api?allowWatchBookmarks=true&watch=true", end: func(*http.Response) {}, free: true},
		"a watch, as a number": {why: "the API server takes both", url: "/api?watch=1", end: func(*http.Response) {}, free: true},
		"explicitly no watch":  {why: "it is a list", url: "/api?watch=false", end: func(*http.Response) {}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry, s := prometheus.NewRegistry(), &server{}
				via := inflight.New(1, registry).Wrap(s)
				resp, err := ask(t.Context(), t, via, c.url)
				if err == nil {
					c.end(resp)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				next, err := ask(ctx, t, via, "/next")
				if got := err == nil; got != c.free {
					t.Fatalf("the next request: %v, sent %v: %s", err, s.sent.Load(), c.why)
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want the error of its context", err)
				}
				if next != nil {
					next.Body.Close()
				}
			})
		})
	}
}

// Of many, only as many as allowed are under way; the others come in their turn,
// and the time that they waited is told.
func TestMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, s := prometheus.NewRegistry(), &server{}
		limit := inflight.New(3, registry)
		// Two clients of one process share the limit.
		clients := []http.RoundTripper{limit.Wrap(s), limit.Wrap(s)}
		answers := make(chan *http.Response, 8)
		for i := range 8 {
			go func() {
				resp, err := ask(t.Context(), t, clients[i%2], "/api")
				if err != nil {
					t.Error(err)
				}
				answers <- resp
			}()
		}
		var sent []int
		for range 3 {
			synctest.Wait()
			sent = append(sent, int(s.sent.Load()))
			time.Sleep(time.Second)
			for range len(answers) {
				(<-answers).Body.Close()
			}
		}
		if diff := cmp.Diff([]int{3, 6, 8}, sent); diff != "" {
			t.Errorf("sent after 0, 1 and 2 seconds (-want +got):\n%s", diff)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			got[f.GetName()] = m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
		}
		want := map[string]float64{"phasegate_requests_in_flight": 0, "phasegate_requests_in_flight_limit": 3, "phasegate_requests_waiting_seconds": 3*1 + 2*2}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}
