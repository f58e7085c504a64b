package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What the bridge needs of the SDK's transports and its codec, and does not get from them in v1.8.0: docs/reference/mcp-sdk.md
// says which of its parts stay for that. A case that fails after an update of the SDK is good news: see whether the part can go.
func TestWhatTheSDKLacks(t *testing.T) {
	for name, test := range map[string]struct {
		why   string
		probe func(t *testing.T) string
		want  string
	}{
		"DecodeMessage: great id":    {"an answer must have the id of its call", decoded(`{"jsonrpc":"2.0","id":9007199254740993,"method":"x"}`), `{"jsonrpc":"2.0","id":9007199254740992,"method":"x"}`},
		"DecodeMessage: fraction":    {"two calls would have one id", decoded(`{"jsonrpc":"2.0","id":1.5,"method":"x"}`), `{"jsonrpc":"2.0","id":1,"method":"x"}`},
		"DecodeMessage: null":        {"it is a mistake, and no notification", decoded(`{"jsonrpc":"2.0","id":null,"method":"x"}`), `{"jsonrpc":"2.0","method":"x"}`},
		"DecodeMessage: text behind": {"the server is broken: its call must fail", decoded(`{"jsonrpc":"2.0","id":1,"result":{}} done`), `{"jsonrpc":"2.0","id":1,"result":{}}`},
		"DecodeMessage: no result":   {"the server is broken: its call must fail", decoded(`{"jsonrpc":"2.0","id":1}`), `{"jsonrpc":"2.0","id":1}`},
		"DecodeMessage: no id":       {"a server says so that it cannot read a message", decoded(`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`), `invalid request`},

		"IOTransport: a line of a log": {"the messages behind it are of use", behind("Listening on port 7"), "nothing"},
		"IOTransport: NaN":             {"the answers behind it are those of others", behind(`{"jsonrpc":"2.0","id":1,"result":NaN}`), "nothing"},
		"IOTransport: a long line":     {"the answers behind it are those of others", behind(`{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 1<<10) + `"}`), "nothing"},

		"StreamableServerTransport.ServeHTTP: a method of 2025-11-25": {"a proxy passes on what it does not know", posted(nil, `{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`, ""),
			`400 text/plain; charset=utf-8 JSON RPC not handled: "tasks/list" unsupported`},
		"StreamableServerTransport.ServeHTTP: 2026-07-28": {"only StreamableHTTPHandler tells it the version of a request", posted(&mcp.StreamableServerTransport{Stateless: true}, modernly("1", "tools/list", "").body, "2026-07-28"),
			`400 application/json {"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"Mcp-Protocol-Version header is required for requests carrying \"io.modelcontextprotocol/protocolVersion\""}}`},
		"StreamableServerTransport.ServeHTTP: Accept": {"only StreamableHTTPHandler can choose one object", posted(nil, tools, "2025-11-25"),
			"200 text/event-stream event: message\ndata: " + `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"too late"}}`},
		"StreamableServerTransport: another reader": {"a client that has lost its connection comes back before the server notices", anotherReader, "409"},
		"streamableServerConn.Write: progress":      {"it belongs on the stream of its call, and only a handler of mcp.Server has the context for that", progress, `event: message|data: {"jsonrpc":"2.0","id":1,"result":{}}`},
		"streamableServerConn.Write: slow client":   {"one reader of the server serves all clients", slowClient(streamableConn), "waits"},
		"MemoryEventStore: purged":                  {"a client that opens a new stream asks for nothing that was", purged, "400 failed to replay events"},
		"MemoryEventStore: shares":                  {"a stream that says much must not forget for others", neighbours, "data purged"},

		"SSEServerTransport.ServeHTTP: a method of 2025-11-25": {"a proxy passes on what it does not know", postedSSE, `400 JSON RPC not handled: "tasks/list" unsupported`},
		"sseServerConn.Write: ids":                             {"without them a lost stream cannot go on", ofSSE, `event: endpoint|data: /m|event: message|data: {"jsonrpc":"2.0","method":"x"}`},
		"sseServerConn.Write: slow client":                     {"one reader of the server serves all clients", slowClient(sseConn), "waits"},

		"SSEClientTransport: carriage returns": {"they end lines, too", dialed(200, "event: endpoint\rdata: /m\r\r"), `missing endpoint: first event is "endpoint\rdata: /m", want "endpoint"`},
		"SSEClientTransport: no colon":         {"a field may be without a value", dialed(200, "event: endpoint\ndata\n\n"), `missing endpoint: malformed event: malformed line in SSE stream: "data"`},
		"SSEClientTransport: status":           {"a client needs the challenge of a server to log in", dialed(401, ""), "failed to connect: Unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if diff := cmp.Diff(test.want, test.probe(t)); diff != "" {
					t.Errorf("the SDK has changed (-then +now):\n%s\nwhat was missing: %s", diff, test.why)
				}
			})
		})
	}
}

