package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/relay"
	"github.com/phasegate/phasegate/test/support/harness"
)

// pods are MCP servers, each a process of its own, that are found by the names of pods.
type pods struct {
	t         *testing.T
	transport string
	address   map[string]string // by host and port of the pod
	process   map[string]*harness.Process
	// wanted is how many there are to be.
	wanted atomic.Int32
	// turn is whose turn it is.
	turn  atomic.Int32
	front *httptest.Server
}

func podName(n int) string { return fmt.Sprintf("fetch-%d.mcp-fetch-headless:8080", n) }

// service is what stands for all of them: pod 0, as with one pod. A server on a loopback address takes no other name.
const service = "localhost:8080"

func startPods(t *testing.T, transport string, n int) *pods {
	t.Helper()
	p := &pods{t: t, transport: transport, address: map[string]string{}, process: map[string]*harness.Process{}}
	binary, err := harness.Binary("echoserver")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		name := podName(i)
		if p.address[name], err = harness.FreeAddress(); err != nil {
			t.Fatal(err)
		}
		p.process[name] = harness.ProcessForTest(t, harness.Program{Name: "echoserver", Path: binary, LogDir: t.TempDir(),
			Args: []string{"-transport=" + transport, "-listen=" + p.address[name]}})
		harness.Eventually(t, "a server to listen", func() error {
			c, err := net.Dial("tcp", p.address[name])
			if err == nil {
				_ = c.Close()
			}
			return err
		})
	}
	p.address[service] = p.address[podName(0)]
	p.wanted.Store(int32(n))
	p.front = front(t, "http://"+service, relay.Options{SSE: transport == "sse", Backends: p.hosts, Dial: p.dial, Pick: p.pick})
	return p
}

func (p *pods) hosts(context.Context) (all []string, err error) {
	for i := range int(p.wanted.Load()) {
		all = append(all, podName(i))
	}
	return all, nil
}

func (p *pods) pick(n int) int { return int(p.turn.Load()) % n }

// dial is the DNS of the cluster.
func (p *pods) dial(ctx context.Context, network, name string) (net.Conn, error) {
	address, known := p.address[name]
	if !known {
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}}
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// watchedTransport notes the mark that a client sends: the number of the backend.
type watchedTransport struct{ at *atomic.Int32 }

func (w watchedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	mark := r.Header.Get("Mcp-Session-Id") + r.URL.RawQuery
	if _, n, found := strings.Cut(mark, "phasegate-backend"); found {
		w.at.Store(int32(n[1] - '0'))
	}
	return http.DefaultTransport.RoundTrip(r)
}

func (p *pods) connect() (*mcp.ClientSession, int, error) {
	at := &atomic.Int32{}
	web := &http.Client{Transport: watchedTransport{at}}
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: p.front.URL + "/mcp", HTTPClient: web, MaxRetries: -1}
	if p.transport == "sse" {
		transport = &mcp.SSEClientTransport{Endpoint: p.front.URL + "/sse", HTTPClient: web}
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(p.t.Context(), transport, nil)
	if err != nil {
		return nil, 0, err
	}
	p.t.Cleanup(func() { _ = session.Close() }) // its server may be gone by then
	return session, int(at.Load()), say(p.t.Context(), session)
}

func say(ctx context.Context, session *mcp.ClientSession) error {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hello"}})
	if err == nil && (len(result.Content) != 1 || result.IsError) {
		err = fmt.Errorf("answered %+v", result)
	}
	return err
}

// Sessions are spread over the backends, each stays with its own, and those of a backend that ends end with it, so that
// their clients begin anew at another one.
func TestSessionsOfSeveralBackends(t *testing.T) {
	for _, transport := range []string{"streamable-http", "sse"} {
		t.Run(transport, func(t *testing.T) {
			p := startPods(t, transport, 2)
			sessions := p.begin(8)
			if diff := cmp.Diff(map[int]int{0: 4, 1: 4}, map[int]int{0: len(sessions[0]), 1: len(sessions[1])}); diff != "" {
				t.Fatalf("sessions by backend (-want +got):\n%s", diff)
			}
			for range 5 { // another backend does not know a session
				p.useAll(sessions[0])
				p.useAll(sessions[1])
			}
			p.process[podName(1)].Kill()
			for _, session := range sessions[1] {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				if err := say(ctx, session); err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a session whose backend was killed: %v, want an error at once", err)
				}
				cancel()
			}
			p.useAll(sessions[0])
			if again := p.begin(4); len(again[0]) != 4 {
				t.Errorf("of 4 new sessions %d are at the backend that is left", len(again[0]))
			}
		})
	}
}

// begin begins sessions, in turn at each backend if it is there, and answers them by their backends.
func (p *pods) begin(n int) map[int][]*mcp.ClientSession {
	p.t.Helper()
	sessions := map[int][]*mcp.ClientSession{}
	for range n {
		p.turn.Add(1)
		session, at, err := p.connect()
		if err != nil {
			p.t.Fatal(err)
		}
		sessions[at] = append(sessions[at], session)
	}
	return sessions
}

func (p *pods) useAll(sessions []*mcp.ClientSession) {
	p.t.Helper()
	for _, session := range sessions {
		if err := say(p.t.Context(), session); err != nil {
			p.t.Fatalf("a session whose backend is there: %v", err)
		}
	}
}

// What a client that speaks HTTP alone gets to see.
func TestMarkOfABackend(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
	const gone = `{"error":{"code":-32000,"message":"the session has ended with its backend: initialize a new one`
	cases := map[string]struct {
		why, session string
		backends     int
		status       int
		says         string
		heard        string
	}{
		"one backend":        {"all is as without a proxy", "s1", 1, http.StatusOK, "", "service s1 s1"},
		"begun with one":     {"more backends end no session", "s1", 2, http.StatusOK, "", "0 s1 s1"},
		"of the second":      {"the server knows its own name of it", "phasegate-backend-1.s1", 2, http.StatusOK, "", "1 s1 phasegate-backend-1.s1"},
		"fewer than it had":  {"it is gone", "phasegate-backend-1.s1", 1, http.StatusNotFound, gone, ""},
		"of a pod not there": {"its process has ended, or is not ready", "phasegate-backend-2.s1", 3, http.StatusNotFound, gone, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := &pods{t: t, address: map[string]string{}}
			p.wanted.Store(int32(c.backends))
			heard := ""
			for name, at := range map[string]string{podName(0): "0", podName(1): "1", service: "service"} {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Host != service {
						t.Errorf("the server is called %s, want %s", r.Host, service)
					}
					heard = at + " " + r.Header.Get("Mcp-Session-Id")
					w.Header().Set("Mcp-Session-Id", r.Header.Get("Mcp-Session-Id"))
				}))
				t.Cleanup(s.Close)
				p.address[name] = s.Listener.Addr().String()
			}
			s := front(t, "http://"+service, relay.Options{Backends: p.hosts, Dial: p.dial})
			answer, text := send(t, http.MethodPost, s.URL+"/mcp", call, http.Header{"Mcp-Session-Id": {c.session}})
			if heard != "" {
				heard += " " + answer.Header.Get("Mcp-Session-Id")
			}
			if diff := cmp.Diff(c.heard, heard); diff != "" {
				t.Errorf("%s: who heard which session, and what the client is answered (-want +got):\n%s", c.why, diff)
			}
			if answer.StatusCode != c.status || !strings.HasPrefix(text, c.says) {
				t.Errorf("%s: %s %s", c.why, answer.Status, text)
			}
		})
	}
}
