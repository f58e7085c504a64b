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
		"empty": {why: "an empty stream ends"},
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
