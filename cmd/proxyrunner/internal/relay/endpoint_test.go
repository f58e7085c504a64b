package relay

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// What the endpoint is to be, to a client behind the proxy of a server at mcp-fetch:8080.
func TestEndpointIsCorrected(t *testing.T) {
	edge := http.Header{"X-Forwarded-Prefix": {"/edge"}}
	for name, test := range map[string]struct {
		why          string
		options      Options
		header       http.Header
		says, should string
	}{
		"nothing to correct":   {why: "the client resolves a path against the address that it used", says: "/messages?session_id=1", should: "/messages?session_id=1"},
		"prefix":               {"the path before the proxy is unknown to the server", Options{EndpointPrefix: "servers/fetch/"}, nil, "/messages?s=1", "/servers/fetch/messages?s=1"},
		"prefix already there": {"a server that knows its prefix is right", Options{EndpointPrefix: "/fetch"}, nil, "/fetch/messages", "/fetch/messages"},
		"like a prefix":        {"/fetcher is not below /fetch", Options{EndpointPrefix: "/fetch"}, nil, "/fetcher/messages", "/fetch/fetcher/messages"},
		"relative":             {"it is relative to where the client is, behind the prefix", Options{EndpointPrefix: "/fetch"}, nil, "messages?s=1", "messages?s=1"},
		"own address":          {why: "the client cannot reach it", says: "http://mcp-fetch:8080/messages?s=1", should: "/messages?s=1"},
		"another host":         {"somebody configured it on purpose", Options{EndpointPrefix: "/fetch"}, nil, "https://mcp.example.org/messages", "https://mcp.example.org/messages"},
		"forwarded, trusted":   {"the operator says that the header is right", Options{TrustProxyHeaders: true}, edge, "/messages", "/edge/messages"},
		"forwarded, not":       {"anybody can send it", Options{}, edge, "/messages", "/messages"},
		"also configured":      {"what is configured wins", Options{TrustProxyHeaders: true, EndpointPrefix: "/fetch"}, edge, "/messages", "/fetch/messages"},
		"unspecified": {"it can only mean the server itself: the address on which it listens", Options{EndpointPrefix: "/fetch"}, nil,
			"http://0.0.0.0:3001/message?sessionId=abc", "/fetch/message?sessionId=abc"},
		"unspecified, version 6": {why: "the same", says: "http://[::]:1/m", should: "/m"},
		"unspecified, mapped":    {why: "the same", says: "http://[::ffff:0.0.0.0]:1/m", should: "/m"},
		"localhost":              {why: "its client is elsewhere", says: "http://LOCALHOST:1/m", should: "/m"},
		"below localhost":        {why: "all of them are loopback", says: "http://mcp.localhost./m", should: "/m"},
		"loopback":               {why: "its client is elsewhere", says: "http://127.0.0.2:1/m", should: "/m"},
		"loopback, version 6":    {why: "the same", says: "//[::1]:1/m", should: "/m"},
		"like localhost":         {why: "it is a host", says: "http://localhost.example.org/m", should: "http://localhost.example.org/m"},
		"another scheme":         {why: "an opaque address has no host", says: "mailto:a@localhost", should: "mailto:a@localhost"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := correct(test.says, "mcp-fetch:8080", prefix(test.header, test.options)); got != test.should {
				t.Errorf("got %s, want %s: %s", got, test.should, test.why)
			}
		})
	}
}

