package builtin

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/phasegate/phasegate/fsm"
)

// HTTP says where HTTPRequest may go.
type HTTP struct {
	// AllowHosts are the hosts that may be asked, as `host` (the usual port of the
	// scheme) or `host:port`. None: there are no requests at all.
	AllowHosts []string
	// AllowPrivate are the private networks that an allowed host may be in. The
	// address that is connected to is checked, whatever a name server says.
	AllowPrivate []netip.Prefix
}

// notPublic are networks that netip does not call private, loopback or link-local
// and that are not the Internet all the same: those of IANA's registries of IPv4 and
// IPv6 Special-Purpose Addresses, with a few besides. Those that carry an IPv4 address
// inside would be a way around the others.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // this network
	netip.MustParsePrefix("100.64.0.0/10"),    // carrier-grade NAT
	netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's platform inside of its virtual networks, in no registry of IANA
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation
	netip.MustParsePrefix("192.88.99.0/24"),   // relays of 6to4, deprecated
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"),  // documentation
	netip.MustParsePrefix("203.0.113.0/24"),   // documentation
	netip.MustParsePrefix("240.0.0.0/4"),      // reserved, broadcast
	netip.MustParsePrefix("2001::/23"),        // protocol assignments, Teredo
	netip.MustParsePrefix("2001:db8::/32"),    // documentation
	netip.MustParsePrefix("2002::/16"),        // 6to4
	netip.MustParsePrefix("3fff::/20"),        // documentation
}

// global is all that IANA's registry of the IPv6 Address Space has for global unicast. What is outside of it is for
// translation with an IPv4 address inside (::/96, 64:ff9b::/96, 64:ff9b:1::/48, ::ffff:0:0:0/96), to be discarded
// (100::/64), for segment routing (5f00::/16), site-local (fec0::/10), or not assigned.
var global = netip.MustParsePrefix("2000::/3")

// allows is about the host of a URL that isURL accepts, before anything is resolved.
func (h HTTP) allows(target *url.URL) error {
	usual := map[string]string{"http": "80", "https": "443"}[target.Scheme]
	host, port := strings.ToLower(strings.TrimSuffix(target.Hostname(), ".")), target.Port()
	if len(h.AllowHosts) == 0 {
		return fsm.Terminal("HTTPDisabled", "HTTP requests are off: start the manager with --allow-http-host=%s", host)
	}
	if port == "" {
		port = usual
	}
	allowed := slices.ContainsFunc(h.AllowHosts, func(allowed string) bool {
		allowed = strings.ToLower(allowed)
		return allowed == net.JoinHostPort(host, port) || port == usual && strings.Trim(allowed, "[]") == host
	})
	if !allowed {
		return fsm.Terminal("HostNotAllowed", "host %s is not on the list: start the manager with --allow-http-host=%s", host, net.JoinHostPort(host, port))
	}
	return nil
}

// connectable is about the address that is about to be connected to.
func (h HTTP) connectable(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fsm.Terminal("AddressRefused", "%s is not an address: %w: see what resolves the host", address, err)
	}
	ip := at.Addr().Unmap().WithZone("")
	within := func(p netip.Prefix) bool { return p.Contains(ip) }
	// Global unicast leaves out loopback, link-local (the metadata service of clouds
	// among them), multicast and the unspecified address.
	public := ip.IsGlobalUnicast() && !ip.IsPrivate() && (ip.Is4() || global.Contains(ip)) && !slices.ContainsFunc(notPublic, within)
	if !public && !slices.ContainsFunc(h.AllowPrivate, within) {
		return fsm.Terminal("AddressRefused", "the host is at %s, which is not a public address: start the manager with --allow-private-http=%s if that is meant",
			ip, netip.PrefixFrom(ip, ip.BitLen()))
	}
	return nil
}

// transport is for one exchange. It uses no proxy: the address that is checked
// would be the proxy's.
func (h HTTP) transport() *http.Transport {
	dialer := &net.Dialer{Timeout: maxExchange, Control: func(_, address string, _ syscall.RawConn) error {
		return h.connectable(address)
	}}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		DisableKeepAlives:      true,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}
