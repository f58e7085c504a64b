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
	inner = limit.Requests(1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
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
