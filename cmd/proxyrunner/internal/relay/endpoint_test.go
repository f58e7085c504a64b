package relay

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

func TestEndpointEventIsCorrected(t *testing.T) {
	const message = "event: message\ndata: {\"endpoint\":\"/messages\"}\n\n"
	for name, test := range map[string]struct {
		why      string
		options  Options
		header   http.Header
		in, want string
	}{
		"nothing to correct": {
			why: "the client resolves a path against the address that it used",
			in:  "event: endpoint\ndata: /messages?session_id=1\n\n" + message, want: "event: endpoint\ndata: /messages?session_id=1\n\n" + message,
		},
		"prefix": {
			why: "the path before the proxy is unknown to the server", options: Options{EndpointPrefix: "servers/fetch/"},
			in: "event: endpoint\ndata: /messages?session_id=1\n\n" + message, want: "event: endpoint\ndata: /servers/fetch/messages?session_id=1\n\n" + message,
		},
		"prefix already there": {
			why: "a server that knows its prefix is right", options: Options{EndpointPrefix: "/fetch"},
			in: "event: endpoint\ndata: /fetch/messages\n\n", want: "event: endpoint\ndata: /fetch/messages\n\n",
		},
		"like a prefix": {
			why: "/fetcher is not below /fetch", options: Options{EndpointPrefix: "/fetch"},
			in: "event: endpoint\ndata: /fetcher/messages\n\n", want: "event: endpoint\ndata: /fetch/fetcher/messages\n\n",
		},
		"relative": {
			why: "it is relative to where the client is, behind the prefix", options: Options{EndpointPrefix: "/fetch"},
			in: "event: endpoint\ndata: messages?s=1\n\n", want: "event: endpoint\ndata: messages?s=1\n\n",
		},
		"absolute, the server's own address": {
			why: "the client cannot reach it",
			in:  "event: endpoint\ndata: http://mcp-fetch:8080/messages?s=1\n\n", want: "event: endpoint\ndata: /messages?s=1\n\n",
		},
		"absolute, another host": {
			why: "somebody configured it on purpose", options: Options{EndpointPrefix: "/fetch"},
			in: "event: endpoint\ndata: https://mcp.example.org/messages\n\n", want: "event: endpoint\ndata: https://mcp.example.org/messages\n\n",
		},
		"forwarded prefix, trusted": {
			why: "the operator says that the header is right", options: Options{TrustProxyHeaders: true}, header: http.Header{"X-Forwarded-Prefix": {"/edge"}},
			in: "event: endpoint\ndata: /messages\n\n", want: "event: endpoint\ndata: /edge/messages\n\n",
		},
		"forwarded prefix, not trusted": {
			why: "anybody can send it", header: http.Header{"X-Forwarded-Prefix": {"/edge"}},
			in: "event: endpoint\ndata: /messages\n\n", want: "event: endpoint\ndata: /messages\n\n",
		},
		"configured and forwarded": {
			why: "what is configured wins", options: Options{TrustProxyHeaders: true, EndpointPrefix: "/fetch"}, header: http.Header{"X-Forwarded-Prefix": {"/edge"}},
			in: "event: endpoint\ndata: /messages\n\n", want: "event: endpoint\ndata: /fetch/messages\n\n",
		},
		"no space, carriage returns, comments first": {
			why: "all of it is allowed", options: Options{EndpointPrefix: "/fetch"},
			in: ": hello\r\n\r\nevent:endpoint\r\ndata:/messages\r\n\r\n", want: ": hello\r\n\r\nevent:endpoint\r\ndata: /fetch/messages\r\n\r\n",
		},
		"another first event": {
			why: "an endpoint comes first or not at all: the text of a message is nobody's business", options: Options{EndpointPrefix: "/fetch"},
			in: message + "event: endpoint\ndata: /messages\n\n", want: message + "event: endpoint\ndata: /messages\n\n",
		},
		"a long line": {
			why: "no endpoint is that long, and no line is held back for ever", options: Options{EndpointPrefix: "/fetch"},
			in: "data: " + strings.Repeat("x", 3*maxLine) + "\n\n", want: "data: " + strings.Repeat("x", 3*maxLine) + "\n\n",
		},
		"cut off": {
			why: "what came is handed on", options: Options{EndpointPrefix: "/fetch"},
			in: "event: endpoint\ndata: /mess", want: "event: endpoint\ndata: /fetch/mess",
		},
		"data first": {
			why: "the order of fields means nothing", options: Options{EndpointPrefix: "/fetch"},
			in: "data: /messages\nevent: endpoint\n\n" + message, want: "data: /fetch/messages\nevent: endpoint\n\n" + message,
		},
		"data first, of another event": {
			why: "it is a message", options: Options{EndpointPrefix: "/fetch"},
			in: "data: /messages\n\nevent: endpoint\ndata: /messages\n\n", want: "data: /messages\n\nevent: endpoint\ndata: /messages\n\n",
		},
		"bare carriage returns": {
			why: "they end lines, too", options: Options{EndpointPrefix: "/fetch"},
			in: ": hello\r\revent: endpoint\rdata: /messages\r\r" + message, want: ": hello\r\revent: endpoint\rdata: /fetch/messages\r\r" + message,
		},
		"BOM": {
			why: "a stream may begin with one", options: Options{EndpointPrefix: "/fetch"},
			in: "\ufeffevent: endpoint\ndata: /messages\n\n", want: "\ufeffevent: endpoint\ndata: /fetch/messages\n\n",
		},
		"BOM, data first": {
			why: "the same", options: Options{EndpointPrefix: "/fetch"},
			in: "\ufeffdata: /messages\nevent: endpoint\n\n", want: "\ufeffdata: /fetch/messages\nevent: endpoint\n\n",
		},
		"unspecified": {
			why: "it can only mean the server itself: the address on which it listens", options: Options{EndpointPrefix: "/fetch"},
			in: "event: endpoint\r\ndata: http://0.0.0.0:3001/message?sessionId=abc\r\n\r\n", want: "event: endpoint\r\ndata: /fetch/message?sessionId=abc\r\n\r\n",
		},
		"unspecified, version 6": {why: "the same", in: "event: endpoint\ndata: http://[::]:1/m\n\n", want: "event: endpoint\ndata: /m\n\n"},
		"unspecified, mapped":    {why: "the same", in: "event: endpoint\ndata: http://[::ffff:0.0.0.0]:1/m\n\n", want: "event: endpoint\ndata: /m\n\n"},
		"localhost":              {why: "its client is elsewhere", in: "event: endpoint\ndata: http://LOCALHOST:1/m\n\n", want: "event: endpoint\ndata: /m\n\n"},
		"below localhost":        {why: "all of them are loopback", in: "event: endpoint\ndata: http://mcp.localhost./m\n\n", want: "event: endpoint\ndata: /m\n\n"},
		"loopback":               {why: "its client is elsewhere", in: "event: endpoint\ndata: http://127.0.0.2:1/m\n\n", want: "event: endpoint\ndata: /m\n\n"},
		"loopback, version 6":    {why: "the same", in: "event: endpoint\ndata: //[::1]:1/m\n\n", want: "event: endpoint\ndata: /m\n\n"},
		"like localhost":         {why: "it is a host", in: "event: endpoint\ndata: http://localhost.example.org/m\n\n", want: "event: endpoint\ndata: http://localhost.example.org/m\n\n"},
		"another scheme":         {why: "an opaque address has no host", in: "event: endpoint\ndata: mailto:a@localhost\n\n", want: "event: endpoint\ndata: mailto:a@localhost\n\n"},
		"empty":                  {why: "an empty stream ends"},
	} {
		t.Run(name, func(t *testing.T) {
			path := prefix(test.header, test.options)
			f := &firstEvent{
				source:  bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(test.in)), maxLine),
				correct: func(endpoint string) string { return correct(endpoint, "mcp-fetch:8080", path) },
			}
			got, err := io.ReadAll(f)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.want {
				t.Errorf("got  %q\nwant %q: %s", got, test.want, test.why)
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
