package front

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

const (
	// readHeader is how long a client may take to say what it wants.
	readHeader = 10 * time.Second
	// idle is how long a connection is kept that nobody uses.
	idle = 2 * time.Minute
	// lastAnswers is how long answers may take that are being written at the end.
	lastAnswers = 2 * time.Second
	// maxHeader is how long the header of a request may be, in bytes.
	maxHeader = 32 << 10
	// maxConns is how many connections there may be, maxRequests how many requests but those
	// of probes, and maxStreams how many of these may last: there is room for calls.
	maxConns, maxRequests, maxStreams = 4096, 4032, 3024
)

// Ending says how Serve ends.
type Ending struct {
	// Listen is how long clients are still accepted, since the cluster sends them for
	// a while. Each is answered that its connection is not to be used again.
	Listen time.Duration
	// Drain is how long calls under way are waited for, from the same moment on. For
	// that long clients are accepted too: a call may need another one.
	Drain time.Duration
	// CutStreams says that a stream of news only ends at once: its client opens it
	// elsewhere.
	CutStreams bool
}

// UsualEnding is for production. A pod has 30 s.
var UsualEnding = Ending{Listen: 5 * time.Second, Drain: 20 * time.Second}

// Drainer is a handler that is told when clients should go elsewhere: it ends what
// is idle, and begins nothing that lasts. Drain returns at once.
type Drainer interface{ Drain() }

// Reader is a handler that says how long a request may take to come in.
type Reader interface{ ReadTime() time.Duration }

// Serve serves clients on listener until ctx is done, and then ends as it is told:
// what is under way after that is cut.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, end Ending) error {
	g := &gate{handler: handler}
	if end.CutStreams {
		g.handler = endStreams(ctx, handler)
	}
	read := limit.ReadTime
	if r, ok := handler.(Reader); ok {
		read = r.ReadTime()
	}
	server := &http.Server{
		Handler: limit.Time(g, read), ReadHeaderTimeout: min(readHeader, read), IdleTimeout: idle, MaxHeaderBytes: maxHeader,
		WriteTimeout: limit.WriteTime, // for answers that are not a handler's, limit.Time is for the others
		ConnState:    limit.NewConns(maxConns).State,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	deadline := time.After(end.Drain)
	idle := g.close()
	if d, ok := handler.(Drainer); ok {
		d.Drain()
	}
	if !wait(time.After(end.Listen), deadline) || !wait(idle(), deadline) {
		return server.Close()
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
	defer cancel()
	if err := server.Shutdown(within); errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	} else if err != nil {
		return err
	}
	return nil
}

func wait[T any](until <-chan T, deadline <-chan time.Time) bool {
	select {
	case <-until:
		return true
	case <-deadline:
		return false
	}
}

// isStream tells whether a request is for news only: a GET, or what takes its place from
// version 2026-07-28 of the protocol on.
func isStream(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path != v1beta1.HealthPath || r.Header.Get("Mcp-Method") == "subscriptions/listen"
}

// endStreams ends requests for streams with ctx, and refuses them from then on.
func endStreams(ctx context.Context, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isStream(r) {
			if ctx.Err() != nil {
				rpcerror.WriteRetry(w, http.StatusServiceUnavailable, nil, "the proxy is ending: open the stream again", retryAfter)
				return
			}
			own, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			r = r.WithContext(own)
		}
		handler.ServeHTTP(w, r)
	})
}

// gate counts the requests under way. Once it is closed it lets them pass, and asks
// clients not to use their connections again.
type gate struct {
	handler http.Handler

	mu     sync.Mutex
	now    int
	closed bool
	idle   chan struct{} // closed when none is under way; nil while nobody waits
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == v1beta1.HealthPath { // a probe keeps nobody waiting
		if g.isClosed() {
			w.Header().Set("Connection", "close")
		}
		g.handler.ServeHTTP(w, r)
		return
	}
	g.begin()
	defer g.end()
	g.handler.ServeHTTP(&leaving{ResponseWriter: w, gate: g}, r)
}

func (g *gate) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now++
}

func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now--; g.now == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// close closes the gate. idle waits until nothing is under way.
func (g *gate) close() (idle func() <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	return func() <-chan struct{} {
		g.mu.Lock()
		defer g.mu.Unlock()
		done := make(chan struct{})
		if g.now == 0 {
			close(done)
		} else {
			g.idle = done
		}
		return done
	}
}

// leaving says in the header of an answer that the connection ends, if the gate is
// closed by then.
type leaving struct {
	http.ResponseWriter
	gate *gate
	said bool
}

// Unwrap is for http.ResponseController.
func (l *leaving) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// WriteHeader is that of http.ResponseWriter.
func (l *leaving) WriteHeader(status int) {
	l.say()
	l.ResponseWriter.WriteHeader(status)
}

// Write is that of http.ResponseWriter.
func (l *leaving) Write(p []byte) (int, error) {
	l.say()
	return l.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (l *leaving) FlushError() error {
	l.say()
	return http.NewResponseController(l.ResponseWriter).Flush()
}

func (l *leaving) say() {
	if !l.said {
		l.said = true
		if l.gate.isClosed() {
			l.Header().Set("Connection", "close")
		}
	}
}
