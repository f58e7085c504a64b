package bridge_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
)

// event is one of a stream, with its id.
type event struct{ id, data string }

// read is the next event that says something.
func (f feed) event() event {
	f.t.Helper()
	var e event
	for {
		line, err := f.in.ReadString('\n')
		if err != nil {
			f.t.Fatalf("the stream ended: %v", err)
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			e.id = strings.TrimSpace(id)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if e.data = strings.TrimSpace(data); e.data != "" {
				return e
			}
		}
	}
}

func changed(n int) map[string]any {
	return map[string]any{"method": "notifications/tools/list_changed", "params": map[string]any{"n": n}}
}

// A client that has lost the stream of its session gets what it has not received, from where
// the stream was, although the proxy has written it, and although it takes the old
// connection for alive.
func TestStreamGoesOn(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			s, url := begin(t, bridge.Options{Mode: mode})
			path, header := "/sse", map[string]string{}
			if mode == bridge.ModeStreamableHTTP {
				path, header = "/mcp", with(join(t, url), "Accept", "text/event-stream")
			}
			open := func(last string) (feed, string) { return listen(t, url, mode, path, header, last) }
			first, endpoint := open("")
			var all []event
			for n := range 3 {
				s.say(changed(n))
				all = append(all, first.event())
			}
			again, same := open(all[0].id)
			if same != endpoint {
				t.Errorf("the endpoint is %s, and was %s", same, endpoint)
			}
			s.say(changed(3))
			if diff := cmp.Diff(all[1:], []event{again.event(), again.event()}, cmp.AllowUnexported(event{})); diff != "" {
				t.Errorf("what was lost (-want +got):\n%s", diff)
			}
			if got := again.event(); !strings.Contains(got.data, `"n":3`) || got.id == all[2].id {
				t.Errorf("after that comes %+v", got)
			}
			if _, err := io.ReadAll(first.in); err != nil && !strings.Contains(err.Error(), "EOF") {
				t.Errorf("the old connection: %v", err)
			}
		})
	}
}

// listen opens a stream after the event last; in sse mode it also gives the endpoint that the first event names.
func listen(t *testing.T, url, mode, path string, header map[string]string, last string) (feed, string) {
	t.Helper()
	if last != "" {
		header = with(header, "Last-Event-ID", last)
	}
	resp := request{method: http.MethodGet, path: path, header: header}.do(t, url)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("after %q: %s", last, resp.Status)
	}
	f := events(t, resp)
	if mode == bridge.ModeSSE {
		return f, f.event().data
	}
	return f, ""
}

// The answer to a call whose connection was lost is there for the client that asks for it,
// before and after it was given.
func TestAnswerIsFetched(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	one := join(t, url)
	call, answer := s.askForStream(url, `{"jsonrpc":"2.0","id":1,"method":"x/long","params":{"_meta":{"progressToken":"p"}}}`, one)
	progress := func(n int) {
		s.say(map[string]any{"method": "notifications/progress", "params": map[string]any{"progressToken": call.ID, "progress": n}})
	}
	progress(1)
	lost := <-answer
	first := events(t, lost).event()
	_ = lost.Body.Close()
	progress(2)
	again := func(last string) feed {
		t.Helper()
		f, _ := listen(t, url, bridge.ModeStreamableHTTP, "/mcp", with(one, "Accept", "text/event-stream"), last)
		return f
	}
	going := again(first.id)
	second := going.event()
	s.answer(call, "done")
	third := going.event()
	for n, want := range map[string]event{`"progress":2`: second, `"result":"done"`: third} {
		if !strings.Contains(want.data, n) {
			t.Errorf("the stream goes on with %s, want %s", want.data, n)
		}
	}
	if rest, err := io.ReadAll(going.in); err != nil || len(strings.TrimSpace(string(rest))) > 0 {
		t.Errorf("after the answer comes %q, %v", rest, err)
	}
	if diff := cmp.Diff(third, again(second.id).event(), cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("the answer, once more (-want +got):\n%s", diff)
	}
	if rest, err := io.ReadAll(again(third.id).in); err != nil || len(rest) > 0 {
		t.Errorf("after all was received comes %q, %v", rest, err)
	}
	for name, test := range map[string]struct{ why, last string }{
		"unknown stream": {"an answer that is lost must not be waited for", "77-1"},
		"no id":          {"it is of another server", "x"},
	} {
		r := request{method: http.MethodGet, path: "/mcp", header: with(with(one, "Accept", "text/event-stream"), "Last-Event-ID", test.last)}
		if resp := r.do(t, url); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s: %s", name, resp.Status, test.why)
		}
	}
}

// Clients of the version in which it is said begin with an id.
func TestStreamsArePrimed(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	one := with(with(join(t, url), "Accept", "application/json, text/event-stream"), "MCP-Protocol-Version", "2025-11-25")
	answer := later(t, url, post(`{"jsonrpc":"2.0","id":1,"method":"x/long"}`, one))
	call := s.hear("x/long")
	resp := <-answer // although nothing was said
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || line != "id: 1-0\n" {
		t.Errorf("the stream begins with %q, %v", line, err)
	}
	_ = resp.Body.Close()
	s.answer(call, "done")
	got := events(t, request{method: http.MethodGet, path: "/mcp", header: with(one, "Last-Event-ID", "1-0")}.do(t, url)).event()
	if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":%q}`, "done"); got.data != want {
		t.Errorf("got %s, want %s", got.data, want)
	}
}
