package bridge_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
)

func TestTwoClientsWithTheSameIDs(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	one, two := join(t, url), join(t, url)
	s.hear("notifications/initialized")
	first := inBackground(t, url, post(`{"jsonrpc":"2.0","id":1,"method":"x/first"}`, one))
	a := s.hear("x/first")
	second := inBackground(t, url, post(`{"jsonrpc":"2.0","id":1,"method":"x/second"}`, two))
	b := s.hear("x/second")
	s.say(map[string]any{"id": b.ID, "result": "second"})
	s.say(map[string]any{"id": a.ID, "result": "first"})
	for got, want := range map[*message]string{ptr(<-first): `"first"`, ptr(<-second): `"second"`} {
		if string(got.Result) != want || got.ID != 1.0 {
			t.Errorf("got %+v, want id 1 and %s", got, want)
		}
	}
	if len(s.greets) != 1 {
		t.Errorf("%d times initialised, want 1", len(s.greets))
	}
}

func ptr[T any](v T) *T { return &v }

func TestProgressAndCancellation(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	one, two := join(t, url), join(t, url)
	s.hear("notifications/initialized")
	other := events(t, request{method: http.MethodGet, path: "/mcp", header: with(two, "Accept", "text/event-stream")}.do(t, url))

	stream := make(chan *http.Response, 1)
	go func() {
		stream <- post(`{"jsonrpc":"2.0","id":"a","method":"x/long","params":{"_meta":{"progressToken":"mine","more":1}}}`,
			with(one, "Accept", "application/json, text/event-stream")).do(t, url)
	}()
	long := s.hear("x/long")
	meta := long.Params["_meta"].(map[string]any)
	if meta["progressToken"] != long.ID || meta["more"] != 1.0 {
		t.Errorf("_meta is %v, want the number of the call as token, and the rest", meta)
	}
	s.say(map[string]any{"method": "notifications/progress", "params": map[string]any{"progressToken": meta["progressToken"], "progress": 5}})
	feed := events(t, <-stream)
	if got := feed.next(); got.Method != "notifications/progress" || got.Params["progressToken"] != "mine" {
		t.Errorf("got %+v, want progress with the client's token", got)
	}

	cancel := func(header map[string]string) {
		t.Helper()
		if resp := post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`, header).do(t, url); resp.StatusCode != http.StatusAccepted {
			t.Errorf("cancelled: %s", resp.Status)
		}
	}
	cancel(two) // has no such call
	cancel(one)
	if got := s.hear("notifications/cancelled"); got.Params["requestId"] != long.ID {
		t.Errorf("cancelled %v, want %v", got.Params["requestId"], long.ID)
	}
	s.say(map[string]any{"id": long.ID, "error": map[string]any{"code": -1, "message": "cancelled"}})
	if got := feed.next(); got.ID != "a" || got.Error == nil {
		t.Errorf("got %+v, want the error of call a", got)
	}
	if _, err := feed.data(); err == nil {
		t.Error("the stream goes on after the answer")
	}

	s.say(map[string]any{"method": "notifications/tools/list_changed"})
	if got := other.next(); got.Method != "notifications/tools/list_changed" {
		t.Errorf("the other client got %+v, want only what concerns all", got)
	}
}

func TestQuestionsOfTheServer(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	s.hear("notifications/initialized")
	answer := func(want string) {
		t.Helper()
		if got := s.hear(""); fmt.Sprint(got.ID) != "q" || (got.Error == nil) != (want == "") ||
			(got.Error != nil && !strings.Contains(got.Error.Message, want)) {
			t.Errorf("the server got %+v, want an error with %q", got, want)
		}
	}
	s.say(map[string]any{"id": "q", "method": "ping"})
	answer("")
	s.say(map[string]any{"id": "q", "method": "roots/list"})
	answer("there are 0")

	one := join(t, url)
	stream := events(t, request{method: http.MethodGet, path: "/mcp", header: with(one, "Accept", "text/event-stream")}.do(t, url))
	s.say(map[string]any{"id": "q", "method": "roots/list"})
	question := stream.next()
	reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":%.0f,"result":{"roots":[]}}`, question.ID)

	two := join(t, url)
	if resp := post(reply, two).do(t, url); resp.StatusCode != http.StatusAccepted {
		t.Errorf("an answer of the wrong client: %s", resp.Status)
	}
	if resp := post(reply, one).do(t, url); resp.StatusCode != http.StatusAccepted {
		t.Errorf("the answer: %s", resp.Status)
	}
	answer("")
	s.say(map[string]any{"id": "q", "method": "roots/list"})
	answer("there are 2")

	request{method: http.MethodDelete, path: "/mcp", header: two}.do(t, url)
	s.say(map[string]any{"id": "q", "method": "sampling/createMessage"})
	stream.next()
	request{method: http.MethodDelete, path: "/mcp", header: one}.do(t, url)
	answer("the client is gone")
}

