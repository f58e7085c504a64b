package relay

import (
	"bufio"
	"bytes"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// maxLine is the longest line of an event that is looked at; an endpoint is short.
const maxLine = 16 << 10

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
	body := &firstEvent{source: bufio.NewReaderSize(r.Body, maxLine), body: r.Body}
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
	source  *bufio.Reader
	body    io.Closer
	correct func(endpoint string) string

	ready []byte // corrected, to be read next
	over  bool
	err   error // of the source, once it has one

	held  []byte // of the first event, or of a line before it
	line  int    // where the last line of held begins
	begun bool   // held is of an event
	bare  bool   // the last byte was a carriage return: a line feed belongs to it
	first bool   // a line was read, so that no byte order mark can come
}

func (f *firstEvent) Close() error { return f.body.Close() }

func (f *firstEvent) Read(p []byte) (int, error) {
	for len(f.ready) == 0 && !f.over {
		f.hold()
	}
	if len(f.ready) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		return f.source.Read(p)
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// hold reads up to the next byte that ends a line, and makes ready what needs not be held.
func (f *firstEvent) hold() {
	for {
		c, err := f.source.ReadByte()
		if err != nil {
			f.err = err
			f.end()
			return
		}
		f.held = append(f.held, c)
		second := f.bare && c == '\n'
		if f.bare = c == '\r'; second {
			f.line = len(f.held)
			if !f.begun {
				f.release()
				return
			}
			continue
		}
		if c == '\r' || c == '\n' {
			f.lineEnds()
			return
		}
		if len(f.held) >= maxLine {
			f.over = true
			f.release()
			return
		}
	}
}

func (f *firstEvent) lineEnds() {
	line := f.held[f.line:]
	f.line = len(f.held)
	switch name, value := field(f.withoutMark(line)); {
	case name == "event" && value != "endpoint":
		f.over = true
		f.release()
	case name == "event" || name == "data":
		f.begun = true
	case name == "" && f.begun:
		f.end()
	case !f.begun:
		f.release()
	}
}

// withoutMark takes the byte order mark off the first line.
func (f *firstEvent) withoutMark(line []byte) []byte {
	if f.first {
		return line
	}
	f.first = true
	return bytes.TrimPrefix(line, byteOrderMark)
}

var byteOrderMark = []byte("\ufeff")

func (f *firstEvent) release() {
	f.ready, f.held, f.line = f.held, nil, 0
}

// end corrects what is held, and is the end of the correction.
func (f *firstEvent) end() {
	f.over = true
	event, data := "", []byte(nil)
	at := 0
	for rest := f.held; len(rest) > 0; {
		line := rest
		if i := bytes.IndexAny(rest, "\r\n"); i >= 0 {
			line = rest[:i]
		}
		name, value := field(bytes.TrimPrefix(line, byteOrderMark))
		switch {
		case name == "event":
			event = value
		case name == "data" && data == nil:
			data, at = line, len(f.held)-len(rest)
		}
		rest = rest[min(len(line)+1, len(rest)):]
	}
	if event == "endpoint" && data != nil {
		_, value := field(data)
		mark := data[:len(data)-len(bytes.TrimPrefix(data, byteOrderMark))]
		tail := string(f.held[at+len(data):])
		f.held = append(f.held[:at+len(mark)], "data: "+f.correct(value)+tail...)
	}
	f.release()
}

// field is the name and the value of a line; an empty line has no name, a comment the name ":".
func field(line []byte) (name, value string) {
	text := strings.TrimRight(string(line), "\r\n")
	if strings.HasPrefix(text, ":") {
		return ":", ""
	}
	name, value, _ = strings.Cut(text, ":")
	return name, strings.TrimPrefix(value, " ")
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
