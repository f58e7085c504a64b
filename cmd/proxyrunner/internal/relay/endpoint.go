package relay

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// maxFirst is how much of a first event is held; an endpoint is short.
const maxFirst = 16 << 10

// rewriteEndpoint corrects the endpoint event, the first one of a stream, with
// which an sse server says where messages go: it knows neither the address by
// which its client reaches the proxy nor the path before it.
func (p *Relay) rewriteEndpoint(r *http.Response, o Options) {
	if r.StatusCode >= http.StatusMultipleChoices {
		notTaken(r.Request)
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "text/event-stream" || r.Request.Method != http.MethodGet {
		return
	}
	path := prefix(r.Request.Header, o)
	own, _ := r.Request.Context().Value(streamID{}).(*stream)
	body := &firstEvent{ReadCloser: r.Body}
	body.correct = func(endpoint string) string {
		if own != nil {
			p.streams.begin(own, r.Request.URL, endpoint)
		}
		return markEndpoint(correct(endpoint, o.Target.Host, path), placeOf(r.Request.Context()).index)
	}
	r.Body = body
	if own != nil {
		r.Body = &watched{ReadCloser: body, all: p.streams, stream: own}
	}
}

// prefix is the path under which the client reaches the proxy, or nothing.
func prefix(h http.Header, o Options) string {
	p := o.EndpointPrefix
	if p == "" && o.TrustProxyHeaders {
		p = h.Get("X-Forwarded-Prefix")
	}
	if p = strings.Trim(p, "/"); p == "" {
		return ""
	}
	return "/" + p
}

// correct makes an endpoint that the client can use. A client resolves it against
// the address that it used itself, so a path is all that it needs to be told. An
// address of some third host is meant as it is.
func correct(endpoint, target, prefix string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Opaque != "" || (u.Host != "" && u.Hostname() != (&url.URL{Host: target}).Hostname() && !isOwn(u.Hostname())) {
		return endpoint
	}
	u.Scheme, u.Host, u.User = "", "", nil
	if strings.HasPrefix(u.Path, "/") && !strings.HasPrefix(u.Path, prefix+"/") {
		u.Path, u.RawPath = prefix+u.Path, ""
	}
	return u.String()
}

// isOwn tells whether a host can only mean the server that names it: a loopback address, or
// the one on which it listens.
func isOwn(host string) bool {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	address, err := netip.ParseAddr(name)
	address = address.Unmap()
	return err == nil && (address.IsLoopback() || address.IsUnspecified())
}

// firstEvent reads an event stream, and corrects the first event if it is an
// endpoint. What comes after that passes as it is. An event is held until it is whole:
// its data may come before its name.
type firstEvent struct {
	io.ReadCloser
	correct func(endpoint string) string

	ready []byte // to be read next
	over  bool   // what follows passes as it is
	err   error  // of the stream, once it has one

	lines   eventLines
	held    []byte // of the first event, or of a line before it
	scanned int    // where the last line of held begins
	begun   bool   // held is of an event
	name    string // of the event
	data    string // its first line of data, which is held[from:to]
	from    int
	to      int
}

// Read is that of io.Reader.
func (f *firstEvent) Read(p []byte) (int, error) {
	for len(f.ready) == 0 && !f.over && len(p) > 0 {
		n, err := f.ReadCloser.Read(p[:min(len(p), maxFirst/4)])
		f.held, f.err = append(f.held, p[:n]...), err
		f.scan()
	}
	if len(f.ready) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		return f.ReadCloser.Read(p)
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// scan looks at the lines that have ended, and makes ready what needs not be held. The end of the stream ends a line as well.
func (f *firstEvent) scan() {
	for !f.over {
		line, used, ended := f.lines.cut(f.held[f.scanned:])
		f.scanned += used
		switch {
		case ended:
			f.take(line, f.scanned-1)
			continue
		case f.err != nil:
			f.take(line, len(f.held))
			f.over = true
		case len(f.held) >= maxFirst:
			f.over, f.name = true, "" // it is none
		}
		break
	}
	passes := f.scanned
	switch {
	case f.over:
		if f.name == "endpoint" && f.to > 0 {
			f.held = slices.Concat(f.held[:f.from], []byte("data: "+f.correct(f.data)), f.held[f.to:])
		}
		passes = len(f.held)
	case f.begun:
		return
	}
	f.ready, f.held, f.scanned = f.held[:passes], f.held[passes:], 0
}

// take notes what a line says of the first event. It ends at held[to].
func (f *firstEvent) take(line []byte, to int) {
	switch name, value := field(line); name {
	case "event":
		f.begun, f.name = true, value
		f.over = value != "endpoint"
	case "data":
		if f.begun = true; f.to == 0 {
			f.data, f.from, f.to = value, to-len(bytes.TrimPrefix(line, byteOrderMark)), to
		}
	case "":
		f.over = f.begun
	}
}

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
