package streamable_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/relay"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/streamable"
	"github.com/phasegate/phasegate/test/support/harness"
)

// sseServer is a server of sse with one tool, which tells progress and answers who its client is: the
// number of its session, and the Authorization with which that was opened.
type sseServer struct {
	http.Handler
	sdk *mcp.Server

	mu      sync.Mutex
	clients int
}

func newSSEServer() *sseServer {
	s := &sseServer{}
	handler := mcp.NewSSEHandler(func(r *http.Request) *mcp.Server {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clients++
		who := fmt.Sprintf("client %d %s", s.clients, r.Header.Get("Authorization"))
		sdk := mcp.NewServer(&mcp.Implementation{Name: "who", Version: "1"}, nil)
		mcp.AddTool(sdk, &mcp.Tool{Name: "who"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Message: "looking", Progress: 1})
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: who}}}, nil, err
		})
		s.sdk = sdk
		return sdk
	}, &mcp.SSEOptions{})
	mux := http.NewServeMux()
	mux.Handle("/sse", handler)
	s.Handler = mux
	return s
}

// proxy is one to a server. Its sessions end with the test.
func proxy(t *testing.T, server http.Handler) (at string, state *limit.Shares) {
	t.Helper()
	backend := httptest.NewServer(server)
	t.Cleanup(backend.Close)
	t.Cleanup(backend.CloseClientConnections)
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	state = limit.NewShares(bridge.StateBytes)
	p := streamable.New(relay.New(relay.Options{Target: target, SSE: true, EndpointPrefix: "/weather", Log: log}), bridge.Options{
		EndpointPrefix: "/weather", Requests: limit.NewBudget(limit.Total), Answers: limit.NewBudget(limit.Total), State: state, Log: log})
	go func() { _ = p.Run(t.Context()) }() // it never fails
	front := httptest.NewServer(p)
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	return front.URL, state
}

type withHeader struct{ value string }

func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", h.value)
	return http.DefaultTransport.RoundTrip(r)
}

func connect(t *testing.T, transport mcp.Transport, progress chan<- string) (*mcp.ClientSession, error) {
	t.Helper()
	return mcp.NewClient(&mcp.Implementation{Name: "vmcp", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Message },
	}).Connect(t.Context(), transport, nil)
}

func streamableAt(at, path, who string) mcp.Transport {
	return &mcp.StreamableClientTransport{Endpoint: at + path, HTTPClient: &http.Client{Transport: withHeader{who}}, MaxRetries: -1}
}

func who(t *testing.T, session *mcp.ClientSession) (string, error) {
	t.Helper()
	params := &mcp.CallToolParams{Name: "who"}
	params.SetProgressToken("p")
	result, err := session.CallTool(t.Context(), params)
	if err != nil {
		return "", err
	}
	said, ok := result.Content[0].(*mcp.TextContent)
	if !ok {
		return "", errors.New("no text")
	}
	return said.Text, nil
}

// A VirtualMCPServer comes as a client of streamable-http to status.url of an sse server, which is /sse, if its
// outgoing authentication is given inline; other clients of streamable-http come to /mcp.
func TestClientsOfStreamableHTTP(t *testing.T) {
	at, state := proxy(t, newSSEServer())
	for n, path := range []string{"/mcp", "/sse#weather"} {
		progress := make(chan string, 1)
		session, err := connect(t, streamableAt(at, path, "Bearer "+path), progress)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		tools, err := session.ListTools(t.Context(), nil)
		if err != nil || len(tools.Tools) != 1 || session.InitializeResult().ServerInfo.Name != "who" {
			t.Errorf("%s: %v, %+v", path, err, tools)
		}
		got, err := who(t, session)
		if want := fmt.Sprintf("client %d Bearer %s", n+1, path); err != nil || got != want {
			t.Errorf("%s: the server was called by %q (%v), want %q: each session is one of the server's, with its client's headers", path, got, err, want)
		}
		if got := <-progress; got != "looking" {
			t.Errorf("%s: progress %q", path, got)
		}
		if status, _ := post(t, at+"/mcp", session.ID(), `{"jsonrpc":"2.0","id":1,"method":"ping"}`); status != http.StatusNotFound {
			t.Errorf("%s: the session of another Authorization: status %d, want 404", path, status)
		}
		if err := session.Close(); err != nil {
			t.Errorf("%s: close: %v", path, err)
		}
	}
	givenBack(t, state)
}

func givenBack(t *testing.T, state *limit.Shares) {
	t.Helper()
	harness.Eventually(t, "all that sessions held to be given back", func() error {
		if left := state.Left(); left != bridge.StateBytes {
			return fmt.Errorf("%d of %d bytes", left, bridge.StateBytes)
		}
		return nil
	})
}

func post(t *testing.T, address, session, body string) (status int, text string) {
	t.Helper()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": {session}}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	all, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all)
}

