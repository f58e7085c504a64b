package limit_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

func TestSurplusConnectionIsClosed(t *testing.T) {
	const fresh, active, idle, closed = http.StateNew, http.StateActive, http.StateIdle, http.StateClosed
	type step struct {
		conn  int
		state http.ConnState
	}
	for name, test := range map[string]struct {
		why   string
		steps []step
		want  []int // that are closed, of at most two
	}{
		"as many as may be":   {"nothing is too much", []step{{0, fresh}, {1, fresh}}, nil},
		"silent ones":         {"the first one has said nothing for longest", []step{{0, fresh}, {1, fresh}, {2, fresh}}, []int{0}},
		"one serves":          {"a request is not cut off", []step{{0, fresh}, {0, active}, {1, fresh}, {2, fresh}}, []int{1}},
		"one has served":      {"it is idle for less long", []step{{0, fresh}, {1, fresh}, {0, active}, {0, idle}, {2, fresh}}, []int{1}},
		"all serve":           {"the new one has to go", []step{{0, fresh}, {0, active}, {1, fresh}, {1, active}, {2, fresh}}, []int{2}},
		"one has been closed": {"there is room again", []step{{0, fresh}, {1, fresh}, {0, closed}, {2, fresh}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			conns := limit.NewConns(2)
			var ours, theirs [3]net.Conn
			for n := range ours {
				ours[n], theirs[n] = net.Pipe()
			}
			for _, s := range test.steps {
				conns.State(ours[s.conn], s.state)
			}
			var got []int
			for n, c := range theirs {
				go func() { _, _ = ours[n].Write([]byte("x")) }() // fails if it was closed
				if _, err := c.Read(make([]byte, 1)); err != nil {
					got = append(got, n)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("closed (-want +got):\n%s%s", diff, test.why)
			}
		})
	}
}

func TestSurplusRequestIsRefused(t *testing.T) {
	var inner http.Handler
	statuses := make(chan int, 3)
	ask := func() {
		w := httptest.NewRecorder()
		inner.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/mcp", nil))
		statuses <- w.Code
	}
	deep := 0
	inner = limit.Requests(1, func(*http.Request) string { return "" }, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if deep++; deep == 1 {
			ask() // a second one while the first is served
		}
	}))
	ask()
	ask() // once it is over, there is room
	if diff := cmp.Diff([]int{503, 200, 200}, []int{<-statuses, <-statuses, <-statuses}); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

func TestBodyTakesRoomAsItArrives(t *testing.T) {
	for name, test := range map[string]struct {
		why    string
		body   string
		length int64
		budget int64
		status int
	}{
		"fits":            {"it is read", strings.Repeat("x", 10_000), 10_000, 20_000, 200},
		"length unknown":  {"it grows", strings.Repeat("x", 10_000), -1, 40_000, 200},
		"no room":         {"it comes again later", strings.Repeat("x", 10_000), 10_000, 10_000, 503},
		"a header only":   {"what is announced takes nothing", "", 8_000_000, 4096, 200},
		"nothing is left": {"not even for little", "x", 1, 0, 503},
	} {
		t.Run(name, func(t *testing.T) {
			budget := limit.NewBudget(test.budget)
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/mcp", io.NopCloser(strings.NewReader(test.body)))
			r.ContentLength = test.length
			body, free, ok := budget.Body(w, r)
			if ok {
				if string(body) != test.body {
					t.Errorf("read %d bytes, want %d", len(body), len(test.body))
				}
				free()
				free() // it may be called twice
			}
			if w.Code != test.status || budget.Left() != test.budget {
				t.Errorf("status %d with %d bytes left, want %d with %d: %s", w.Code, budget.Left(), test.status, test.budget, test.why)
			}
		})
	}
}

