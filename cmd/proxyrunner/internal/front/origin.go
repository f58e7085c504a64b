package front

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// A page in somebody's browser reaches what that browser reaches. Its Origin tells whose page it is; a browser leaves that
// out where it believes that page and proxy are one host, which the name of a page can be made to mean. The name
// then stands in Host. So both are checked, for every method.
const (
	// OriginsEnv lists the origins of pages that may speak to the MCP server, with commas.
	OriginsEnv = v1beta1.EnvAllowedOrigins
	// HostsEnv lists the names by which clients may reach the proxy, with commas.
	HostsEnv = v1beta1.EnvAllowedHosts
)

// AllowOrigins lets pages of these origins speak to the MCP server, such as
// https://chat.example.org, or those of all with "*". Pages of the client's own
// machine always may. It is called before Serve.
func (f *Front) AllowOrigins(origins []string) { f.origins = origins }

// AllowHosts lets clients call the proxy by these names alone, such as mcp.example.org, by all below one that begins with
// a dot, or by any with "*", and by inside, the names that the cluster gives it. Without names, which an ingress or load
// balancer may have given it is not known: then only connections from the proxy's own pod are held to inside. It is called
// before Serve.
func (f *Front) AllowHosts(names, inside []string) { f.hosts, f.inside = names, inside }

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

// inCluster end names that no public name server answers for: those of the cluster, and of the client's own machine.
var inCluster = []string{".svc", ".cluster.local", ".localhost"}

// mayBeCalled tells whether a Host header holds what no stranger can make resolve to the proxy: an address, a name of one
// label, one of the cluster, or one that is listed. kubectl port-forward connects from the pod's own loopback: that is how
// the browser of a developer reaches a proxy, and with it a page that was made to resolve to the developer's machine.
func (f *Front) mayBeCalled(r *http.Request) bool {
	if from, err := netip.ParseAddrPort(r.RemoteAddr); len(f.hosts) == 0 && (err != nil || !isOwn(from.Addr().Unmap())) {
		return true
	}
	name := (&url.URL{Host: strings.ToLower(r.Host)}).Hostname()
	name = strings.TrimSuffix(name, ".")
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") {
		return true
	}
	// A page of any origin may speak to the server: then one under any name may as well.
	if slices.Contains(f.origins, "*") || slices.Contains(f.hosts, "*") {
		return true
	}
	return slices.ContainsFunc(slices.Concat(inCluster, f.inside, f.hosts), func(one string) bool {
		one = strings.ToLower(one)
		return one == name || strings.HasPrefix(one, ".") && strings.HasSuffix(name, one)
	})
}

// isOwn is no test for all of loopback: the sidecar of a service mesh connects from another address of it.
func isOwn(from netip.Addr) bool {
	return from == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || from == netip.IPv6Loopback()
}
