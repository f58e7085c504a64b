package streamable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/relay"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

const (
	sessionHeader, mcpPath = "Mcp-Session-Id", "/mcp"
	// sessionBytes is what a session costs of bridge.Options.State, beside what the bridge takes: a
	// bridge, a connection and their buffers.
	sessionBytes = 96 << 10
	sweepEvery   = 10 * time.Second
	retryAfter   = 2 * time.Second
	sessionEnded = "the session has ended: initialize again"
)

// Server is a relay to a server of sse that answers clients of streamable-http as well: at /mcp, and
// at /sse, where those come that take status.url for an address of streamable-http.
type Server struct {
	*relay.Relay
	o bridge.Options

	mu       sync.Mutex
	ctx      context.Context // of Run
	sessions map[string]*session
}

type session struct {
	bridge *bridge.Bridge
	end    context.CancelFunc
	// authorization is what the server was asked with: whoever has another, or a newer one, begins anew.
	authorization string
}

// New makes a Server. o says how sessions are served, without Open, Mode and Up; all budgets are set.
func New(r *relay.Relay, o bridge.Options) *Server {
	return &Server{Relay: r, o: o, sessions: map[string]*session{}, ctx: context.Background()}
}

// Run is that of the relay. Sessions end with ctx.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	go func() {
		for sweep := time.NewTicker(sweepEvery); ctx.Err() == nil; {
			select {
			case <-sweep.C:
				s.each(func(one *session) {
					if one.bridge.Empty() { // its bridge has ended it
						one.end()
					}
				})
			case <-ctx.Done():
				sweep.Stop()
			}
		}
	}()
	return s.Relay.Run(ctx)
}

// Drain is that of front.Drainer.
func (s *Server) Drain() {
	s.Relay.Drain()
	s.each(func(one *session) { one.bridge.Drain() })
}

func (s *Server) each(do func(*session)) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	for _, one := range all {
		do(one)
	}
}

func (s *Server) find(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// ServeHTTP serves a client of either kind.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !mayBeStreamable(r) {
		s.Relay.ServeHTTP(w, r)
		return
	}
	one := s.find(r.Header.Get(sessionHeader))
	switch {
	case one == nil:
		s.ask(w, r)
	case r.Header.Get("Authorization") != one.authorization:
		rpcerror.Write(w, http.StatusNotFound, nil, sessionEnded)
	default:
		asMCP(one.bridge, w, r)
		if one.bridge.Empty() {
			one.end()
		}
	}
}

// mayBeStreamable tells the requests of streamable-http from those of sse. A server may take the messages of sse where it
// opens streams: then a query names the session.
func mayBeStreamable(r *http.Request) bool {
	if r.URL.Path != mcpPath && r.URL.Path != relay.SSEPath {
		return false
	}
	return r.Header.Get(sessionHeader) != "" || r.Method == http.MethodPost && r.URL.RawQuery == ""
}

// ask hands a request of no session of ours to the server, and opens a session where that refuses to initialize one.
func (s *Server) ask(w http.ResponseWriter, r *http.Request) {
	body, free, ok := s.body(w, r)
	if !ok {
		return
	}
	defer free()
	named := r.Header.Get(sessionHeader) != ""
	switch {
	case !named && !isInitialize(body):
		s.Relay.ServeHTTP(w, r)
	case named && r.URL.Path == relay.SSEPath, s.isRefused(w, r): // no server has such sessions at /sse
		if named {
			rpcerror.Write(w, http.StatusNotFound, rpcerror.ID(body), sessionEnded)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.open(w, r, rpcerror.ID(body))
	}
}

// asMCP hands a request to a bridge, wherever the client found it.
func asMCP(b http.Handler, w http.ResponseWriter, r *http.Request) {
	at := *r.URL
	at.Path, at.RawPath = mcpPath, ""
	r = r.WithContext(r.Context())
	r.URL = &at
	b.ServeHTTP(w, r)
}

// open begins a session with the request to initialize.
func (s *Server) open(w http.ResponseWriter, r *http.Request, id json.RawMessage) {
	from := limit.Client(r, s.o.TrustProxyHeaders)
	if !s.o.State.Take(from, sessionBytes) {
		rpcerror.WriteRetry(w, http.StatusServiceUnavailable, id, "there are too many sessions: end some, or try again later", retryAfter)
		return
	}
	s.mu.Lock()
	ctx, end := context.WithCancel(s.ctx)
	s.mu.Unlock()
	context.AfterFunc(ctx, func() { s.o.State.Give(from, sessionBytes) })
	stream, err := s.Open(ctx, r)
	if err != nil {
		end()
		refuse(w, id, err)
		return
	}
	up, o := make(chan struct{}), s.o
	// Sessions are many and end often: what goes wrong is said to their clients.
	o.Mode, o.Log, o.Up = bridge.ModeStreamableHTTP, slog.New(slog.DiscardHandler), sync.OnceFunc(func() { close(up) })
	o.Open = func(context.Context) (io.ReadWriteCloser, error) { return &last{Stream: stream, end: end}, nil }
	one := &session{bridge: bridge.New(o), end: end, authorization: r.Header.Get("Authorization")}
	go func() { _ = one.bridge.Run(ctx) }() // it never fails
	select {
	case <-up:
	case <-ctx.Done():
		refuse(w, id, errors.New("the MCP server ended the session before it was initialised: see its log"))
		return
	case <-r.Context().Done():
		end()
		return
	}
	asMCP(one.bridge, &opening{ResponseWriter: w, server: s, session: one, ctx: ctx}, r)
	if one.bridge.Empty() {
		end()
	}
}

// last is the only stream of a session: the server forgets its client with it.
type last struct {
	*relay.Stream
	end context.CancelFunc
}

// Close is that of io.Closer.
func (l *last) Close() error {
	l.end()
	return l.Stream.Close()
}

func refuse(w http.ResponseWriter, id json.RawMessage, err error) {
	status := http.StatusBadGateway
	if answer, ok := errors.AsType[*relay.StatusError](err); ok && answer.Code >= http.StatusBadRequest {
		status = answer.Code
		for _, name := range []string{"Www-Authenticate", "Retry-After"} {
			if values := answer.Header.Values(name); len(values) > 0 {
				w.Header()[name] = values
			}
		}
	}
	rpcerror.Write(w, status, id, err.Error())
}

// opening is the response that names a new session: from then on its client may use it.
type opening struct {
	http.ResponseWriter
	server  *Server
	session *session
	ctx     context.Context // of the session
}

// Unwrap is for http.ResponseController.
func (o *opening) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// WriteHeader is that of http.ResponseWriter.
func (o *opening) WriteHeader(status int) {
	server := o.server // all that outlives the response, which holds the request
	if id := o.Header().Get(sessionHeader); id != "" && server.find(id) == nil {
		server.mu.Lock()
		server.sessions[id] = o.session
		server.mu.Unlock()
		context.AfterFunc(o.ctx, func() {
			server.mu.Lock()
			defer server.mu.Unlock()
			delete(server.sessions, id)
		})
	}
	o.ResponseWriter.WriteHeader(status)
}

// body reads the body of a request, which can be read again.
func (s *Server) body(w http.ResponseWriter, r *http.Request) (body []byte, free func(), ok bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, func() {}, true
	}
	if body, free, ok = s.o.Requests.Body(w, r); ok {
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	}
	return body, free, ok
}

func isInitialize(body []byte) bool {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	return json.Unmarshal(body, &m) == nil && m.Method == "initialize" && m.ID != nil
}
