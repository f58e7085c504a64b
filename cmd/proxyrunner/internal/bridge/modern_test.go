package bridge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/test/support/mcp/container"
)

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// modernly is a request of version 2026-07-28, with the headers that it must have.
func modernly(id, method, params string) request {
	if params != "" {
		params += ","
	}
	return post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s%s}}`, id, method, params, meta),
		map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Accept": "application/json, text/event-stream"})
}

// modern begins a session of the test with a server that speaks these versions, which the bridge asks it once.
func modern(t *testing.T, versions ...string) (*script, *bridge.Bridge, string) {
	t.Helper()
	s, b, url := beginWith(t, bridge.Options{})
	answer := later(t, url, modernly("1", "server/discover", ""))
	probe := s.hear("server/discover")
	s.say(map[string]any{"id": probe.ID, "error": map[string]any{"code": -32022, "message": "no", "data": map[string]any{"supported": versions}}})
	if resp := <-answer; resp.StatusCode != http.StatusOK {
		t.Fatalf("server/discover: %s", resp.Status)
	}
	return s, b, url
}

// serves answers the rest, as far as it is of version 2026-07-28, with its method.
func (s *script) serves() {
	for m := range s.heard {
		if about, _ := m.Params["_meta"].(map[string]any); m.ID != nil && about["io.modelcontextprotocol/protocolVersion"] == "2026-07-28" {
			s.say(map[string]any{"id": m.ID, "result": map[string]any{"resultType": "complete", "said": m.Method}})
		}
	}
}

func TestRequestsWithoutSessions(t *testing.T) {
	s, _, url := modern(t, "2026-07-28", "2025-11-25")
	go s.serves()
	having := func(r request, name, value string) request {
		r.header[name] = value
		return r
	}
	newer := having(modernly("1", "x/a", ""), "MCP-Protocol-Version", "2027-01-01")
	newer.body = strings.ReplaceAll(newer.body, "2026-07-28", "2027-01-01")
	bare := modernly("1", "server/discover", "")
	bare.body = strings.ReplaceAll(bare.body, `,"io.modelcontextprotocol/clientCapabilities":{}`, "")
	const call = `"name":"é"`
	for name, test := range map[string]struct {
		why    string
		ask    request
		status int
		code   int // of the error
	}{
		"call":         {"the server speaks that version", modernly("1", "x/call", ""), 200, 0},
		"tool":         {"its name may be encoded", having(modernly("1", "tools/call", call), "Mcp-Name", "=?base64?w6k=?="), 200, 0},
		"other tool":   {"somebody on the way believes the header", having(modernly("1", "tools/call", call), "Mcp-Name", "e"), 400, -32020},
		"no tool":      {"the header must be there", modernly("1", "tools/call", call), 400, -32020},
		"other method": {"somebody on the way believes the header", request{"POST", "/mcp", modernly("1", "x/a", "").body, modernly("1", "x/b", "").header}, 400, -32020},
		"no version":   {"the header must be there", having(modernly("1", "x/a", ""), "MCP-Protocol-Version", ""), 400, -32020},
		"none in body": {"each request says it", request{"POST", "/mcp", tools, modernly("1", "tools/list", "").header}, 400, -32602},
		"no abilities": {"each request says them", bare, 400, -32602},
		"initialize":   {"it would begin a session, of all clients", modernly("1", "initialize", ""), 404, -32601},
		"setLevel":     {"the server has one level for all clients with sessions", modernly("1", "logging/setLevel", ""), 404, -32601},
		"discover":     {"it is made of the answer to initialize", modernly("1", "server/discover", ""), 200, 0},
		"newer":        {"the client chooses another one", newer, 400, -32022},
		"stream":       {"there is none", request{"GET", "/mcp", "", modernly("1", "x/a", "").header}, 405, -32000},
	} {
		t.Run(name, func(t *testing.T) {
			resp := test.ask.do(t, url)
			code, m := 0, anyway(t, resp)
			if m.Error != nil {
				code = m.Error.Code
			}
			if diff := cmp.Diff([]any{test.status, test.code}, []any{resp.StatusCode, code}); diff != "" {
				t.Errorf("%s: %+v (-want +got):\n%s", test.why, m, diff)
			}
			if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
				t.Errorf("session %q", id)
			}
		})
	}
}

// What an old server would do with such a request nobody knows: it does not hear it.
func TestOldServersHearNoNewRequests(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	for n := range 2 {
		answer := inBackground(t, url, modernly("1", "tools/list", ""))
		if n == 0 { // it is asked once
			s.say(map[string]any{"id": s.hear("server/discover").ID, "error": map[string]any{"code": -32601, "message": "unknown"}})
		}
		if m := <-answer; m.Error == nil || m.Error.Code != -32022 {
			t.Errorf("answered %+v", m)
		}
	}
	if left := len(s.heard); left != 0 {
		t.Errorf("the server heard %d messages more", left)
	}
}

// A result says whether it needs input, also that of a server that does not say so to clients with sessions; an error has
// its status.
func TestAnswersToRequestsWithoutSessions(t *testing.T) {
	s, _, url := modern(t, "2026-07-28")
	for said, want := range map[string]string{
		`"result":{"content":[]}`: `200 {"content":[],"resultType":"complete"}`,
		`"result":{}`:             `200 {"resultType":"complete"}`,
		`"result":{"resultType":"input_required","inputRequests":{}}`: `200 {"inputRequests":{},"resultType":"input_required"}`,
		`"error":{"code":-32601,"message":"no"}`:                      `404 -32601`,
		`"error":{"code":-32021,"message":"no"}`:                      `400 -32021`,
		`"error":{"code":-32602,"message":"no"}`:                      `200 -32602`,
	} {
		answer := later(t, url, modernly("1", "x/a", ""))
		s.printf(`{"jsonrpc":"2.0","id":%.0f,%s}`, s.hear("x/a").ID, said)
		resp := <-answer
		m, got := anyway(t, resp), fmt.Sprintf("%d ", resp.StatusCode)
		if m.Error != nil {
			got += fmt.Sprint(m.Error.Code)
		} else {
			got += inOrder(t, m.Result)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is passed on as (-want +got):\n%s", said, diff)
		}
	}
}

// anyway reads an answer that is an object, or the first event of a stream.
func anyway(t *testing.T, resp *http.Response) message {
	t.Helper()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return events(t, resp).next()
	}
	return read(t, resp)
}

// inOrder is JSON with its members in order.
func inOrder(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(v) // it was JSON
	return string(text)
}

// Each listener gets what it asked for under its own id, whether the server names it or not;
// clients with sessions are told as before, and calls beside it get their logs.
func TestListening(t *testing.T) {
	s, b, url := modern(t, "2026-07-28", "2025-11-25")
	old := listening(t, bridge.ModeStreamableHTTP, url)
	open := func(id, wants string) (feed, message) {
		answer := later(t, url, modernly(id, "subscriptions/listen", `"notifications":{`+wants+`}`))
		call := s.hear("subscriptions/listen")
		s.say(map[string]any{"method": "notifications/subscriptions/acknowledged", "params": map[string]any{
			"_meta": map[string]any{"io.modelcontextprotocol/subscriptionId": call.ID}}})
		return events(t, <-answer), call
	}
	tagged := func(f feed, method string, id any) {
		t.Helper()
		m := f.next()
		about, _ := m.Params["_meta"].(map[string]any)
		if diff := cmp.Diff([]any{method, id}, []any{m.Method, about["io.modelcontextprotocol/subscriptionId"]}); diff != "" {
			t.Errorf("a listener is told (-want +got):\n%s", diff)
		}
	}
	toolsOnly, _ := open(`"a"`, `"toolsListChanged":true`)
	tagged(toolsOnly, "notifications/subscriptions/acknowledged", "a")
	both, call := open(`7`, `"toolsListChanged":true,"resourceSubscriptions":["x://1"]`)
	tagged(both, "notifications/subscriptions/acknowledged", 7.0)

	s.say(map[string]any{"method": "notifications/resources/updated", "params": map[string]any{"uri": "x://1"}})
	s.say(map[string]any{"method": "notifications/tools/list_changed"})
	tagged(both, "notifications/resources/updated", 7.0)
	tagged(both, "notifications/tools/list_changed", 7.0)
	tagged(toolsOnly, "notifications/tools/list_changed", "a")
	s.say(map[string]any{"method": "notifications/tools/list_changed", "params": map[string]any{"_meta": map[string]any{"io.modelcontextprotocol/subscriptionId": call.ID}}})
	tagged(both, "notifications/tools/list_changed", 7.0)
	s.say(map[string]any{"method": "notifications/message", "params": map[string]any{}})
	for _, want := range []string{"notifications/tools/list_changed", "notifications/message"} {
		if m := old.next(); m.Method != want {
			t.Errorf("a client with a session is told %s, want %s", m.Method, want)
		}
	}

	b.Drain()
	for _, f := range []feed{toolsOnly, both} {
		if m := f.next(); m.Result == nil {
			t.Errorf("at the end of the proxy a listener is told %+v, want a result", m)
		}
		if data, err := f.data(); err == nil {
			t.Errorf("after that comes %s", data)
		}
	}
	s.hear("notifications/cancelled")
}

// A client that closes its connection has cancelled its request.
func TestClosingCancels(t *testing.T) {
	s, _, url := modern(t, "2026-07-28")
	answer := later(t, url, modernly("5", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
	call := s.hear("subscriptions/listen")
	s.say(map[string]any{"method": "notifications/tools/list_changed"})
	_ = (<-answer).Body.Close()
	if got := s.hear("notifications/cancelled"); got.Params["requestId"] != call.ID {
		t.Errorf("cancelled %v, want %v", got.Params["requestId"], call.ID)
	}
}

// Clients of the SDK in the newest version, and in one with sessions, use one process.
func TestBothKindsOfClients(t *testing.T) {
	_, url := start(t, bridge.Options{Open: container.Run(t, container.Echo(t)).Open})
	session := connect(t, bridge.ModeStreamableHTTP, url)
	if v := session.InitializeResult().ProtocolVersion; v != "2026-07-28" {
		t.Errorf("the SDK's client speaks %s", v)
	}
	if err := echo(t.Context(), session, "new"); err != nil {
		t.Error(err)
	}
	var names []string
	for tool, err := range session.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	if diff := cmp.Diff([]string{"add", "echo"}, names); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	one := join(t, url)
	m := read(t, post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"old"}}}`, one).do(t, url))
	var result mcp.CallToolResult
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) != 1 {
		t.Errorf("with a session: %+v, %v", m, err)
	}
}