// decoded is what a message is after the SDK has read it, or why it does not.
func decoded(text string) func(*testing.T) string {
	return func(t *testing.T) string {
		m, err := jsonrpc.DecodeMessage([]byte(text))
		if err != nil {
			return err.Error()
		}
		return encoded(t, m)
	}
}

func encoded(t *testing.T, m jsonrpc.Message) string {
	t.Helper()
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// behind is the message that a server prints behind a line.
func behind(line string) func(*testing.T) string {
	return func(t *testing.T) string {
		out, in := io.Pipe()
		conn, err := (&mcp.IOTransport{Reader: out, Writer: in, MaxLineLength: 1 << 10}).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // nothing is written
		go fmt.Fprintf(in, "%s\n%s\n", line, `{"jsonrpc":"2.0","id":2,"result":{}}`)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			m, err := conn.Read(ctx)
			cancel()
			if err == nil {
				return encoded(t, m)
			}
		}
		return "nothing"
	}
}

// linked is a transport that is connected; nil stands for one with a session.
func linked(t *testing.T, transport *mcp.StreamableServerTransport) (*mcp.StreamableServerTransport, mcp.Connection) {
	t.Helper()
	if transport == nil {
		transport = &mcp.StreamableServerTransport{SessionID: "s"}
	}
	conn, err := transport.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return transport, conn
}