// Only the endpoint of the first event is another one for the client, by whatever rules of event streams it is written.
func TestEndpointEventIsFound(t *testing.T) {
	const message = "event: message\ndata: {\"endpoint\":\"/messages\"}\n\n"
	for name, test := range map[string]struct{ why, in, want string }{
		"as most write it":  {"a message is not touched", "event: endpoint\ndata: /messages?s=1\n\n" + message, "event: endpoint\ndata: /fetch/messages?s=1\n\n" + message},
		"comments first":    {"no space, and carriage returns: all of it is allowed", ": hello\r\n\r\nevent:endpoint\r\ndata:/messages\r\n\r\n", ": hello\r\n\r\nevent:endpoint\r\ndata: /fetch/messages\r\n\r\n"},
		"another event":     {"an endpoint comes first or not at all: the text of a message is nobody's business", message + "event: endpoint\ndata: /messages\n\n", message + "event: endpoint\ndata: /messages\n\n"},
		"a long line":       {"no endpoint is that long, and no line is held back for ever", "data: " + strings.Repeat("x", 3*maxFirst) + "\n\n", "data: " + strings.Repeat("x", 3*maxFirst) + "\n\n"},
		"many lines":        {"nor is it that many lines", strings.Repeat("data: /m\n", maxFirst) + "event: endpoint\n\n", strings.Repeat("data: /m\n", maxFirst) + "event: endpoint\n\n"},
		"many comments":     {"they are no part of the event", strings.Repeat(": x\n", maxFirst) + "event: endpoint\ndata: /m\n\n", strings.Repeat(": x\n", maxFirst) + "event: endpoint\ndata: /fetch/m\n\n"},
		"cut off":           {"what came is handed on", "event: endpoint\ndata: /mess", "event: endpoint\ndata: /fetch/mess"},
		"data first":        {"the order of fields means nothing", "data: /messages\nevent: endpoint\n\n" + message, "data: /fetch/messages\nevent: endpoint\n\n" + message},
		"data of another":   {"it is a message", "data: /messages\n\nevent: endpoint\ndata: /messages\n\n", "data: /messages\n\nevent: endpoint\ndata: /messages\n\n"},
		"carriage returns":  {"they end lines, too", ": hello\r\revent: endpoint\rdata: /messages\r\r" + message, ": hello\r\revent: endpoint\rdata: /fetch/messages\r\r" + message},
		"BOM":               {"a stream may begin with one", "\ufeffevent: endpoint\ndata: /messages\n\n", "\ufeffevent: endpoint\ndata: /fetch/messages\n\n"},
		"BOM, data first":   {"the same", "\ufeffdata: /messages\nevent: endpoint\n\n", "\ufeffdata: /fetch/messages\nevent: endpoint\n\n"},
		"empty":             {"an empty stream ends", "", ""},
		"both ends of line": {"they are one", "event: endpoint\r\ndata: http://mcp-fetch:8080/m\r\n\r\n", "event: endpoint\r\ndata: /fetch/m\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := io.ReadAll(&firstEvent{
				ReadCloser: io.NopCloser(iotest.OneByteReader(strings.NewReader(test.in))),
				correct:    func(endpoint string) string { return correct(endpoint, "mcp-fetch:8080", "/fetch") },
			})
			if err != nil || string(got) != test.want {
				t.Errorf("got  %q, %v\nwant %q: %s", got, err, test.want, test.why)
			}
		})
	}
}

// An answer is counted however its event is written: else the proxy would wait for it at its end.
func TestAnswersAreCounted(t *testing.T) {
	for name, test := range map[string]struct {
		why, in string
		awaited int
		unsure  bool
	}{
		"line feeds":         {"as most write them", "event: message\ndata: {\"result\":1}\n\n", 0, false},
		"carriage returns":   {"they end lines, too", "event: message\rdata: {\"result\":1}\r\r", 0, false},
		"both":               {"they are one end of line", "event: message\r\ndata: {\"result\":1}\r\n\r\n", 0, false},
		"data first":         {"the order of fields means nothing", "data: hello\nevent: ping\n\ndata: {\"result\":1}\nevent: message\n\n", 0, false},
		"byte order mark":    {"it is no part of the first line", "\ufeffevent: endpoint\ndata: /m\n\ndata: {\"result\":1}\n\n", 0, false},
		"no name":            {"it is a message then", "event\ndata: {\"result\":1}\n\n", 0, false},
		"no data":            {"there is no such event", "id: 1\ndata\n\ndata:\n\n", 1, false},
		"what is no message": {"nobody awaits it", "event: endpoint\rdata: {\"result\":1}\r\r", 1, false},
		"not understood":     {"it may have been an answer", "data: hello\r\r", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			all := &streams{open: map[string]*stream{}}
			w := &watched{all: all, stream: &stream{awaited: 1}}
			for i := range len(test.in) {
				w.look([]byte(test.in[i : i+1]))
			}
			if w.stream.awaited != test.awaited || w.stream.unsure != test.unsure {
				t.Errorf("awaited %d, unsure %v, want %d, %v: %s", w.stream.awaited, w.stream.unsure, test.awaited, test.unsure, test.why)
			}
		})
	}
}
