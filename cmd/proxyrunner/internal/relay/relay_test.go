package relay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/relay"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
	"github.com/phasegate/phasegate/test/support/mcp/memnet"
)

// front starts a relay to the server at target.
func front(t *testing.T, target string, o relay.Options) *httptest.Server {
	t.Helper()
	_, s := relayTo(t, target, o)
	return s
}

func relayTo(t *testing.T, target string, o relay.Options) (*relay.Relay, *httptest.Server) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	o.Target, o.Log = u, slog.New(slog.DiscardHandler)
	p := relay.New(o)
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return p, s
}

// client follows no redirect.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func send(t *testing.T, method, address, body string, header http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}

func TestRequestIsPassedOn(t *testing.T) {
	type request struct {
		Line, Body, Session, ForwardedFor, ForwardedHost, ForwardedProto, Hop string
	}
	var got request
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = request{
			Line: r.Method + " " + r.Host + r.RequestURI, Body: string(body), Session: r.Header.Get("Mcp-Session-Id"),
			ForwardedFor: r.Header.Get("X-Forwarded-For"), ForwardedHost: r.Header.Get("X-Forwarded-Host"),
			ForwardedProto: r.Header.Get("X-Forwarded-Proto"), Hop: r.Header.Get("X-Hop"),
		}
		w.Header().Set("Mcp-Session-Id", "s2")
		w.WriteHeader(http.StatusAccepted)
	}))
	defer backend.Close()
	host := strings.TrimPrefix(backend.URL, "http://")
	sent := http.Header{
		"Mcp-Session-Id": {"s1"}, "X-Forwarded-For": {"203.0.113.9"}, "X-Forwarded-Host": {"mcp.example.org"}, "X-Forwarded-Proto": {"https"},
		"Connection": {"X-Hop"}, "X-Hop": {"1"},
	}
	for name, test := range map[string]struct {
		why     string
		trusted bool
		want    request
	}{
		"not trusted": {"a client cannot say who it is", false,
			request{ForwardedFor: "127.0.0.1", ForwardedHost: "FRONT", ForwardedProto: "http"}},
		"trusted": {"the one before the proxy knows it", true,
			request{ForwardedFor: "203.0.113.9, 127.0.0.1", ForwardedHost: "mcp.example.org", ForwardedProto: "https"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := front(t, backend.URL, relay.Options{TrustProxyHeaders: test.trusted})
			answer, _ := send(t, http.MethodPost, s.URL+"/mcp?a=b%20c", `{"id":1}`, sent)
			if answer.StatusCode != http.StatusAccepted || answer.Header.Get("Mcp-Session-Id") != "s2" {
				t.Errorf("answer = %s, session %q; want 202 and s2", answer.Status, answer.Header.Get("Mcp-Session-Id"))
			}
			test.want.Line, test.want.Body, test.want.Session = "POST "+host+"/mcp?a=b%20c", `{"id":1}`, "s1"
			if test.want.ForwardedHost == "FRONT" {
				test.want.ForwardedHost = strings.TrimPrefix(s.URL, "http://")
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestWhatCannotBePassedOnIsToldInJSONRPC(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	host := strings.TrimPrefix(gone.URL, "http://")
	hangsUp := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer hangsUp.Close()
	type answer struct {
		Status, RetryAfter, Body string
	}
	for name, test := range map[string]struct {
		why, body string
		want      answer
	}{
		"a call, backend ends under way": {"it must not be sent again blindly", `{"jsonrpc":"2.0","id":7,"method":"dies"}`,
			answer{"502 Bad Gateway", "2", `{"error":{"code":-32000,"message":"the MCP server at ` + strings.TrimPrefix(hangsUp.URL, "http://") + ` was lost while the call was under way (EOF): it may or may not have been done"},"id":7,"jsonrpc":"2.0"}`}},
		"a call, backend away": {"the error names the call, so that it fails instead of hanging", `{"jsonrpc":"2.0","id":"a","method":"x"}`,
			answer{"502 Bad Gateway", "2", `{"error":{"code":-32000,"message":"the MCP server at ` + host + ` is away (dial tcp ` + host + `: connect: connection refused): try again"},"id":"a","jsonrpc":"2.0"}`}},
		"a notification, backend away": {"there is no id to name", `{"jsonrpc":"2.0","method":"x"}`,
			answer{"502 Bad Gateway", "2", `{"error":{"code":-32000,"message":"the MCP server at ` + host + ` is away (dial tcp ` + host + `: connect: connection refused): try again"},"id":null,"jsonrpc":"2.0"}`}},
		"too large": {"one client must not fill the memory", strings.Repeat(" ", rpcerror.MaxBody+1),
			answer{"413 Request Entity Too Large", "", `{"error":{"code":-32000,"message":"the request is larger than 8388608 bytes, which is all that the proxy passes on"},"id":null,"jsonrpc":"2.0"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			target := gone.URL
			if strings.Contains(test.body, "dies") {
				target = hangsUp.URL
			}
			r, body := send(t, http.MethodPost, front(t, target, relay.Options{}).URL+"/mcp", test.body, nil)
			if diff := cmp.Diff(test.want, answer{r.Status, r.Header.Get("Retry-After"), body}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

// Each event is read before the server is allowed to write the next one.
func TestEventsPassAsTheyCome(t *testing.T) {
	next := make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", n)
			w.(http.Flusher).Flush()
			<-next
		}
	}))
	defer backend.Close()
	s := front(t, backend.URL, relay.Options{EndpointPrefix: "/x"})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		t.Run(method, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), method, s.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			lines := bufio.NewScanner(answer.Body)
			for n := range 3 {
				if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", n) || !lines.Scan() {
					t.Fatalf("line = %q (%v), want event %d", lines.Text(), lines.Err(), n)
				}
				next <- struct{}{}
			}
		})
	}
}

func TestUpgradeIsPassedOn(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo" || r.Header.Get("Connection") != "Upgrade" {
			t.Errorf("Upgrade %q, Connection %q", r.Header.Get("Upgrade"), r.Header.Get("Connection"))
		}
		c, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }() // it is the end of the test
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(c, "you said "+line)
	}))
	defer backend.Close()
	s := front(t, backend.URL, relay.Options{})
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // it is the end of the test
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	read := bufio.NewReader(c)
	answer, err := http.ReadResponse(read, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answer %v, %v; want 101", answer, err)
	}
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := read.ReadString('\n'); line != "you said hello\n" {
		t.Errorf("%q (%v) after the upgrade", line, err)
	}
}

func TestHealthIsWhatThePingFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, status := memnet.Listen(), make(chan int)
		backend := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet { // the ping
				w.WriteHeader(<-status)
				return
			}
			if c, _, err := w.(http.Hijacker).Hijack(); err == nil { // a call that comes to nothing
				_ = c.Close()
			}
		})}
		go func() { _ = backend.Serve(l) }()
		p := relay.New(relay.Options{Target: &url.URL{Scheme: "http", Host: "x"}, Log: slog.New(slog.DiscardHandler),
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }})
		is := func(why string, ok bool, message string) {
			t.Helper()
			synctest.Wait()
			if gotOK, got := p.Health(); gotOK != ok || got != message {
				t.Errorf("health %v, %q; want %v, %q: %s", gotOK, got, ok, message, why)
			}
		}
		is("nobody has asked", false, "not asked yet")
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = p.Run(ctx) }()
		status <- http.StatusNotFound
		is("there need not be anything at /", true, "")
		p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("{}")))
		failed := time.Now()
		status <- http.StatusInternalServerError
		if waited := time.Since(failed); waited > 0 {
			t.Errorf("asked %s after a call failed, want at once", waited)
		}
		is("so the server says", false, "GET / was answered with 500 Internal Server Error")
		status <- http.StatusOK
		is("it is well again", true, "")
		stop()
		_ = backend.Close()
	})
}
