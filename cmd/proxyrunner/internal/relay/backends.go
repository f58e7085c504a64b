package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"sync"
	"syscall"
)

// sessionHeader names the session of streamable-http.
const sessionHeader = "Mcp-Session-Id"

// Which of several backends has a session is in what the client sends with it: so nothing is remembered here, and it
// outlives a restart of the proxy and is the same for all proxies. The first backend needs no mark, so that with one
// backend everything is passed on as it is, and a session from that time stays where it is when there are more.
const markParam = "phasegate-backend"

var markedSession = regexp.MustCompile(`^` + markParam + `-([0-9]{1,4})\.(.+)$`)

// errSessionGone says that a session has ended with its backend.
var errSessionGone = errors.New("the session has ended with its backend: initialize a new one")

type place struct {
	// index counts backends from 0.
	index int
	// bound: it is of a session, which no other backend has.
	bound bool
}

type placeID struct{}

// placed reads and takes off the mark of a request. sse: whatever is posted is of a session.
func placed(r *http.Request, sse bool) *http.Request {
	p := place{bound: r.Header.Get(sessionHeader) != "" || sse && r.Method == http.MethodPost}
	if found := markedSession.FindStringSubmatch(r.Header.Get(sessionHeader)); found != nil {
		p.index, _ = strconv.Atoi(found[1])
		r.Header.Set(sessionHeader, found[2])
	}
	if sse && mark.MatchString(r.URL.RawQuery) {
		if n, err := strconv.Atoi(r.URL.Query().Get(markParam)); err == nil && n >= 0 {
			p.index = n
		}
		own := *r.URL
		own.RawQuery = mark.ReplaceAllString(own.RawQuery, "")
		r.URL = &own
		r.RequestURI = r.URL.RequestURI()
	}
	return r.WithContext(context.WithValue(r.Context(), placeID{}, p))
}

var mark = regexp.MustCompile(`&?` + markParam + `=[^&]*`)

// markEndpoint adds the mark to where clients of an sse server post.
func markEndpoint(endpoint string, index int) string {
	u, err := url.Parse(endpoint)
	if err != nil || index == 0 {
		return endpoint
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += fmt.Sprintf("%s=%d", markParam, index)
	return u.String()
}

func placeOf(ctx context.Context) place {
	p, _ := ctx.Value(placeID{}).(place)
	return p
}

// backends sends each request to one of the pods of the server: those of a session to the one that has it, any other to
// one by chance. In turn would not do: a client that asks something before each initialize begins every session at the
// same of two.
type backends struct {
	next http.RoundTripper
	ask  func(context.Context) ([]string, error)
	pick func(n int) int

	mu    sync.Mutex
	hosts []string
}

// look asks which backends there are. What is not known stays as it was.
func (b *backends) look(ctx context.Context) (hosts []string, err error) {
	if b.ask == nil {
		return nil, nil
	}
	if hosts, err = b.ask(ctx); err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.hosts = hosts
	}
	return hosts, err
}

// known are the hosts of the backends; fewer than two where all is sent to the target.
func (b *backends) known(ctx context.Context) ([]string, error) {
	b.mu.Lock()
	hosts := b.hosts
	b.mu.Unlock()
	if hosts != nil || b.ask == nil {
		return hosts, nil
	}
	hosts, err := b.look(ctx)
	if err != nil { // a session must not begin where it would not be looked for
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	return hosts, nil
}

func (b *backends) RoundTrip(r *http.Request) (*http.Response, error) {
	hosts, err := b.known(r.Context())
	p := placeOf(r.Context())
	switch {
	case err != nil:
		return nil, err
	case p.bound && p.index > 0 && p.index >= len(hosts):
		return nil, errSessionGone
	case len(hosts) < 2:
		return b.next.RoundTrip(r)
	case p.bound:
		answer, err := b.send(r, hosts[p.index], p.index)
		if away(err) {
			return nil, fmt.Errorf("%w (%w)", errSessionGone, err)
		}
		return answer, err
	}
	first := b.pick(len(hosts))
	for i := range hosts {
		n := (first + i) % len(hosts)
		var answer *http.Response
		if answer, err = b.send(r, hosts[n], n); err == nil || !notSent(err) {
			return answer, err
		}
	}
	return nil, err
}

// send sends a request to one backend, which hears the name that it is known by.
func (b *backends) send(r *http.Request, host string, index int) (*http.Response, error) {
	out := r.Clone(context.WithValue(r.Context(), placeID{}, place{index: index}))
	if out.Host == "" {
		out.Host = r.URL.Host
	}
	out.URL.Host = host
	if r.Body != nil && r.GetBody != nil { // an attempt before this one may have closed it
		var err error
		if out.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	answer, err := b.next.RoundTrip(out)
	if err == nil && index > 0 && answer.Header.Get(sessionHeader) != "" {
		answer.Header.Set(sessionHeader, fmt.Sprintf("%s-%d.%s", markParam, index, answer.Header.Get(sessionHeader)))
	}
	return answer, err
}

// notSent tells an error before anything was sent.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// away tells that the process of a backend is not there, and its sessions are not either.
func away(err error) bool {
	var dns *net.DNSError
	return notSent(err) && (errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &dns) && dns.IsNotFound)
}
