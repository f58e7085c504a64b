package front_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/front"
)

func TestOriginIsCheckedAgainstAList(t *testing.T) {
	for name, test := range map[string]struct {
		why     string
		path    string
		origins []string // of the request
		want    int
	}{
		"none":              {"no browser: what the check is for needs one", "/mcp", nil, 200},
		"listed":            {"somebody has allowed it", "/mcp", []string{"https://chat.example.org"}, 200},
		"listed, any case":  {"scheme and host have none", "/mcp", []string{"HTTPS://Chat.Example.Org"}, 200},
		"other":             {"a page there must not speak to servers in here", "/mcp", []string{"https://evil.example.org"}, 403},
		"other scheme":      {"anybody on the way can change that page", "/mcp", []string{"http://chat.example.org"}, 403},
		"other port":        {"it is another server", "/mcp", []string{"https://chat.example.org:8443"}, 403},
		"begins like it":    {"and is another name", "/mcp", []string{"https://chat.example.org.evil.example.org"}, 403},
		"own host":          {"by rebinding DNS any page has it", "/mcp", []string{"http://example.com"}, 403},
		"loopback":          {"a tool on the machine of a developer", "/mcp", []string{"http://localhost:6274"}, 200},
		"loopback, address": {"the same", "/mcp", []string{"http://127.0.0.1:6274"}, 200},
		"loopback, IPv6":    {"the same", "/mcp", []string{"http://[::1]:6274"}, 200},
		"like loopback":     {"it is a name in the DNS", "/mcp", []string{"http://localhost.evil.example.org"}, 403},
		"null":              {"a file or a frame without rights", "/mcp", []string{"null"}, 403},
		"two":               {"one of them is not listed", "/mcp", []string{"https://chat.example.org", "https://evil.example.org"}, 403},
		"well-known":        {"there is nothing else behind it", "/.well-known/x", []string{"https://evil.example.org"}, 403},
		"probe":             {"it tells what anybody may know", "/health", []string{"https://evil.example.org"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			f := front.New("sse")
			f.AllowOrigins([]string{"https://chat.example.org"})
			f.Open(server{})
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, test.path, nil)
			if test.path == "/health" {
				r.Method = http.MethodGet
			}
			r.Header["Origin"] = test.origins
			f.ServeHTTP(w, r)
			if got := w.Code; got != test.want {
				t.Errorf("%d, want %d: %s", got, test.want, test.why)
			}
		})
	}
	f := front.New("sse")
	f.AllowOrigins([]string{"*"})
	f.Open(server{})
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/mcp", nil)
	r.Header.Set("Origin", "https://any.example.org")
	if f.ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("%d although all are allowed", w.Code)
	}
}
