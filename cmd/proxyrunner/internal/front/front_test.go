package front_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/front"
)

// server is one that is up, or not.
type server struct {
	ok   bool
	said string
}

func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "served "+r.URL.Path)
}
func (s server) Health() (bool, string) { return s.ok, s.said }

// pinged is one that was asked.
type pinged struct{ server }

var pingedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (pinged) LastPing() (time.Time, time.Duration) { return pingedAt, 7 * time.Millisecond }

func ask(f http.Handler, method, path string, changes ...func(*http.Request)) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, "http://localhost"+path, nil)
	for _, change := range changes {
		change(r)
	}
	f.ServeHTTP(w, r)
	return w
}

func TestHealth(t *testing.T) {
	type answer struct {
		Status, Transport string
		Available         bool
		Error             string
		ResponseTimeMS    any
	}
	for name, test := range map[string]struct {
		why  string
		tell func(*front.Front)
		want answer
	}{
		"starting":          {"it answers from the first moment", func(*front.Front) {}, answer{"degraded", "sse", false, "the proxy is starting", nil}},
		"waiting":           {"and says what for", func(f *front.Front) { f.Wait("pods") }, answer{"degraded", "sse", false, "pods", nil}},
		"up":                {"all is well", func(f *front.Front) { f.Open(server{true, "attached"}) }, answer{"healthy", "sse", true, "", nil}},
		"up, asked":         {"with how long it took", func(f *front.Front) { f.Open(pinged{server{true, ""}}) }, answer{"healthy", "sse", true, "", 7.0}},
		"away":              {"what the connection saw", func(f *front.Front) { f.Open(server{false, "no answer"}) }, answer{"degraded", "sse", false, "no answer", nil}},
		"handed to a newer": {"there is no server any more", func(f *front.Front) { f.Open(server{true, ""}); f.Wait("a newer proxy") }, answer{"degraded", "sse", false, "a newer proxy", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			f := front.New("sse")
			test.tell(f)
			w := ask(f, http.MethodGet, "/health")
			var got struct {
				Status, Transport string
				Timestamp         time.Time
				MCP               struct {
					Available      bool
					Error          string
					ResponseTimeMS any       `json:"response_time_ms"`
					LastChecked    time.Time `json:"last_checked"`
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%s: %v", w.Body, err)
			}
			if diff := cmp.Diff(test.want, answer{got.Status, got.Transport, got.MCP.Available, got.MCP.Error, got.MCP.ResponseTimeMS}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" || got.Timestamp.IsZero() || got.MCP.LastChecked.IsZero() {
				t.Errorf("code %d, %s; want 200, JSON and times: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	type answer struct {
		Code        int
		Allow, Body string
	}
	for name, test := range map[string]struct {
		why, method, path string
		open              bool
		want              answer
		transport         string
	}{
		"health takes GET only": {"it is a question", http.MethodPost, "/health", true, answer{405, "GET", `{"error":"POST: use GET"}` + "\n"}, "sse"},
		"well-known": {"clients ask here whether they need a token", http.MethodGet, "/.well-known/oauth-protected-resource", true,
			answer{404, "", `{"error":"not_found","error_description":"/.well-known/oauth-protected-resource is not served: no authorization is needed"}` + "\n"}, "stdio"},
		"well-known, HTTP":            {"the server may need one", http.MethodGet, "/.well-known/oauth-protected-resource", true, answer{200, "", "served /.well-known/oauth-protected-resource"}, "sse"},
		"well-known, HTTP, too early": {"nobody knows yet", http.MethodGet, "/.well-known/x", false, answer{503, "", `{"error":{"code":-32000,"message":"the MCP server is not there yet: 0 of 1 pods"},"id":null,"jsonrpc":"2.0"}`}, "sse"},
		"passed on":                   {"the rest is the server's", http.MethodPost, "/mcp", true, answer{200, "", "served /mcp"}, "sse"},
		"too early":                   {"a client can tell a start from a failure", http.MethodPost, "/mcp", false, answer{503, "", `{"error":{"code":-32000,"message":"the MCP server is not there yet: 0 of 1 pods"},"id":null,"jsonrpc":"2.0"}`}, "sse"},
		"any path":                    {"a server may have its own", http.MethodGet, "/x/y", true, answer{200, "", "served /x/y"}, "sse"},
		"too early ":                  {"whatever the path", http.MethodGet, "/x/y", false, answer{503, "", `{"error":{"code":-32000,"message":"the MCP server is not there yet: 0 of 1 pods"},"id":null,"jsonrpc":"2.0"}`}, "sse"},
	} {
		t.Run(name, func(t *testing.T) {
			f := front.New(test.transport)
			f.Wait("0 of 1 pods")
			if test.open {
				f.Open(server{})
			}
			w := ask(f, test.method, test.path)
			if diff := cmp.Diff(test.want, answer{w.Code, w.Header().Get("Allow"), w.Body.String()}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
			if (w.Header().Get("Retry-After") != "") != (w.Code == 503) {
				t.Errorf("Retry-After %q with %d", w.Header().Get("Retry-After"), w.Code)
			}
		})
	}
}