func ofHTTP(ctx context.Context, method, body string, header ...string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, "/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// posted is the answer to a message whose server fails with an error that a client is to get with status 504. Its client takes
// an object, and no stream.
func posted(transport *mcp.StreamableServerTransport, body, version string) func(*testing.T) string {
	return func(t *testing.T) string {
		transport, conn := linked(t, transport)
		go func() {
			if m, err := conn.Read(t.Context()); err == nil {
				_ = conn.Write(t.Context(), &jsonrpc.Response{ID: m.(*jsonrpc.Request).ID, Error: &jsonrpc.Error{Code: -32001, Message: "too late"}})
			}
		}()
		w := httptest.NewRecorder()
		transport.ServeHTTP(w, ofHTTP(t.Context(), "POST", body, "Accept", "application/json", "Mcp-Protocol-Version", version, "Mcp-Method", "tools/list"))
		return fmt.Sprintf("%d %s %s", w.Code, w.Header().Get("Content-Type"), strings.TrimSpace(w.Body.String()))
	}
}

func anotherReader(t *testing.T) string {
	transport, _ := linked(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go transport.ServeHTTP(httptest.NewRecorder(), ofHTTP(ctx, "GET", ""))
	synctest.Wait()
	w := httptest.NewRecorder()
	transport.ServeHTTP(w, ofHTTP(ctx, "GET", ""))
	return fmt.Sprint(w.Code)
}

// progress is what comes on the stream of a call that is told its progress.
func progress(t *testing.T) string {
	transport, conn := linked(t, nil)
	w := httptest.NewRecorder()
	go func() {
		m, err := conn.Read(t.Context())
		if err != nil {
			return
		}
		_ = conn.Write(t.Context(), &jsonrpc.Request{Method: "notifications/progress"}) // it is lost
		_ = conn.Write(t.Context(), &jsonrpc.Response{ID: m.(*jsonrpc.Request).ID, Result: []byte("{}")})
	}()
	transport.ServeHTTP(w, ofHTTP(t.Context(), "POST", tools))
	return onOneLine(w)
}

func onOneLine(w *httptest.ResponseRecorder) string {
	return strings.NewReplacer("\n\n", "|", "\n", "|").Replace(strings.TrimSpace(w.Body.String()))
}

// stuck is a client that does not read.
type stuck struct {
	http.ResponseWriter
	ctx   context.Context
	reads func() bool
}

func (s stuck) Write(p []byte) (int, error) {
	if s.reads() {
		return len(p), nil
	}
	<-s.ctx.Done()
	return 0, errors.New("it is gone")
}

// slowClient tells whether a message for a client that does not read holds up who says it.
func slowClient(connect func(*testing.T, context.Context, func(int) http.ResponseWriter) mcp.Connection) func(*testing.T) string {
	return func(t *testing.T) string {
		ctx, cancel := context.WithCancel(t.Context())
		conn := connect(t, ctx, func(first int) http.ResponseWriter { // it reads that much
			return stuck{httptest.NewRecorder(), ctx, func() bool { first--; return first >= 0 }}
		})
		written := make(chan struct{})
		go func() { defer close(written); _ = conn.Write(t.Context(), &jsonrpc.Request{Method: "x"}) }()
		synctest.Wait()
		defer func() { cancel(); <-written; _ = conn.Close() }()
		select {
		case <-written:
			return "goes on"
		default:
			return "waits"
		}
	}
}

func streamableConn(t *testing.T, ctx context.Context, client func(int) http.ResponseWriter) mcp.Connection { //nolint:revive // t comes first in tests
	transport, conn := linked(t, nil)
	go transport.ServeHTTP(client(1), ofHTTP(ctx, "GET", ""))
	synctest.Wait()
	return conn
}

func sseConn(t *testing.T, ctx context.Context, client func(int) http.ResponseWriter) mcp.Connection { //nolint:revive // t comes first in tests
	conn, err := (&mcp.SSEServerTransport{Endpoint: "/m", Response: client(1)}).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// purged is what a client gets that opens its stream after some messages for it were forgotten.
func purged(t *testing.T) string {
	store := mcp.NewMemoryEventStore(nil)
	store.SetMaxBytes(100)
	transport, conn := linked(t, &mcp.StreamableServerTransport{SessionID: "s", EventStore: store})
	for range 10 {
		if err := conn.Write(t.Context(), &jsonrpc.Request{Method: "notifications/message"}); err != nil {
			t.Fatal(err)
		}
	}
	w := httptest.NewRecorder()
	transport.ServeHTTP(w, ofHTTP(t.Context(), "GET", ""))
	return fmt.Sprintf("%d %s", w.Code, strings.TrimSpace(w.Body.String()))
}

// neighbours is why an event is not kept after another session has said much.
func neighbours(t *testing.T) string {
	store, ctx := mcp.NewMemoryEventStore(nil), t.Context()
	store.SetMaxBytes(1000)
	add := func(session string, bytes int) {
		if err := errors.Join(store.Open(ctx, session, ""), store.Append(ctx, session, "", make([]byte, bytes))); err != nil {
			t.Fatal(err)
		}
	}
	add("quiet", 10)
	for range 20 {
		add("loud", 100)
	}
	for _, err := range store.After(ctx, "quiet", "", -1) {
		for err != nil && errors.Unwrap(err) != nil {
			err = errors.Unwrap(err)
		}
		return fmt.Sprint(err)
	}
	return ""
}

func postedSSE(t *testing.T) string {
	transport := &mcp.SSEServerTransport{Endpoint: "/m", Response: httptest.NewRecorder()}
	conn, err := transport.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is written
	w := httptest.NewRecorder()
	transport.ServeHTTP(w, ofHTTP(t.Context(), "POST", `{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`))
	return fmt.Sprintf("%d %s", w.Code, strings.TrimSpace(w.Body.String()))
}

func ofSSE(t *testing.T) string {
	w := httptest.NewRecorder()
	conn, err := (&mcp.SSEServerTransport{Endpoint: "/m", Response: w}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is written
	if err := conn.Write(t.Context(), &jsonrpc.Request{Method: "x"}); err != nil {
		t.Fatal(err)
	}
	return onOneLine(w)
}

// answers is an http.RoundTripper that always gets this.
type answers struct {
	status int
	body   string
}

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{"Content-Type": {"text/event-stream"}, "Www-Authenticate": {"Bearer"}},
		Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// dialed is why a client cannot connect.
func dialed(status int, body string) func(*testing.T) string {
	return func(t *testing.T) string {
		_, err := (&mcp.SSEClientTransport{Endpoint: "http://x/sse", HTTPClient: &http.Client{Transport: answers{status, body}}}).Connect(t.Context())
		return fmt.Sprint(err)
	}
}
