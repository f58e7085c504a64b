package front_test

import (
	"net/http"
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
			method := http.MethodPost
			if test.path == "/health" {
				method = http.MethodGet
			}
			if got := ask(f, method, test.path, func(r *http.Request) { r.Header["Origin"] = test.origins }).Code; got != test.want {
				t.Errorf("%d, want %d: %s", got, test.want, test.why)
			}
		})
	}
}

// A page whose name was made to resolve to the proxy is of the same origin to a browser, which then sends no Origin with
// a GET: the name in Host is the page's.
func TestHostIsChecked(t *testing.T) {
	for name, test := range map[string]struct {
		why  string
		host string
		want int
	}{
		"rebound page":           {"its owner decides what the name resolves to", "evil.example.org:8080", 403},
		"like the cluster's":     {"the last labels count", "mcp-a.b.svc.cluster.local.evil.example.org", 403},
		"like an address":        {"it is a name", "127.0.0.1.evil.example.org", 403},
		"address":                {"no name, nobody decides what it is", "10.1.2.3:8080", 200},
		"address, IPv6":          {"the same", "[fd00::1]:8080", 200},
		"own machine":            {"kubectl port-forward", "localhost:8080", 200},
		"one label":              {"a Service of the namespace", "mcp-a-proxy:8080", 200},
		"a Service":              {"only the cluster resolves it", "mcp-a-proxy.b.svc:8080", 200},
		"a Service, short":       {"only the cluster resolves it", "mcp-a-proxy.b:8080", 200},
		"a Service, whole name":  {"the same", "mcp-a-proxy.b.svc.cluster.local.", 200},
		"listed":                 {"somebody has said so", "MCP.example.org", 200},
		"below a listed end":     {"the same", "a.tools.example.org:443", 200},
		"not below a listed end": {"the end begins with a dot", "eviltools.example.org", 403},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodHead} {
			for _, path := range []string{"/sse", "/mcp", "/messages", "/anything"} {
				f := front.New("sse")
				f.AllowHosts([]string{"mcp.example.org", ".tools.example.org"}, []string{"mcp-a-proxy.b"})
				f.Open(server{})
				if got := ask(f, method, path, as(test.host)).Code; got != test.want {
					t.Errorf("%s: %s %s: %d, want %d: %s", name, method, path, got, test.want, test.why)
				}
			}
		}
	}
	for name, c := range map[string]struct {
		allow  func(*front.Front)
		origin []string
	}{
		"any host": {func(f *front.Front) { f.AllowHosts([]string{"*"}, nil) }, nil},
		"any page": {func(f *front.Front) { f.AllowOrigins([]string{"*"}) }, []string{"https://any.example.org"}},
	} {
		f := front.New("sse")
		f.Open(server{})
		c.allow(f)
		forwarded := func(r *http.Request) { r.Header["Origin"], r.RemoteAddr = c.origin, "127.0.0.1:5" }
		if got := ask(f, http.MethodGet, "/sse", as("evil.example.org"), forwarded).Code; got != http.StatusOK {
			t.Errorf("%s: %d, want 200", name, got)
		}
	}
	for from, want := range map[string]int{"127.0.0.1:5": 403, "[::1]:5": 403, "[::ffff:127.0.0.1]:5": 403, "127.0.0.6:5": 200, "10.0.0.1:5": 200} {
		f := front.New("sse")
		f.Open(server{})
		if got := ask(f, http.MethodGet, "/sse", as("name.example.org"), func(r *http.Request) { r.RemoteAddr = from }).Code; got != want {
			t.Errorf("no name is listed, from %s: %d, want %d: an ingress has a name that nobody has listed; a port-forward has none", from, got, want)
		}
	}
	if got := ask(front.New("sse"), http.MethodGet, "/health", as("evil.example.org")).Code; got != http.StatusOK {
		t.Errorf("a probe by another name: %d, want 200", got)
	}
}

func as(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }
