package front_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/front"
	"github.com/phasegate/phasegate/test/support/mcp/memnet"
)

// ending is one in which the clock of a bubble can tell the steps apart.
var ending = front.Ending{Listen: 5 * time.Second, Drain: 20 * time.Second, CutStreams: true}

// serving serves a handler. stop ends it, and waits until it has ended.
func serving(t *testing.T, l net.Listener, handler http.Handler, end front.Ending) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- front.Serve(ctx, l, handler, end) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

// A proxy that ends, and one that takes its place once the cluster has noticed: no
// call of clients that know nothing of it is lost.
func TestNoCallIsLostAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const noticed, clients = 2 * time.Second, 10
		old, next := memnet.Listen(), memnet.Listen()
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(30 * time.Millisecond) // each client calls 33 times a second, and a call is always under way
			_, _ = io.WriteString(w, "done")
		})
		stopOld, stopNext := serving(t, old, handler, ending), serving(t, next, handler, ending)
		var moved, over atomic.Bool
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if moved.Load() {
					return next.Dial(ctx)
				}
				return old.Dial(ctx)
			}}}
		var calls, lost atomic.Int64
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for !over.Load() {
					calls.Add(1)
					answer, err := client.Post("http://x/mcp", "application/json", strings.NewReader("{}"))
					if err != nil {
						lost.Add(1)
						time.Sleep(30 * time.Millisecond)
						continue
					}
					if body, err := io.ReadAll(answer.Body); string(body) != "done" {
						t.Errorf("%s %q %v", answer.Status, body, err)
						lost.Add(1)
					}
					_ = answer.Body.Close()
				}
			})
		}
		time.Sleep(time.Second)
		time.AfterFunc(noticed, func() { moved.Store(true) })
		stopOld()
		time.Sleep(5 * time.Second)
		over.Store(true)
		all.Wait()
		client.CloseIdleConnections()
		stopNext()
		if lost.Load() != 0 {
			t.Errorf("%d of %d calls are lost, want none", lost.Load(), calls.Load())
		}
		time.Sleep(time.Second)
	})
}

// What a client meets when the proxy has been told to end.
func TestWhileEnding(t *testing.T) {
	type answer struct {
		Status int
		Close  bool
	}
	for name, test := range map[string]struct {
		why          string
		method, path string
		idle         bool          // on a connection that was used before
		after        time.Duration // of being told
		want         answer
	}{
		"new connection":            {"the cluster still sends clients here", "POST", "/mcp", false, time.Second, answer{200, true}},
		"connection in use":         {"its client does not know, and learns it", "POST", "/mcp", true, time.Second, answer{200, true}},
		"call while another drains": {"it may be what that one waits for", "POST", "/mcp", false, 7 * time.Second, answer{200, true}},
		"stream":                    {"it would end at once: it is opened elsewhere", "GET", "/mcp", false, time.Second, answer{503, true}},
		"listening":                 {"it is a stream, too", "POST", "/listen", false, time.Second, answer{503, true}},
		"probe":                     {"the proxy is up", "GET", "/health", false, time.Second, answer{200, true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := memnet.Listen()
				stop := serving(t, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/long" {
						time.Sleep(10 * time.Second)
					}
					_, _ = fmt.Fprint(w, "done")
				}), ending)
				client := l.Client()
				ask := func(method, path string) answer {
					r, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, nil)
					if err != nil {
						t.Fatal(err)
					}
					if path == "/listen" {
						r.Header.Set("Mcp-Method", "subscriptions/listen")
					}
					got, err := client.Do(r)
					if err != nil {
						t.Errorf("%s %s: %v", method, path, err)
						return answer{}
					}
					defer got.Body.Close()
					_, _ = io.Copy(io.Discard, got.Body)
					return answer{got.StatusCode, got.Close}
				}
				long := make(chan answer, 1)
				go func() { long <- ask("POST", "/long") }()
				if test.idle {
					ask("POST", "/mcp")
				}
				synctest.Wait()
				ended := make(chan struct{})
				go func() { stop(); close(ended) }()
				time.Sleep(test.after)
				if diff := cmp.Diff(test.want, ask(test.method, test.path)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", test.why, diff)
				}
				if got := <-long; got.Status != 200 {
					t.Errorf("the call under way got %+v", got)
				}
				client.CloseIdleConnections()
				<-ended
			})
		})
	}
}

// It ends in time, whatever is under way, and not before clients have had theirs to go elsewhere.
func TestEndsInTime(t *testing.T) {
	type seen struct {
		Request, Serve time.Duration // how long they take to end
		Lost           bool          // for the client of the request
	}
	for name, test := range map[string]struct {
		why, method string // of a request that waits for its end; empty: there is none
		end         front.Ending
		want        seen
	}{
		"nothing":         {"clients may still come", "", ending, seen{0, 5 * time.Second, false}},
		"stream":          {"its client opens it elsewhere", http.MethodGet, ending, seen{0, 5 * time.Second, false}},
		"stream, not cut": {"its server may end it", http.MethodGet, front.UsualEnding, seen{20 * time.Second, 20 * time.Second, true}},
		"call":            {"a pod has no more time", http.MethodPost, ending, seen{20 * time.Second, 20 * time.Second, true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got seen
				var told time.Time
				since := func() time.Duration { return time.Since(told).Round(time.Second) }
				l := memnet.Listen()
				stop := serving(t, l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					got.Request = since()
				}), test.end)
				client := l.Client()
				if test.method != "" {
					go func() {
						r, _ := http.NewRequestWithContext(t.Context(), test.method, "http://x/mcp", nil)
						answer, err := client.Do(r)
						if got.Lost = err != nil; !got.Lost {
							_ = answer.Body.Close()
						}
					}()
				}
				synctest.Wait()
				told = time.Now()
				stop()
				got.Serve = since()
				synctest.Wait()
				client.CloseIdleConnections()
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", test.why, diff)
				}
			})
		})
	}
}
