package front_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/front"
	"github.com/phasegate/phasegate/test/support/mcp/memnet"
)

// serve serves a handler on a network in memory, until the test ends.
func serve(t *testing.T, handler http.Handler) *memnet.Listener {
	t.Helper()
	l := memnet.Listen()
	stop := serving(t, l, handler, front.Ending{CutStreams: true})
	t.Cleanup(func() {
		stop()
		time.Sleep(time.Second) // on the clock of the bubble: net/http lets a client read why it was refused
	})
	return l
}

// A client that says nothing more, or reads nothing, is given up at last, whatever
// it was that it left undone.
func TestClientThatStopsIsGivenUp(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for name, test := range map[string]struct {
		why, sends string
		answer     func(w http.ResponseWriter, r *http.Request)
		limit      time.Duration
	}{
		"nothing sent":       {"a connection is memory too", "", nil, 15 * time.Second},
		"half a header":      {"the header has a limit, and so has the answer that says so", "POST / HT", nil, time.Minute},
		"body stops":         {"so has the body", post + "Content-Length: 1000\r\n\r\nxx", read, time.Minute},
		"chunked body stops": {"however it is sent", post + "Transfer-Encoding: chunked\r\n\r\n5\r\nxxxxx\r\n", read, time.Minute},
		"body nobody reads":  {"also if it is only passed over", post + "Content-Length: 1000\r\n\r\nxx", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, time.Minute},
		"short answer unread": {"it is written after the handler has ended", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "short") }, time.Minute},
		"long answer unread": {"it is written by the handler", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 4<<20)) }, time.Minute},
		"event unread": {"a stream lives, but not without a reader", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: x\n\n")
				_ = http.NewResponseController(w).Flush()
			}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if test.answer == nil {
					test.answer = read
				}
				l := serve(t, http.HandlerFunc(test.answer))
				c, err := l.Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }() // the test is over
				if _, err := io.WriteString(c, test.sends); err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.limit) // on the clock of the bubble
				synctest.Wait()
				_ = c.SetReadDeadline(time.Now()) // tells whether the other side has closed
				if n, err := io.Copy(io.Discard, c); err != nil {
					t.Errorf("after %s the connection is open (%d bytes, %v): %s", test.limit, n, err, test.why)
				}
			})
		})
	}
}

func read(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		w.WriteHeader(http.StatusRequestTimeout)
	}
}

// patient is a handler that says how long a request may take to come in.
type patient struct {
	http.Handler
	*front.Front
}

func (p patient) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.Handler.ServeHTTP(w, r) }

// The time that the spec of a server gives to a request counts for its header and its body.
func TestSlowRequestIsGivenUpInItsTime(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nxx"
	for name, c := range map[string]struct {
		why, sends   string
		within       time.Duration
		open, closed time.Duration
	}{
		"as ever":      {"nothing is said", post, 0, 29 * time.Second, 40 * time.Second},
		"shorter":      {"slow clients are given up sooner", post, 3 * time.Second, 2 * time.Second, 5 * time.Second},
		"short header": {"the header is a part of the request", "POST / HT", 3 * time.Second, 2 * time.Second, 5 * time.Second},
		"longer":       {"large requests come over slow lines", post, 2 * time.Minute, 119 * time.Second, 130 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := front.New("sse")
				f.ReadWithin(c.within)
				l := serve(t, patient{http.HandlerFunc(read), f})
				conn, err := l.Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }() // the test is over
				if _, err := io.WriteString(conn, c.sends); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_ = conn.SetReadDeadline(began.Add(c.closed))
				_, err = io.Copy(io.Discard, conn)
				if took := time.Since(began); err != nil || took < c.open {
					t.Errorf("given up after %s (%v), want between %s and %s: %s", took, err, c.open, c.closed, c.why)
				}
			})
		})
	}
}

// What takes its time and goes on is not given up.
func TestClientThatGoesOnIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			for n := range 3 {
				time.Sleep(time.Hour) // a tool that works, on the clock of the bubble
				if r.Context().Err() != nil {
					t.Errorf("the request was given up: %v", r.Context().Err())
				}
				_, _ = fmt.Fprintf(w, "data: %d\n\n", n)
				_ = http.NewResponseController(w).Flush()
			}
		}))
		c, err := l.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // the test is over
		in := bufio.NewReader(c)
		for range 2 { // the second on the same connection
			if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			if diff := cmp.Diff("data: 0\n\ndata: 1\n\ndata: 2\n\n", string(body)); diff != "" || err != nil {
				t.Errorf("the stream (-want +got):\n%s%v", diff, err)
			}
		}
	})
}

func TestHeadersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serve(t, http.HandlerFunc(read))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Long", strings.Repeat("x", 128<<10))
		client := l.Client()
		defer client.CloseIdleConnections()
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s for a header of 128 KiB, want 431: a thousand of them would fill the memory", answer.Status)
		}
	})
}
