package front_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/front"
)

// server is one that is up, or not.
type server struct {
	ok   bool
	said string
}

func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "served "+r.URL.Path)
}
func (s server) Health() (bool, string) { return s.ok, s.said }

// pinged is one that was asked.
type pinged struct{ server }

var pingedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (pinged) LastPing() (time.Time, time.Duration) { return pingedAt, 7 * time.Millisecond }

func ask(f http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path, nil))
	return w
}

func TestHealth(t *testing.T) {
	type answer struct {
		Status, Transport string
		Available         bool
		Error             string
		ResponseTimeMS    any
	}
	for name, test := range map[string]struct {
		why  string
		tell func(*front.Front)
		want answer
	}{
		"starting":          {"it answers from the first moment", func(*front.Front) {}, answer{"degraded", "sse", false, "the proxy is starting", nil}},
		"waiting":           {"and says what for", func(f *front.Front) { f.Wait("pods") }, answer{"degraded", "sse", false, "pods", nil}},
		"up":                {"all is well", func(f *front.Front) { f.Open(server{true, "attached"}) }, answer{"healthy", "sse", true, "", nil}},
		"up, asked":         {"with how long it took", func(f *front.Front) { f.Open(pinged{server{true, ""}}) }, answer{"healthy", "sse", true, "", 7.0}},
		"away":              {"what the connection saw", func(f *front.Front) { f.Open(server{false, "no answer"}) }, answer{"degraded", "sse", false, "no answer", nil}},
		"handed to a newer": {"there is no server any more", func(f *front.Front) { f.Open(server{true, ""}); f.Wait("a newer proxy") }, answer{"degraded", "sse", false, "a newer proxy", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			f := front.New("sse")
			test.tell(f)
			w := ask(f, http.MethodGet, "/health")
			var got struct {
				Status, Transport string
				Timestamp         time.Time
				MCP               struct {
					Available      bool
					Error          string
					ResponseTimeMS any       `json:"response_time_ms"`
					LastChecked    time.Time `json:"last_checked"`
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%s: %v", w.Body, err)
			}
			if diff := cmp.Diff(test.want, answer{got.Status, got.Transport, got.MCP.Available, got.MCP.Error, got.MCP.ResponseTimeMS}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" || got.Timestamp.IsZero() || got.MCP.LastChecked.IsZero() {
				t.Errorf("code %d, %s; want 200, JSON and times: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	type answer struct {
		Code        int
		Allow, Body string
	}
	for name, test := range map[string]struct {
		why, method, path string
		open              bool
		want              answer
		transport         string
	}{
		"health takes GET only": {"it is a question", http.MethodPost, "/health", true, answer{405, "GET", `{"error":"POST: use GET"}` + "\n"}, "sse"},
		"well-known": {"clients ask here whether they need a token", http.MethodGet, "/.well-known/oauth-protected-resource", true,
			answer{404, "", `{"error":"not_found","error_description":"/.well-known/oauth-protected-resource is not served: no authorization is needed"}` + "\n"}, "stdio"},
		"well-known, HTTP":            {"the server may need one", http.MethodGet, "/.well-known/oauth-protected-resource", true, answer{200, "", "served /.well-known/oauth-protected-resource"}, "sse"},
		"well-known, HTTP, too early": {"nobody knows yet", http.MethodGet, "/.well-known/x", false, answer{503, "", `{"error":{"code":-32000,"message":"the MCP server is not there yet: 0 of 1 pods"},"id":null,"jsonrpc":"2.0"}`}, "sse"},
		"passed on":                   {"the rest is the server's", http.MethodPost, "/mcp", true, answer{200, "", "served /mcp"}, "sse"},
		"too early":                   {"a client can tell a start from a failure", http.MethodPost, "/mcp", false, answer{503, "", `{"error":{"code":-32000,"message":"the MCP server is not there yet: 0 of 1 pods"},"id":null,"jsonrpc":"2.0"}`}, "sse"},
		"any path":                    {"a server may have its own", http.MethodGet, "/x/y", true, answer{200, "", "served /x/y"}, "sse"},
		"too early ":                  {"whatever the path", http.MethodGet, "/x/y", false, answer{503, "", `{"error":{"code":-32000,"message":"the MCP server is not there yet: 0 of 1 pods"},"id":null,"jsonrpc":"2.0"}`}, "sse"},
	} {
		t.Run(name, func(t *testing.T) {
			f := front.New(test.transport)
			f.Wait("0 of 1 pods")
			if test.open {
				f.Open(server{})
			}
			w := ask(f, test.method, test.path)
			if diff := cmp.Diff(test.want, answer{w.Code, w.Header().Get("Allow"), w.Body.String()}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
			if (w.Header().Get("Retry-After") != "") != (w.Code == 503) {
				t.Errorf("Retry-After %q with %d", w.Header().Get("Retry-After"), w.Code)
			}
		})
	}
}

// hall serves a handler that begins and ends when the test says.
type hall struct {
	address      string
	began, end   chan struct{}
	stop         context.CancelFunc
	served       chan error
	requestEnded chan error
}

func open(t *testing.T, end front.Ending) *hall {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hall{address: "http://" + listener.Addr().String(), began: make(chan struct{}), end: make(chan struct{}),
		served: make(chan error, 1), requestEnded: make(chan error, 1)}
	ctx, stop := context.WithCancel(t.Context())
	h.stop = stop
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.began <- struct{}{}
		select {
		case <-h.end:
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done():
			h.requestEnded <- r.Context().Err()
		}
	})
	go func() { h.served <- front.Serve(ctx, listener, handler, end) }()
	return h
}

// call sends a request and answers the body, or the error, once there is one.
func (h *hall) call(method string) chan string {
	said := make(chan string, 1)
	go func() {
		r, err := http.NewRequest(method, h.address, nil)
		if err == nil {
			var answer *http.Response
			if answer, err = http.DefaultClient.Do(r); err == nil {
				body, _ := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				said <- string(body)
				return
			}
		}
		said <- "error"
	}()
	<-h.began
	return said
}

func TestCallUnderWayIsAnsweredAtTheEnd(t *testing.T) {
	h := open(t, front.Ending{CutStreams: true, Drain: time.Minute})
	said := []chan string{h.call(http.MethodPost)}
	h.stop()
	said = append(said, h.call(http.MethodPost)) // the first may wait for what this one says
	close(h.end)
	for n, one := range said {
		if got := <-one; got != "done" {
			t.Errorf("call %d got %q", n, got)
		}
	}
	if err := <-h.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestStreamEndsAtOnce(t *testing.T) {
	h := open(t, front.Ending{CutStreams: true, Drain: time.Minute})
	said := h.call(http.MethodGet)
	h.stop()
	if err := <-h.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := <-h.requestEnded; !errors.Is(err, context.Canceled) {
		t.Errorf("the stream ended with %v", err)
	}
	<-said
}

func TestWhatDoesNotEndIsCut(t *testing.T) {
	h := open(t, front.Ending{Drain: time.Millisecond})
	said := h.call(http.MethodGet)
	h.stop()
	if err := <-h.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if got := <-said; got != "error" {
		t.Errorf("the call got %q, want that it was cut", got)
	}
}
