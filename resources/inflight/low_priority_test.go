package inflight_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phasegate/phasegate/resources/inflight"
)

// WithLowPriority there is one request at a time, and most of the time none: however many workers there are, and
// whatever becomes of a request. What is not marked, as under the lock, goes as if nobody was polite.
func TestLowPriority(t *testing.T) {
	refused := func() (*http.Response, error) { return nil, errors.New("connection refused") }
	cases := map[string]struct {
		why        string
		service    time.Duration
		trouble    func() (*http.Response, error)
		hurried    bool
		atOnce     int32
		sent, over int32
	}{
		"a request is short":  {why: "an eleventh of ten seconds", service: 10 * time.Millisecond, atOnce: 1, sent: 91, over: 1},
		"one hangs":           {why: "nobody gains from a rest of half an hour", service: 4 * time.Second, atOnce: 1, sent: 2, over: 1},
		"none is answered":    {why: "a server in trouble is left alone as well", service: 10 * time.Millisecond, trouble: refused, atOnce: 1, sent: 91, over: 1},
		"the rest is a hurry": {why: "v1 is locked", service: 100 * time.Millisecond, hurried: true, atOnce: 8, sent: 800, over: 8},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(100, c.service)
				if c.trouble != nil {
					m.trouble.Store(&c.trouble)
				}
				ctx := inflight.WithLowPriority(t.Context())
				if c.hurried {
					ctx = t.Context()
				}
				stop := copying(ctx, t, inflight.NewLowPriority().Wrap(m), 8)
				time.Sleep(10*time.Second - time.Millisecond)
				if most := m.most.Load(); most != c.atOnce {
					t.Errorf("%d requests at a time, want %d: %s", most, c.atOnce, c.why)
				}
				if sent := m.sent.Load(); sent < c.sent-c.over || sent > c.sent+c.over {
					t.Errorf("%d requests in ten seconds, want %d: %s", sent, c.sent, c.why)
				}
				stop()
			})
		})
	}
}

// A request that nobody waits for any more does not wait for its turn, nor does a watch, which would never
// release it.
func TestLowPriorityLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		via := inflight.NewLowPriority().Wrap(s)
		polite := inflight.WithLowPriority(t.Context())
		open, err := ask(polite, t, via, "/apis")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ask(polite, t, via, "/apis?watch=true"); err != nil {
			t.Errorf("a watch: %v", err)
		}
		hasty, cancel := context.WithTimeout(polite, time.Minute)
		defer cancel()
		if _, err := ask(hasty, t, via, "/apis"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while an answer is read: %v, want the deadline", err)
		}
		open.Body.Close()
		if _, err := ask(polite, t, via, "/apis"); err != nil {
			t.Errorf("once it is read: %v", err)
		}
		if sent := s.sent.Load(); sent != 3 {
			t.Errorf("%d requests were sent, want the first, the watch and the last", sent)
		}
	})
}
