package front

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// AllowOrigins lets pages of these origins speak to the MCP server, such as
// https://chat.example.org, or those of all with "*". Pages of the client's own
// machine always may. It is called before Serve.
func (f *Front) AllowOrigins(origins []string) { f.origins = origins }

// allowed tells whether a request comes from no page at all, or from one that may. A
// page whose name has been made to resolve to the proxy sends an Origin of its own.
func (f *Front) allowed(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		if !slices.Contains(f.origins, "*") && !f.listed(origin) {
			return false
		}
	}
	return true
}

func (f *Front) listed(origin string) bool {
	if slices.ContainsFunc(f.origins, func(one string) bool { return strings.EqualFold(one, origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())
}
