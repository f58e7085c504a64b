package relay

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// removeForwarded takes the headers off in which a proxy says who its client is and
// which are not to be trusted. Some servers take an underscore for a hyphen: nobody
// before the proxy that can be trusted writes one.
func removeForwarded(h http.Header, trusted bool) {
	for name := range h {
		if plain := strings.ToLower(strings.ReplaceAll(name, "_", "-")); plain == "forwarded" || plain == "x-real-ip" || strings.HasPrefix(plain, "x-forwarded-") {
			if !trusted || strings.Contains(name, "_") {
				delete(h, name)
			}
		}
	}
}

// keepFromRetry hides from net/http, which looks for these names as they are here,
// that a request may be sent twice: a tool need not bear that. The server is told
// all the same, for it does not look at the case.
func keepFromRetry(h http.Header) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = values
		}
	}
}

// metadata is where a server says that its clients find out how to be authorized.
var metadata = regexp.MustCompile(`resource_metadata="?([^",\s]+)`)

// correctAddresses puts addresses that clients can use in the place of the server's
// own: paths, which they resolve against the address that they used themselves, or,
// where it must be a whole address, that.
func correctAddresses(r *http.Response, o Options) {
	path := prefix(r.Request.Header, o)
	for _, name := range []string{"Location", "Content-Location"} {
		if value := r.Header.Get(name); value != "" {
			r.Header.Set(name, correct(value, o.Target.Host, path))
		}
	}
	for n, value := range r.Header["Www-Authenticate"] {
		at := metadata.FindStringSubmatchIndex(value)
		if at == nil {
			continue
		}
		if own := correct(value[at[2]:at[3]], o.Target.Host, path); strings.HasPrefix(own, "/") {
			front := url.URL{Scheme: r.Request.Header.Get("X-Forwarded-Proto"), Host: r.Request.Header.Get("X-Forwarded-Host")}
			r.Header["Www-Authenticate"][n] = value[:at[2]] + front.String() + own + value[at[3]:]
		}
	}
}
