// Package relay passes HTTP requests on to an MCP server that speaks HTTP itself,
// streamable-http or sse, and its answers back, as they come.
//
// It keeps no session: one lives in the server and in the client. Of an open stream of
// sse it counts what is awaited. It knows no Kubernetes.
package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

const (
	dialTimeout = 5 * time.Second
	retryAfter  = 2 * time.Second
	// idle is shorter than the 5 s after which uvicorn and Node close a connection
	// that nobody uses: a call is not to meet one that is just being closed.
	idle = 4 * time.Second
	// pool is how many connections are kept for the next call.
	pool = 256
	// maxHeader is how long the header of an answer may be, in bytes.
	maxHeader = 256 << 10
)

// Options say where to and how.
type Options struct {
	// Target is the server: scheme and host.
	Target *url.URL
	// Backends answers the hosts of the pods behind Target, in the order of their numbers. With more than one,
	// a session stays with the one that it began at. Nil: all is sent to Target.
	Backends func(context.Context) ([]string, error)
	// Pick answers a number below n; nil does it by chance.
	Pick func(n int) int
	// SSE says that the server's transport is sse: then whatever is posted is of a session.
	SSE bool
	// EndpointPrefix is put before the path that an endpoint event of sse names:
	// the path under which clients reach the proxy.
	EndpointPrefix string
	// TrustProxyHeaders believes the X-Forwarded-* headers of clients and hands
	// them on. Otherwise they are taken off.
	TrustProxyHeaders bool
	// Requests bounds what is held of requests; nil stands for limit.Total.
	Requests *limit.Budget
	// Dial connects to the server; nil does it as usual.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Log receives what goes wrong, without the content of messages.
	Log *slog.Logger
}

// Relay is an http.Handler.
type Relay struct {
	target   *url.URL
	sse      bool
	proxy    *httputil.ReverseProxy
	backends *backends
	requests *limit.Budget
	streams  *streams
	// wake says that a call came to nothing, so that Run looks.
	wake chan struct{}

	// mu guards what the last ping came to.
	mu   sync.Mutex
	ok   bool
	said string
	at   time.Time
	took time.Duration
}

// New makes a relay, which works at once; its Health is known by Run.
func New(o Options) *Relay {
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if o.Pick == nil {
		o.Pick = rand.IntN
	}
	if o.Requests == nil {
		o.Requests = limit.NewBudget(limit.Total)
	}
	p := &Relay{target: o.Target, sse: o.SSE, requests: o.Requests, streams: &streams{open: map[string]*stream{}}, wake: make(chan struct{}, 1), said: "not asked yet", at: time.Now()}
	p.backends = &backends{ask: o.Backends, pick: o.Pick, next: &http.Transport{
		DialContext:         o.Dial,
		MaxIdleConns:        pool,
		MaxIdleConnsPerHost: pool,
		IdleConnTimeout:     idle,
		DisableCompression:  true,

		MaxResponseHeaderBytes: maxHeader,
	}}
	p.proxy = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { rewrite(r, o) },
		ModifyResponse: func(r *http.Response) error { correctAddresses(r, o); p.rewriteEndpoint(r, o); return nil },
		ErrorHandler:   func(w http.ResponseWriter, r *http.Request, err error) { p.failed(w, r, err, o.Log) },
		// An event is of use when it comes, not when a buffer is full.
		FlushInterval: -1,
		Transport:     p.backends,
		ErrorLog:      slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return p
}

// ServeHTTP passes a request on.
func (p *Relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.backends.ask != nil {
		r = placed(r, p.sse)
	}
	if asksForStream(r) {
		if p.streams.isDraining() {
			rpcerror.WriteRetry(w, http.StatusServiceUnavailable, nil, "the proxy is ending: open the stream again", retryAfter)
			return
		}
		ctx, cut := context.WithCancel(r.Context())
		defer cut()
		r = r.WithContext(context.WithValue(ctx, streamID{}, &stream{cut: cut}))
	}
	if r, free, ok := p.whole(w, r); ok {
		defer free()
		p.proxy.ServeHTTP(w, r)
	}
}

func rewrite(r *httputil.ProxyRequest, o Options) {
	r.SetURL(o.Target)
	removeForwarded(r.Out.Header, o.TrustProxyHeaders)
	keepFromRetry(r.Out.Header)
	if o.TrustProxyHeaders {
		for _, name := range []string{"Forwarded", "X-Forwarded-For"} {
			if values := r.In.Header.Values(name); len(values) > 0 {
				r.Out.Header[name] = values
			}
		}
	}
	r.SetXForwarded()
	if o.TrustProxyHeaders {
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if value := r.In.Header.Get(name); value != "" {
				r.Out.Header.Set(name, value)
			}
		}
	}
	if r.In.Method == http.MethodGet {
		r.Out.Header.Del("Accept-Encoding") // a compressed endpoint could not be corrected
	}
}

type callID struct{}

// refusedID is what is done where the server does not take a call.
type refusedID struct{}

// whole reads the request's body: a call is small, and with it at hand an error
// can name the call, and a call of which nothing was sent yet can be sent on
// another connection. What may have been heard is never sent twice: a tool need
// not bear that. ok is false if the request was answered already.
func (p *Relay) whole(w http.ResponseWriter, r *http.Request) (read *http.Request, free func(), ok bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, func() {}, true
	}
	body, free, ok := p.requests.Body(w, r)
	if !ok {
		return nil, nil, false
	}
	ctx := context.WithValue(r.Context(), callID{}, rpcerror.ID(body))
	r = r.WithContext(context.WithValue(ctx, refusedID{}, p.streams.call(r, body)))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
	return r, free, true
}

// failed answers for a server that gave no answer.
func (p *Relay) failed(w http.ResponseWriter, r *http.Request, err error, log *slog.Logger) {
	notTaken(r)
	if r.Context().Err() != nil {
		// The client is gone, or we are to end. Nobody reads this.
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	select {
	case p.wake <- struct{}{}:
	default: // Run knows
	}
	log.Warn("the MCP server gave no answer", "method", r.Method, "path", r.URL.Path, "error", err)
	id, _ := r.Context().Value(callID{}).(json.RawMessage)
	if errors.Is(err, errSessionGone) { // by which the specification says that the client is to begin anew
		rpcerror.Write(w, http.StatusNotFound, id, err.Error())
		return
	}
	rpcerror.WriteRetry(w, http.StatusBadGateway, id, lost(p.target.Host, err), retryAfter)
}

// notTaken says that no answer will come on the stream.
func notTaken(r *http.Request) {
	if refused, ok := r.Context().Value(refusedID{}).(func()); ok {
		refused()
	}
}

// lost tells a client whether its call can have been heard.
func lost(host string, err error) string {
	if notSent(err) {
		return fmt.Sprintf("the MCP server at %s is away (%v): try again", host, err)
	}
	return fmt.Sprintf("the MCP server at %s was lost while the call was under way (%v): it may or may not have been done", host, err)
}