func TestRestartUnderWay(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	one := join(t, url)
	s.hear("notifications/initialized")
	lost := inBackground(t, url, post(`{"jsonrpc":"2.0","id":1,"method":"x/lost"}`, one))
	s.hear("x/lost")
	_ = s.conn.Close()
	if got := <-lost; got.Error == nil || !strings.Contains(got.Error.Message, "restarted") || !strings.Contains(got.Error.Message, "try again") {
		t.Errorf("got %+v, want an error that says that the server restarted", got)
	}
	s.connected()
	// Before anything else, the bridge initialises the new process.
	s.hear("notifications/initialized")
	if len(s.greets) != 2 {
		t.Errorf("%d times initialised, want 2", len(s.greets))
	}
}

func TestBadLines(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	one := join(t, url)
	s.hear("notifications/initialized")
	got := inBackground(t, url, post(`{"jsonrpc":"2.0","id":1,"method":"x/big"}`, one))
	big := s.hear("x/big")
	for _, line := range []string{"Listening on port 7", "", `{"jsonrpc":"2.0"`, `[]`, `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`,
		`{"jsonrpc":"2.0","id":99,"result":{}}`, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{}}}`} {
		if _, err := fmt.Fprintln(s.conn, line); err != nil {
			t.Fatalf("%q ended the stream: %v", line, err)
		}
	}
	if _, err := fmt.Fprintf(s.conn, `{"jsonrpc":"2.0","id":%.0f,"result":"%s"}`+"\n", big.ID, strings.Repeat("x", bridge.MaxLine)); err != nil {
		t.Fatal(err)
	}
	if m := <-got; m.Error == nil || !strings.Contains(m.Error.Message, "longer than") {
		t.Errorf("got %+v, want an error that tells the limit", m)
	}
	after := inBackground(t, url, post(`{"jsonrpc":"2.0","id":2,"method":"x/after"}`, one))
	s.say(map[string]any{"id": s.hear("x/after").ID, "result": "fine"})
	if m := <-after; string(m.Result) != `"fine"` {
		t.Errorf("after the bad lines: %+v", m)
	}
}

func TestSlowReaderLosesItsStream(t *testing.T) {
	if raceDetector {
		t.Skip("40 MiB of JSON: runs without the race detector, TestSlowIsAMatterOfTime with it")
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			s, url := begin(t, bridge.Options{Mode: mode})
			// Two listeners: one reads nothing, the other everything.
			listen := func() *http.Response {
				if mode == bridge.ModeSSE {
					return request{method: http.MethodGet, path: "/sse"}.do(t, url)
				}
				return request{method: http.MethodGet, path: "/mcp", header: with(join(t, url), "Accept", "text/event-stream")}.do(t, url)
			}
			slow, fast := listen(), events(t, listen())
			if mode == bridge.ModeSSE {
				if _, err := fast.data(); err != nil { // the endpoint
					t.Fatal(err)
				}
			}
			const count = 160 // of 256 KiB: more than sockets and queue hold
			text := strings.Repeat("x", 256<<10)
			for i := range count {
				s.say(map[string]any{"method": "notifications/message", "params": map[string]any{"n": i, "data": text}})
				if got := fast.next(); got.Params["n"] != float64(i) {
					t.Fatalf("message %v, want %d", got.Params["n"], i)
				}
			}
			lazy, got := events(t, slow), 0
			for ; ; got++ {
				if _, err := lazy.data(); err != nil {
					break
				}
			}
			if got >= count {
				t.Error("the slow reader got all: it has not been slow")
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	s, url := begin(t, bridge.Options{RequestTimeout: 50 * time.Millisecond})
	resp := make(chan *http.Response, 1)
	go func() {
		resp <- post(`{"jsonrpc":"2.0","id":1,"method":"x/never"}`, map[string]string{"Accept": "text/event-stream"}).do(t, url)
	}()
	s.hear("notifications/initialized")
	never := s.hear("x/never")
	got := <-resp
	if m := read(t, got); got.StatusCode != http.StatusGatewayTimeout || m.Error == nil || m.ID != 1.0 {
		t.Errorf("%s, %+v; want 504 and an error", got.Status, m)
	}
	want := map[string]any{"requestId": never.ID, "reason": "the proxy waited too long"}
	if diff := cmp.Diff(want, s.hear("notifications/cancelled").Params); diff != "" {
		t.Errorf("told to the server (-want +got):\n%s", diff)
	}
}

// The protocol says that a cancelled call is not answered: whoever waits for it is told after seconds, not when the server's
// time is over, and the server is told once. That it still reports progress changes nothing.
func TestCancelledCallEnds(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	one := join(t, url)
	s.hear("notifications/initialized")
	answer := inBackground(t, url, post(`{"jsonrpc":"2.0","id":1,"method":"x/long","params":{"_meta":{"progressToken":"p"}}}`, one))
	long := s.hear("x/long")
	post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, one).do(t, url)
	s.hear("notifications/cancelled")
	s.say(map[string]any{"method": "notifications/progress", "params": map[string]any{"progressToken": long.ID, "progress": 1}})
	if got := <-answer; got.Error == nil || got.Error.Message != "the client has cancelled this request" {
		t.Errorf("the call was answered %+v", got)
	}
	next := inBackground(t, url, post(`{"jsonrpc":"2.0","id":2,"method":"x/next"}`, one))
	s.say(map[string]any{"id": s.hear("x/next").ID, "result": "done"})
	if got := <-next; string(got.Result) != `"done"` {
		t.Errorf("the next call was answered %+v", got)
	}
}
