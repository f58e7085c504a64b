package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/phasegate/phasegate/resources/inflight"
)

// What a migration marks as low priority must meet, in the client that it is given, the transport that knows the mark.
func TestCopiesKnowLowPriority(t *testing.T) {
	var inside, most atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		now := inside.Add(1)
		defer inside.Add(-1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		time.Sleep(10 * time.Millisecond)
	}))
	t.Cleanup(server.Close)
	unlimited := &rest.Config{Host: server.URL}
	p := &program{options: &options{maxRequests: 90}}
	client, err := rest.HTTPClientFor(p.copying(unlimited, rest.CopyConfig(unlimited)))
	if err != nil {
		t.Fatal(err)
	}
	together := func(ctx context.Context) int32 {
		most.Store(0)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			})
		}
		all.Wait()
		return most.Load()
	}
	if n := together(t.Context()); n < 2 {
		t.Errorf("%d requests at a time, want several: they are not marked", n)
	}
	if n := together(inflight.WithLowPriority(t.Context())); n != 1 {
		t.Errorf("%d marked requests at a time, want one: it is not known yet whether others write", n)
	}
}
