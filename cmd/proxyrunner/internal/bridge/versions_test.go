package bridge_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/test/support/mcp/container"
)

// The SDK's client calls a server of the SDK in each version that both speak. That without sessions is none of sse: there the
// client falls back to the newest one with sessions.
func TestVersionsOfTheSDK(t *testing.T) {
	path := container.Echo(t)
	for _, mode := range modes {
		_, url := start(t, bridge.Options{Open: container.Run(t, path).Open, Mode: mode})
		for _, version := range mcp.SupportedProtocolVersions() {
			t.Run(mode+" "+version, func(t *testing.T) {
				client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
				session, err := client.Connect(t.Context(), transport(mode, url), &mcp.ClientSessionOptions{ProtocolVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = session.Close() })
				if mode == bridge.ModeSSE {
					version = min(version, "2025-11-25")
				}
				if got := session.InitializeResult().ProtocolVersion; got != version {
					t.Errorf("the session is of version %s, want %s", got, version)
				}
				if err := echo(t.Context(), session, version); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// byThePage is a client that knows nothing but the page of the specification about transports, and notes what it gets.
type byThePage struct {
	t            *testing.T
	url, version string
	header       map[string]string
	notes        []string
}

func (c *byThePage) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// post sends a message with the headers that the page asks for.
func (c *byThePage) post(body string) *http.Response {
	return post(body, with(c.header, "Accept", "application/json, text/event-stream")).do(c.t, c.url)
}

// accepted notes the answer to a message that is no request.
func (c *byThePage) accepted(what, body string) {
	c.t.Helper()
	resp := c.post(body)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	c.note("%s: %d, %d bytes", what, resp.StatusCode, len(text))
}

// initialize begins a session, and notes in which version.
func (c *byThePage) initialize() {
	c.t.Helper()
	resp := c.post(strings.Replace(initialize, "2025-06-18", c.version, 1))
	var result mcp.InitializeResult
	if err := json.Unmarshal(anyway(c.t, resp).Result, &result); err != nil {
		c.t.Fatal(err)
	}
	id := resp.Header.Get("Mcp-Session-Id")
	visible := id != "" && strings.IndexFunc(id, func(r rune) bool { return r < 0x21 || r > 0x7e }) < 0
	c.note("initialize: %d, version %s, visible session %v", resp.StatusCode, result.ProtocolVersion, visible)
	c.header = map[string]string{"Mcp-Session-Id": id}
	if c.version >= "2025-06-18" {
		c.header["MCP-Protocol-Version"] = c.version
	}
	c.accepted("initialized", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

const longCall = `{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"x","_meta":{"progressToken":"mine"}}}`

// call notes what comes on the stream of a call of which the server tells progress, and in which it asks something.
func (c *byThePage) call(s *script) {
	c.t.Helper()
	answer := later(c.t, c.url, post(longCall, with(c.header, "Accept", "application/json, text/event-stream")))
	heard := s.hear("tools/call")
	s.say(map[string]any{"method": "notifications/progress", "params": map[string]any{"progressToken": heard.ID, "progress": 1}})
	s.say(map[string]any{"id": "q", "method": "sampling/createMessage", "params": map[string]any{}})
	in := events(c.t, <-answer)
	told := in.next()
	c.note("%s of %v", told.Method, told.Params["progressToken"])
	question := in.next()
	c.note("%s", question.Method)
	c.accepted("its answer", fmt.Sprintf(`{"jsonrpc":"2.0","id":%.0f,"result":{"said":"yes"}}`, question.ID))
	reply := s.hear("")
	c.note("the server hears %s for %v", reply.Result, reply.ID)
	s.answer(heard, map[string]any{"done": true})
	done := in.next()
	c.note("%s for %v", done.Result, done.ID)
	_, err := in.data()
	c.note("then %v", err)
}

// listen notes what comes on a stream, and once more after it was lost.
func (c *byThePage) listen(s *script) {
	c.t.Helper()
	open := func(header map[string]string) (*http.Response, feed) {
		resp := request{method: http.MethodGet, path: "/mcp", header: with(header, "Accept", "text/event-stream")}.do(c.t, c.url)
		c.note("stream: %d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
		return resp, events(c.t, resp)
	}
	resp, in := open(c.header)
	s.say(map[string]any{"method": "notifications/tools/list_changed"})
	last := in.event()
	c.note("%s", last.data)
	_ = resp.Body.Close()
	s.say(map[string]any{"method": "notifications/prompts/list_changed"})
	_, in = open(with(c.header, "Last-Event-ID", last.id))
	c.note("%s", in.event().data)
}

// end notes what comes of a version that is none, and of a session that has ended.
func (c *byThePage) end() {
	c.t.Helper()
	other := post(tools, with(c.header, "Accept", "application/json, text/event-stream"))
	other.header["MCP-Protocol-Version"] = "1900-01-01"
	c.note("a version that is none: %d", other.do(c.t, c.url).StatusCode)
	c.note("end: %d", request{method: http.MethodDelete, path: "/mcp", header: c.header}.do(c.t, c.url).StatusCode)
	c.note("after it: %d", c.post(tools).StatusCode)
}

// modelcontextprotocol.io/specification/VERSION/basic/transports
func TestSessionsByThePage(t *testing.T) {
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			s := scripted(t)
			s.speaks = "2025-11-25"
			_, url := start(t, bridge.Options{Open: s.open})
			s.connected().hear("notifications/initialized")
			c := &byThePage{t: t, url: url, version: version}
			c.initialize()
			c.call(s)
			c.listen(s)
			c.end()
			want := []string{
				"initialize: 200, version " + version + ", visible session true",
				"initialized: 202, 0 bytes",
				"notifications/progress of mine",
				"sampling/createMessage",
				"its answer: 202, 0 bytes",
				`the server hears {"said":"yes"} for q`,
				`{"done":true} for c`,
				"then EOF",
				"stream: 200 text/event-stream",
				`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
				"stream: 200 text/event-stream",
				`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`,
				"a version that is none: 400",
				"end: 204",
				"after it: 404",
			}
			if diff := cmp.Diff(want, c.notes); diff != "" {
				t.Errorf("a client by the page notes (-want +got):\n%s", diff)
			}
		})
	}
}

// modelcontextprotocol.io/specification/2024-11-05/basic/transports
func TestSSEByThePage(t *testing.T) {
	s, url := begin(t, bridge.Options{Mode: bridge.ModeSSE})
	in := events(t, request{method: http.MethodGet, path: "/sse", header: map[string]string{"Accept": "text/event-stream"}}.do(t, url))
	endpoint, err := in.data()
	if err != nil {
		t.Fatal(err)
	}
	c := &byThePage{t: t}
	say := func(what, body string) {
		t.Helper()
		c.note("%s: %d", what, request{method: http.MethodPost, path: endpoint, body: body}.do(t, url).StatusCode)
	}
	say("initialize", strings.Replace(initialize, "2025-06-18", "2024-11-05", 1))
	c.note("%s", in.next().Result)
	say("initialized", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	say("call", longCall)
	heard := s.hear("tools/call")
	s.say(map[string]any{"method": "notifications/progress", "params": map[string]any{"progressToken": heard.ID, "progress": 1}})
	s.answer(heard, map[string]any{"done": true})
	c.note("%s", in.next().Method)
	c.note("%s", in.next().Result)
	want := []string{
		"initialize: 202", `{"capabilities":{},"protocolVersion":"2024-11-05","serverInfo":{"name":"script","version":"1"}}`, "initialized: 202",
		"call: 202", "notifications/progress", `{"done":true}`,
	}
	if diff := cmp.Diff(want, c.notes); diff != "" {
		t.Errorf("a client by the page notes (-want +got):\n%s", diff)
	}
}

// modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http, and /basic/versioning
func TestWithoutSessionsByThePage(t *testing.T) {
	s, _, url := modern(t, "2026-07-28")
	c := &byThePage{t: t}
	answer := later(t, url, modernly(`"c"`, "x/long", ""))
	s.answer(s.hear("x/long"), map[string]any{"resultType": "complete"})
	resp := <-answer
	c.note("call: %d %s, X-Accel-Buffering %s, session %q", resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("X-Accel-Buffering"), resp.Header.Get("Mcp-Session-Id"))
	in := events(t, resp)
	last := in.next()
	c.note("%s for %v", last.Result, last.ID)
	_, err := in.data()
	c.note("then %v", err)

	notification := modernly("1", "x/told", "")
	notification.body = strings.Replace(notification.body, `"id":1,`, "", 1)
	resp = notification.do(t, url)
	text, _ := io.ReadAll(resp.Body) // it is empty, or the note says what there was
	c.note("notification: %d, %d bytes", resp.StatusCode, len(text))
	s.hear("x/told")

	old := modernly("1", "x/a", "")
	old.body = strings.ReplaceAll(old.body, "2026-07-28", "1900-01-01")
	old.header["MCP-Protocol-Version"] = "1900-01-01"
	resp = old.do(t, url)
	m := anyway(t, resp)
	c.note("a version that is none: %d, code %d", resp.StatusCode, m.Error.Code)

	answer = later(t, url, modernly("1", "x/unknown", ""))
	s.say(map[string]any{"id": s.hear("x/unknown").ID, "error": map[string]any{"code": -32601, "message": "Method not found"}})
	resp = <-answer
	m = anyway(t, resp)
	c.note("a method that is none: %d, code %d", resp.StatusCode, m.Error.Code)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		c.note("%s: %d", method, request{method: method, path: "/mcp", header: map[string]string{"MCP-Protocol-Version": "2026-07-28", "Accept": "text/event-stream"}}.do(t, url).StatusCode)
	}
	want := []string{
		`call: 200 text/event-stream, X-Accel-Buffering no, session ""`, `{"resultType":"complete"} for c`, "then EOF",
		"notification: 202, 0 bytes", "a version that is none: 400, code -32022", "a method that is none: 404, code -32601", "GET: 405", "DELETE: 405",
	}
	if diff := cmp.Diff(want, c.notes); diff != "" {
		t.Errorf("a client by the page notes (-want +got):\n%s", diff)
	}
}