func TestClientsOfSSEAreServedAsBefore(t *testing.T) {
	at, _ := proxy(t, newSSEServer())
	// The prefix is what an ingress takes off.
	ingress := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/weather")
		out, _ := http.NewRequestWithContext(r.Context(), r.Method, at+r.URL.RequestURI(), r.Body)
		out.Header = r.Header
		answer, err := http.DefaultClient.Do(out)
		if err != nil {
			return
		}
		defer answer.Body.Close()
		w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
		w.WriteHeader(answer.StatusCode)
		for buffer := make([]byte, 4096); err == nil; {
			var n int
			n, err = answer.Body.Read(buffer)
			_, _ = w.Write(buffer[:n])
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(ingress.Close)
	t.Cleanup(ingress.CloseClientConnections)
	session, err := connect(t, &mcp.SSEClientTransport{Endpoint: ingress.URL + "/weather/sse"}, make(chan string, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }() // what is said before is tested
	if got, err := who(t, session); err != nil || got != "client 1 " {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWhatTheServerAnswersItself(t *testing.T) {
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	answers := func(status int, text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Www-Authenticate") == "" {
				w.Header().Set("Www-Authenticate", "Bearer")
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		})
	}
	var sent []string
	once := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/" { // the relay looks there whether the server is up
			sent = append(sent, r.Method+" "+r.URL.Path+" "+string(body))
		}
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
	})
	endpoint := func(event string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, event)
		})
	}
	for name, test := range map[string]struct {
		why, session, path, body string
		server                   http.Handler
		status                   int
		want                     string
	}{
		"both kinds":        {"a server that speaks both answers itself", "", "/mcp", initialize, answers(200, "its own"), 200, "its own"},
		"its own session":   {"so do its sessions", "its-own", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, answers(200, "pong"), 200, "pong"},
		"not authorized":    {"a challenge is the client's", "", "/mcp", initialize, answers(401, "who are you"), 401, "who are you"},
		"stream refused":    {"also where only streams have one", "", "/mcp", initialize, once, 401, `{"error":{"code":-32000,"message":"the MCP server answered GET /sse with status 401"},"id":1,"jsonrpc":"2.0"}`},
		"another host":      {"messages of a client go nowhere else", "", "/sse", initialize, endpoint("event: endpoint\ndata: http://192.0.2.1/x\n\n"), 502, `{"error":{"code":-32000,"message":"the MCP server says endpoint \"http://192.0.2.1/x\" instead of its own address to which messages go"},"id":1,"jsonrpc":"2.0"}`},
		"no endpoint":       {"it ended at once", "", "/sse", initialize, endpoint(": nothing\n\n"), 502, `{"error":{"code":-32000,"message":"the MCP server ended the stream of /sse at once"},"id":1,"jsonrpc":"2.0"}`},
		"never initialized": {"the stream ends after its endpoint", "", "/sse", initialize, endpoint("event: endpoint\rdata: /m?s=1\r\r"), 502, `{"error":{"code":-32000,"message":"the MCP server ended the session before it was initialised: see its log"},"id":1,"jsonrpc":"2.0"}`},
		"session over":      {"its client has to learn it as the specification says", "gone", "/sse", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, answers(405, ""), 404, `{"error":{"code":-32000,"message":"the session has ended: initialize again"},"id":1,"jsonrpc":"2.0"}`},
		"session over, mcp": {"at the other address, too", "gone", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, answers(404, ""), 404, `{"error":{"code":-32000,"message":"the session has ended: initialize again"},"id":1,"jsonrpc":"2.0"}`},
		"no session":        {"a client of a version without sessions learns that it is not spoken", "", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, answers(404, "what"), 404, "what"},
	} {
		t.Run(name, func(t *testing.T) {
			at, _ := proxy(t, test.server)
			if status, text := post(t, at+test.path, test.session, test.body); status != test.status || text != test.want {
				t.Errorf("%s: answered %d %s\nwant %d %s", test.why, status, text, test.status, test.want)
			}
		})
	}
	if diff := cmp.Diff([]string{"POST /mcp " + initialize, "GET /sse "}, sent); diff != "" {
		t.Errorf("the server was asked (-want +got):\n%s", diff)
	}
}

// The server forgets a session with its stream: its client gets 404, by which it knows to begin anew.
func TestSessionEndsWithTheServer(t *testing.T) {
	server := newSSEServer()
	at, state := proxy(t, server)
	session, err := connect(t, streamableAt(at, "/mcp", "x"), make(chan string, 1))
	if err != nil {
		t.Fatal(err)
	}
	for one := range server.sdk.Sessions() {
		_ = one.Close() // it may be gone by itself
	}
	givenBack(t, state)
	_, err = who(t, session)
	if err == nil || !strings.Contains(err.Error(), "session") {
		t.Errorf("a call: %v", err)
	}
	t.Logf("the SDK says: %v", err)
}

// A session lasts for hours; what its client has sent to begin it does not.
func TestMemoryOfSessions(t *testing.T) {
	const sessions, padding = 10, 1 << 20
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	server := newSSEServer()
	at, _ := proxy(t, server)
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"},"x":"` +
		strings.Repeat("x", padding) + `"}}`
	before := heap()
	for range sessions {
		if status, text := post(t, at+"/mcp", "", body); status != http.StatusOK {
			t.Fatalf("initialize: status %d %s", status, text)
		}
	}
	grown := heap() - before
	server.mu.Lock()
	defer server.mu.Unlock()
	if server.clients != sessions || grown > sessions*padding/3 {
		t.Errorf("%d sessions of %d hold %d KiB, want that the %d KiB with which they began are free", server.clients, sessions, grown>>10, sessions*padding>>10)
	}
}
