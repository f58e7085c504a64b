package relay_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/relay"
)

// The backend's own address is known inside of the cluster only.
func TestOwnAddressOfTheBackendIsTakenOff(t *testing.T) {
	for name, test := range map[string]struct {
		why, header, sends, prefix, want string
	}{
		"redirect":              {"frameworks do it for a slash at the end", "Location", "http://BACKEND/mcp/?a=b", "", "/mcp/?a=b"},
		"redirect, prefix":      {"the client is behind one", "Location", "http://BACKEND/mcp/", "/fetch", "/fetch/mcp/"},
		"redirect, path":        {"it is right without a prefix", "Location", "/mcp/", "", "/mcp/"},
		"redirect, path behind": {"and wrong with one", "Location", "/mcp/", "/fetch", "/fetch/mcp/"},
		"redirect elsewhere":    {"somebody means it", "Location", "https://login.example.org/x", "/fetch", "https://login.example.org/x"},
		"redirect to a scheme":  {"it is the backend, too", "Location", "https://BACKEND/x", "", "/x"},
		"content":               {"the same in another header", "Content-Location", "http://BACKEND/x", "", "/x"},
		"authorization": {"it is to be absolute, and clients look there", "Www-Authenticate",
			`Bearer resource_metadata="http://BACKEND/.well-known/oauth-protected-resource", scope="a"`, "/fetch",
			`Bearer resource_metadata="http://FRONT/fetch/.well-known/oauth-protected-resource", scope="a"`},
		"authorization elsewhere": {"somebody means it", "Www-Authenticate", `Bearer resource_metadata="https://a.example.org/x"`, "", `Bearer resource_metadata="https://a.example.org/x"`},
	} {
		t.Run(name, func(t *testing.T) {
			var backend *httptest.Server
			backend = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(test.header, strings.ReplaceAll(test.sends, "BACKEND", strings.TrimPrefix(backend.URL, "http://")))
				w.WriteHeader(http.StatusTemporaryRedirect)
			}))
			defer backend.Close()
			s := front(t, backend.URL, relay.Options{EndpointPrefix: test.prefix})
			answer, _ := send(t, http.MethodPost, s.URL+"/mcp", "{}", nil)
			want := strings.ReplaceAll(test.want, "FRONT", strings.TrimPrefix(s.URL, "http://"))
			if got := answer.Header.Get(test.header); got != want {
				t.Errorf("%s %q, want %q: %s", test.header, got, want, test.why)
			}
		})
	}
}

func TestWhoAClientIsSaysTheOneBeforeTheProxy(t *testing.T) {
	sent := http.Header{}
	for _, name := range []string{"X-Real-Ip", "X-Forwarded-User", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Server", "X_forwarded_for", "X_real_ip", "Forwarded"} {
		sent[name] = []string{"for=1"}
	}
	sent["X-Other"] = []string{"1"}
	for name, test := range map[string]struct {
		why     string
		trusted bool
		want    []string
	}{
		"not trusted": {"a client could say anything", false, []string{"X-Other"}},
		"trusted": {"somebody says that it is right", true,
			[]string{"X-Real-Ip", "X-Forwarded-User", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Server", "Forwarded", "X-Other"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]bool{}
			backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for name := range sent {
					if r.Header.Get(name) != "" || r.Header[name] != nil {
						got[name] = true
					}
				}
			}))
			defer backend.Close()
			send(t, http.MethodPost, front(t, backend.URL, relay.Options{TrustProxyHeaders: test.trusted}).URL+"/mcp", "{}", sent)
			want := map[string]bool{}
			for _, name := range test.want {
				want[name] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

// A connection that was used before ends while a call is under way: net/http sends
// what it takes for idempotent again.
func TestNoPostIsSentTwice(t *testing.T) {
	for _, header := range []string{"", "Idempotency-Key", "X-Idempotency-Key"} {
		for _, body := range []string{"{}", ""} {
			t.Run(header+" "+body, func(t *testing.T) {
				var calls atomic.Int32
				var key atomic.Value
				backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if r.URL.Path == "/warm" {
						return
					}
					calls.Add(1)
					key.Store(r.Header.Get(header))
					if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
						_ = c.Close()
					}
				}))
				defer backend.Close()
				s := front(t, backend.URL, relay.Options{})
				send(t, http.MethodPost, s.URL+"/warm", "{}", nil)
				h := http.Header{}
				if header != "" {
					h.Set(header, "k")
				}
				answer, _ := send(t, http.MethodPost, s.URL+"/mcp", body, h)
				if answer.StatusCode != http.StatusBadGateway || calls.Load() != 1 {
					t.Errorf("%s after %d calls, want 502 after one", answer.Status, calls.Load())
				}
				if got := key.Load(); header != "" && got != "k" {
					t.Errorf("the backend got %s %q, want it as it was sent", header, got)
				}
			})
		}
	}
}

// What the protocol says in headers, and the ids of events, are between client and server.
func TestProtocolPassesUntouched(t *testing.T) {
	const stream = "id: a-7\nevent: message\ndata: {}\n\nid: a-8\ndata: \n\nretry: 500\n\n"
	var got http.Header
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, stream)
	}))
	defer backend.Close()
	s := front(t, backend.URL, relay.Options{})
	for method, sent := range map[string]http.Header{
		http.MethodGet:  {"Last-Event-Id": {"a-6"}, "Mcp-Session-Id": {"s"}, "Mcp-Protocol-Version": {"2025-11-25"}, "Accept": {"text/event-stream"}},
		http.MethodPost: {"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"=?base64?w6k=?="}, "Mcp-Param-Region": {"eu"}},
	} {
		t.Run(method, func(t *testing.T) {
			body := ""
			if method == http.MethodPost {
				body = `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`
			}
			if _, text := send(t, method, s.URL+"/mcp", body, sent); text != stream {
				t.Errorf("the client reads %q", text)
			}
			for name, values := range sent {
				if diff := cmp.Diff(values, got[name]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}
