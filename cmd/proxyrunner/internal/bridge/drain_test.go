package bridge_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
)

// client is a session with an open stream, in either mode.
type client struct {
	t    *testing.T
	url  string
	path string
	feed
	header map[string]string
}

// listening joins, and opens the stream.
func listening(t *testing.T, mode, url string) *client {
	t.Helper()
	if mode == bridge.ModeSSE {
		feed := events(t, request{method: http.MethodGet, path: "/sse"}.do(t, url))
		path, err := feed.data()
		if err != nil {
			t.Fatal(err)
		}
		return &client{t: t, url: url, path: path, feed: feed}
	}
	header := join(t, url)
	return &client{t: t, url: url, path: "/mcp", header: header, feed: stream(t, url, header)}
}

// post sends a message; the answer, if it is no call in sse, is read by nobody.
func (c *client) post(body string) *http.Response {
	return request{method: http.MethodPost, path: c.path, body: body, header: c.header}.do(c.t, c.url)
}

func TestDrain(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			s, b, url := beginWith(t, bridge.Options{Mode: mode})
			idle, busy := listening(t, mode, url), listening(t, mode, url)
			answered := make(chan *http.Response, 1)
			go func() { answered <- busy.post(`{"jsonrpc":"2.0","id":1,"method":"x/long"}`) }()
			long := s.hear("x/long")
			b.Drain()
			if data, err := idle.data(); err == nil {
				t.Errorf("a stream on which nothing is awaited goes on with %q", data)
			}
			// What the call under way needs passes.
			if got := busy.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`); got.StatusCode != http.StatusAccepted {
				t.Errorf("a notification meanwhile: %s", got.Status)
			}
			s.hear("notifications/cancelled")
			s.say(map[string]any{"method": "notifications/tools/list_changed"})
			if got := busy.next(); got.Method != "notifications/tools/list_changed" {
				t.Errorf("the stream of the call under way has %+v", got)
			}
			s.answer(long, "done")
			posted := <-answered // also where it holds no answer: the test must not end before it
			got := message{}
			if mode == bridge.ModeSSE {
				got = busy.next()
			} else {
				got = read(t, posted)
			}
			if diff := cmp.Diff(`1 "done"`, fmt.Sprint(got.ID, " ", string(got.Result))); diff != "" {
				t.Errorf("the call (-want +got):\n%s", diff)
			}
			if data, err := busy.data(); err == nil {
				t.Errorf("its stream goes on with %q", data)
			}
			begins := map[string]request{bridge.ModeSSE: {method: http.MethodGet, path: "/sse"}, bridge.ModeStreamableHTTP: post(initialize, nil)}
			if refused := begins[mode].do(t, url); refused.StatusCode != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") == "" {
				t.Errorf("a new session: %s, want 503 and Retry-After", refused.Status)
			}
		})
	}
}
