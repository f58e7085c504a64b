package relay

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"net/http"
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
	if err != nil || (u.Host != "" && u.Hostname() != (&url.URL{Host: target}).Hostname()) {
		return endpoint
	}
	u.Scheme, u.Host, u.User = "", "", nil
	if strings.HasPrefix(u.Path, "/") && !strings.HasPrefix(u.Path, prefix+"/") {
		u.Path, u.RawPath = prefix+u.Path, ""
	}
	return u.String()
}

// firstEvent reads an event stream, and corrects the first event if it is an
// endpoint. What comes after that passes as it is.
type firstEvent struct {
	source  *bufio.Reader
	body    io.Closer
	correct func(endpoint string) string

	ready      []byte // corrected, to be read next
	isEndpoint bool
	begun      bool
	over       bool
}

func (f *firstEvent) Close() error { return f.body.Close() }

func (f *firstEvent) Read(p []byte) (int, error) {
	if len(f.ready) == 0 {
		if f.over {
			return f.source.Read(p)
		}
		line, err := f.source.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			f.over, err = true, nil
		}
		f.ready = []byte(f.line(string(line)))
		if len(f.ready) == 0 {
			return 0, err
		}
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// line looks at one line, with its end, and answers what to hand on instead.
func (f *firstEvent) line(line string) string {
	text := strings.TrimRight(line, "\r\n")
	end := line[len(text):]
	name, value, _ := strings.Cut(text, ":")
	value = strings.TrimPrefix(value, " ")
	switch {
	case text == "":
		f.over = f.over || f.begun
	case name == "event":
		f.begun, f.isEndpoint = true, value == "endpoint"
	case name == "data":
		f.begun = true
		if f.isEndpoint {
			f.over = true
			return "data: " + f.correct(value) + end
		}
	}
	return line
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
