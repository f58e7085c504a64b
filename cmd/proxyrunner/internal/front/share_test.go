package front_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/front"
)

// holding is a server that answers once it is told to.
type holding struct {
	release chan struct{}
	now     *atomic.Int64
}

func (h holding) ServeHTTP(http.ResponseWriter, *http.Request) {
	h.now.Add(1)
	<-h.release
}

func (holding) Health() (ok bool, message string) { return true, "" }

// A client that opens all streams that it can leaves some to others, and places for calls, also for its own: behind an
// ingress all clients have one address.
func TestStreamsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := holding{make(chan struct{}), &atomic.Int64{}}
		f := front.New("sse")
		f.Open(server)
		f.TrustForwarded(true)
		var got []int64
		for _, c := range []struct {
			method, from, forwarded string
			requests                int
		}{
			{http.MethodGet, "10.0.0.1", "", 5000},
			{http.MethodGet, "10.0.0.2", "", 10},
			{http.MethodPost, "10.0.0.1", "", 10},
			{http.MethodGet, "10.0.0.9", "192.0.2.1", 5000},
			{http.MethodGet, "10.0.0.9", "192.0.2.1, 192.0.2.2", 10},
		} {
			before := server.now.Load()
			for range c.requests {
				r := httptest.NewRequest(c.method, "http://localhost/mcp", nil)
				r.RemoteAddr = c.from + ":1234"
				if c.forwarded != "" {
					r.Header.Set("X-Forwarded-For", c.forwarded)
				}
				go f.ServeHTTP(httptest.NewRecorder(), r)
			}
			synctest.Wait()
			got = append(got, server.now.Load()-before)
		}
		close(server.release)
		synctest.Wait()
		if diff := cmp.Diff([]int64{2268, 10, 10, 560, 10}, got); diff != "" {
			t.Errorf("served of 5000 streams of one client, 10 of a second, 10 calls of the first, 5000 streams of one behind an ingress, 10 of another there (-want +got):\n%s", diff)
		}
	})
}