// What the spec of a server says of the length of a request is what its proxy takes.
func TestRequestOfAnotherLength(t *testing.T) {
	for name, c := range map[string]struct {
		why         string
		bound       int64
		size, known int
		status      int
	}{
		"nothing is said": {"as ever", 0, rpcerror.MaxBody, -1, 200},
		"too long":        {"as ever", 0, rpcerror.MaxBody + 1, -1, 413},
		"fits":            {"the last byte counts", 100, 100, 100, 200},
		"less is allowed": {"the spec asks for less", 100, 101, 101, 413},
		"less, unknown":   {"also where the length is not announced", 100, 101, -1, 413},
		"more is allowed": {"the spec asks for more", rpcerror.MaxBody + 100, rpcerror.MaxBody + 100, -1, 200},
		"the most":        {"it fits while it grows", limit.Total, limit.MaxBody, -1, 200},
		"more than that":  {"the memory of all clients is bounded", limit.Total, limit.MaxBody + 1, -1, 413},
	} {
		t.Run(name, func(t *testing.T) {
			budget := limit.NewBudget(limit.Total).Bound(c.bound)
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(strings.Repeat(" ", c.size)))
			r.ContentLength = int64(c.known)
			body, free, ok := budget.Body(w, r)
			if ok {
				free()
			}
			if w.Code != c.status || ok && len(body) != c.size || budget.Left() != limit.Total {
				t.Errorf("status %d, read %d bytes, %d left; want %d: %s", w.Code, len(body), budget.Left(), c.status, c.why)
			}
		})
	}
}

// address is a connection of a client.
type address struct {
	net.Conn
	of     string
	closed *[]string
}

func (a address) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.of), Port: 1} }

func (a address) Close() error {
	*a.closed = append(*a.closed, a.of)
	return nil
}

// A client that opens connections without end, and begins a request on each, closes its own.
func TestConnectionsAreShared(t *testing.T) {
	conns, closed := limit.NewConns(100), []string{}
	open := func(of string, n int) {
		for range n {
			c := &address{nil, of, &closed}
			conns.State(c, http.StateNew)
			if len(closed) > 0 && closed[len(closed)-1] == of {
				conns.State(c, http.StateClosed)
				continue
			}
			conns.State(c, http.StateActive)
		}
	}
	open("10.0.0.1", 200)
	if diff := cmp.Diff(125, len(closed)); diff != "" {
		t.Errorf("closed of 200 of one client, of at most 100 (-want +got):\n%s", diff)
	}
	open("10.0.0.2", 10)
	if diff := cmp.Diff(125, len(closed)); diff != "" {
		t.Errorf("closed with 10 of another one (-want +got):\n%s", diff)
	}
}

// What clients share is given back whole.
func TestShares(t *testing.T) {
	s := limit.NewShares(100)
	take := func(client string) (n int) {
		for s.Take(client, 1) {
			n++
		}
		return n
	}
	got := []int{take("a"), take("b"), take("c"), s.Left()}
	for n, client := range []string{"a", "b", "c"} {
		s.Give(client, got[n])
	}
	if diff := cmp.Diff([]int{75, 19, 5, 1, 100}, append(got, s.Left())); diff != "" {
		t.Errorf("of 100 the first, second and third client, what is left, and that at the end (-want +got):\n%s", diff)
	}
}

// Behind a proxy that is trusted a request counts for the address that this has seen.
func TestClient(t *testing.T) {
	for name, c := range map[string]struct {
		why, forwarded string
		trusted        bool
		want           string
	}{
		"no proxy":          {"it is who connects", "", true, "10.0.0.1"},
		"not trusted":       {"anybody may write that", "192.0.2.1", false, "10.0.0.1"},
		"trusted":           {"the proxy has seen it", "192.0.2.1", true, "192.0.2.1"},
		"several":           {"only the last one was written by the proxy", "192.0.2.9, 192.0.2.1", true, "192.0.2.1"},
		"no address":        {"it would be a name of the client's choice, of any length", "x", true, "10.0.0.1"},
		"written otherwise": {"it is the same address", "2001:DB8:0::1", true, "2001:db8::1"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "10.0.0.1:1234"
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := limit.Client(r, c.trusted); got != c.want {
			t.Errorf("%s: %q, want %q: %s", name, got, c.want, c.why)
		}
	}
}
