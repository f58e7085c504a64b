package inflight_test

import (
	"context"
	"errors"
	"fmt"
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

// cluster is an API server whose answers have etcd's revisions, and which others write.
type cluster struct {
	*model
	revision atomic.Int64
	mu       sync.Mutex
	slow     time.Duration // how much longer a request takes now
}

func (c *cluster) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.model.RoundTrip(req)
	c.mu.Lock()
	slow := c.slow
	c.mu.Unlock()
	time.Sleep(slow)
	if err == nil {
		resp.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(`{"metadata":{"name":"a","resourceVersion":"%d"}}`, c.revision.Add(1))))
	}
	return resp, err
}

// others make so many writes a second until stop is closed.
func (c *cluster) others(each int, stop <-chan struct{}) {
	for ticker := time.NewTicker(time.Second); ; {
		select {
		case <-stop:
			ticker.Stop()
			return
		case <-ticker.C:
			c.revision.Add(int64(each))
		}
	}
}

func (c *cluster) slower(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slow = by
}

// Requests with low priority are as many at a time as do not wait for each other, while others write; and all that there
// are where nobody else writes, or where they are not marked, as under the lock.
func TestLowPriority(t *testing.T) {
	cases := map[string]struct {
		why      string
		cores    int
		others   int
		hurried  bool
		least    float64 // requests in flight, on average of the last seconds
		mostThen float64
	}{
		"others write, two cores":  {why: "a third request would wait, and so would others", cores: 2, others: 20, least: 0.9, mostThen: 2.5},
		"others write, one core":   {why: "a second one would wait", cores: 1, others: 20, least: 0.9, mostThen: 1.5},
		"others write, many cores": {why: "it has to spare", cores: 64, others: 20, least: 20, mostThen: 90},
		"only leases are written":  {why: "nobody feels it", cores: 2, others: 6, least: 85, mostThen: 90},
		"v1 is locked":             {why: "pods wait for their addresses", cores: 2, others: 20, hurried: true, least: 85, mostThen: 90},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, stop := &cluster{model: newModel(c.cores, 10*time.Millisecond)}, make(chan struct{})
				go server.others(c.others, stop)
				ctx := inflight.WithLowPriority(t.Context())
				if c.hurried {
					ctx = t.Context()
				}
				end := copying(ctx, t, inflight.NewLowPriority(90, prometheus.NewRegistry()).Wrap(server), 90)
				time.Sleep(60 * time.Second)
				sum, looks := 0, 1000
				for range looks {
					time.Sleep(9 * time.Millisecond)
					sum += int(server.inside.Load())
				}
				if mean := float64(sum) / float64(looks); mean < c.least || mean > c.mostThen {
					t.Errorf("%.1f requests at a time, want %v to %v: %s", mean, c.least, c.mostThen, c.why)
				}
				end()
				close(stop)
			})
		})
	}
}

// A late answer is followed by a rest of three times its lateness, so that a busy API server has time for others.
func TestLowPriorityRests(t *testing.T) {
	cases := map[string]struct {
		why  string
		slow time.Duration
		sent int32 // in ten seconds
	}{
		"in time":            {why: "nothing waits", sent: 1000},
		"twice as long":      {why: "so much differs from object to object", slow: 10 * time.Millisecond, sent: 500},
		"three times":        {why: "30 ms, and 3 × 10 ms of rest", slow: 20 * time.Millisecond, sent: 167},
		"longer than a rest": {why: "nobody gains from a rest of half an hour", slow: 4 * time.Second, sent: 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, stop := &cluster{model: newModel(1, 10*time.Millisecond)}, make(chan struct{})
				go server.others(20, stop)
				end := copying(inflight.WithLowPriority(t.Context()), t, inflight.NewLowPriority(1, prometheus.NewRegistry()).Wrap(server), 8)
				time.Sleep(5*time.Second + time.Millisecond)
				server.slower(c.slow)
				before := server.sent.Load()
				time.Sleep(10 * time.Second)
				if sent := server.sent.Load() - before; sent < c.sent-c.sent/20-1 || sent > c.sent+c.sent/20+1 {
					t.Errorf("%d requests in ten seconds, want %d: %s", sent, c.sent, c.why)
				}
				end()
				close(stop)
			})
		})
	}
}

// A request that nobody waits for any more does not wait for its turn, nor does a watch, which would never
// release it.
func TestLowPriorityLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		via := inflight.NewLowPriority(1, prometheus.NewRegistry()).Wrap(s)
		marked := inflight.WithLowPriority(t.Context())
		open, err := ask(marked, t, via, "/apis")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ask(marked, t, via, "/apis?watch=true"); err != nil {
			t.Errorf("a watch: %v", err)
		}
		hasty, cancel := context.WithTimeout(marked, time.Minute)
		defer cancel()
		if _, err := ask(hasty, t, via, "/apis"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while an answer is read: %v, want the deadline", err)
		}
		open.Body.Close()
		if _, err := ask(marked, t, via, "/apis"); err != nil {
			t.Errorf("once it is read: %v", err)
		}
		if sent := s.sent.Load(); sent != 3 {
			t.Errorf("%d requests were sent, want the first, the watch and the last", sent)
		}
	})
}
