package bridge_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

const tools = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

func TestStatusOfStreamableHTTP(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	go answering(s)
	one := join(t, url)
	busy := join(t, url)
	request{method: http.MethodGet, path: "/mcp", header: with(busy, "Accept", "text/event-stream")}.do(t, url)
	gone := join(t, url)
	request{method: http.MethodDelete, path: "/mcp", header: gone}.do(t, url)

	const events, object = "text/event-stream", "application/json"
	for name, c := range map[string]struct {
		request
		status int
		kind   string // of the body
		why    string
	}{
		"call":                  {post(tools, one), 200, object, "a client that accepts nothing in particular takes JSON"},
		"call, no session":      {post(tools, nil), 200, object, "a single question needs no session"},
		"call, unknown session": {post(tools, map[string]string{"Mcp-Session-Id": "x"}), 404, object, "the client is to initialise again"},
		"call, ended session":   {post(tools, gone), 404, object, "the same"},
		"notification":          {post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, one), 202, "", "there is nothing to answer"},
		"response":              {post(`{"jsonrpc":"2.0","id":4,"result":{}}`, one), 202, "", "nor here, also if nobody waits for it"},
		"batch":                 {post("["+tools+"]", one), 400, object, "the protocol has given them up"},
		"two messages":          {post(tools+tools, one), 400, object, "one of them would be lost"},
		"empty":                 {request{method: "POST", path: "/mcp", header: with(one, "Content-Type", object)}, 400, object, "there is no message"},
		"not JSON-RPC":          {post(`{"id":1,"method":"x"}`, one), 400, object, "it has no version"},
		"other content":         {post(tools, with(one, "Content-Type", "text/plain")), 415, object, "a form of a web page can send that"},
		"too large":             {post(`{"jsonrpc":"2.0","id":1,"method":"`+strings.Repeat("x", rpcerror.MaxBody)+`"}`, one), 413, object, "memory is bounded"},
		"future version":        {post(tools, with(one, "Mcp-Protocol-Version", "2999-01-01")), 400, object, "the specification asks for it"},
		"sessionless protocol": {post(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, nil), 400, object,
			"a client falls back to initialize"},
		"stream, no session":      {request{method: "GET", path: "/mcp"}, 400, object, "whose stream?"},
		"stream, unknown session": {request{method: "GET", path: "/mcp", header: map[string]string{"Mcp-Session-Id": "x"}}, 404, object, "it is not there"},
		"second stream":           {request{method: "GET", path: "/mcp", header: with(busy, "Accept", events)}, 409, object, "a message goes to one stream only"},
		"stream not accepted":     {request{method: "GET", path: "/mcp", header: with(one, "Accept", "image/png")}, 406, object, "there is nothing else"},
		"end, no session":         {request{method: "DELETE", path: "/mcp"}, 400, object, "which one?"},
		"end, unknown session":    {request{method: "DELETE", path: "/mcp", header: gone}, 404, object, "it has ended"},
		"end":                     {request{method: "DELETE", path: "/mcp", header: join(t, url)}, 204, "", "done"},
		"put":                     {request{method: "PUT", path: "/mcp", body: tools}, 405, object, "there is no such thing"},
		"path of the other mode":  {request{method: "GET", path: "/sse"}, 404, "text/plain; charset=utf-8", "a bridge has one mode"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := c.do(t, url)
			if kind := resp.Header.Get("Content-Type"); resp.StatusCode != c.status || kind != c.kind {
				t.Errorf("%s with %q, want %d with %q: %s", resp.Status, kind, c.status, c.kind, c.why)
			}
		})
	}
}

func TestStatusOfSSE(t *testing.T) {
	_, url := begin(t, bridge.Options{Mode: bridge.ModeSSE, EndpointPrefix: "/fetch/"})
	stream := events(t, request{method: http.MethodGet, path: "/sse"}.do(t, url))
	endpoint, err := stream.data()
	if err != nil {
		t.Fatal(err)
	}
	messages, ok := strings.CutPrefix(endpoint, "/fetch")
	if !ok || !strings.HasPrefix(messages, "/messages?session_id=") {
		t.Fatalf("endpoint %q, want /fetch/messages?session_id=…", endpoint)
	}
	for name, c := range map[string]struct {
		request
		status int
		why    string
	}{
		"notification":    {request{method: "POST", path: messages, body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`}, 202, "it is taken"},
		"no session":      {request{method: "POST", path: "/messages", body: tools}, 400, "whose message?"},
		"unknown session": {request{method: "POST", path: "/messages?session_id=x", body: tools}, 404, "its stream has ended"},
		"no JSON":         {request{method: "POST", path: messages, body: "{"}, 400, "it cannot be read"},
		"wrong method":    {request{method: "GET", path: messages}, 405, "messages are posted"},
		"post to stream":  {request{method: "POST", path: "/sse", body: tools}, 405, "a client tries streamable-http first, and then GET"},
		"other mode":      {request{method: "POST", path: "/mcp", body: tools}, 404, "a bridge has one mode"},
	} {
		t.Run(name, func(t *testing.T) {
			if resp := c.do(t, url); resp.StatusCode != c.status {
				t.Errorf("%s, want %d: %s", resp.Status, c.status, c.why)
			}
		})
	}
	if resp := (request{method: "POST", path: messages, body: initialize}).do(t, url); resp.StatusCode != http.StatusAccepted {
		t.Errorf("initialize: %s, want 202", resp.Status)
	}
	if m := stream.next(); m.ID != 0.0 || m.Result == nil {
		t.Errorf("the stream has %+v, want the answer to initialize", m)
	}
}

func TestWithoutAServer(t *testing.T) {
	b := bridge.New(bridge.Options{})
	server := httptest.NewServer(b)
	defer server.Close()
	resp := post(initialize, nil).do(t, server.URL)
	if m := read(t, resp); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" ||
		m.Error == nil || !strings.Contains(m.Error.Message, "not attached yet") {
		t.Errorf("%s, %+v; want 503 and why", resp.Status, m)
	}
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		t.Errorf("session %q of a client that was refused", id)
	}
	if ok, message := b.Health(); ok || message == "" {
		t.Errorf("Health = %v, %q", ok, message)
	}
}
