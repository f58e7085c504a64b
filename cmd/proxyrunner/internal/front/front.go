// Package front is what clients meet first: it answers whether the proxy is up from
// the first moment, and hands everything else to whatever reaches the MCP server,
// once there is something.
package front

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

// retryAfter is when a client that came too early may try again.
const retryAfter = 2 * time.Second

// Server serves MCP clients.
type Server interface {
	http.Handler
	// Health tells whether the MCP server can be reached, or what was seen instead.
	Health() (ok bool, message string)
}

// Pinged is a Server that looks from time to time.
type Pinged interface {
	// LastPing is when it looked, and how long the answer took.
	LastPing() (at time.Time, took time.Duration)
}

// Front is the handler of a proxy.
type Front struct {
	mux       *http.ServeMux
	transport string
	origins   []string
	hosts     []string
	inside    []string
	trusted   bool
	readTime  time.Duration

	mu      sync.Mutex
	server  Server // nil while there is none
	waiting string
}

// New makes a Front without a server. transport is shown in the health report.
func New(transport string) *Front {
	f := &Front{mux: http.NewServeMux(), transport: transport, readTime: limit.ReadTime, waiting: "the proxy is starting"}
	f.mux.HandleFunc(v1beta1.HealthPath, f.health)
	if transport == v1beta1.TransportStdio { // a server that speaks HTTP answers itself
		f.mux.HandleFunc("/.well-known/", wellKnown)
	}
	streams, pass := limit.Requests(maxStreams, f.client, http.HandlerFunc(f.pass)), http.HandlerFunc(f.pass)
	f.mux.Handle("/", limit.Requests(maxRequests, f.client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isStream(r) {
			streams.ServeHTTP(w, r)
			return
		}
		pass(w, r)
	})))
	return f
}

// TrustForwarded says whether X-Forwarded-For names the client for which a request counts. It is
// called before Serve.
func (f *Front) TrustForwarded(trusted bool) { f.trusted = trusted }

func (f *Front) client(r *http.Request) string { return limit.Client(r, f.trusted) }

// ReadWithin makes d the time within which a request has to come in; 0 leaves it as it is.
func (f *Front) ReadWithin(d time.Duration) {
	if d > 0 {
		f.readTime = d
	}
}

// ReadTime is that of Reader.
func (f *Front) ReadTime() time.Duration { return f.readTime }

// Open hands requests to server from now on. It may be called again.
func (f *Front) Open(server Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.server = server
}

// Wait answers that there is no server, and what is awaited, from now on.
func (f *Front) Wait(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.server, f.waiting = nil, what
}

// Drain passes on that clients should go elsewhere.
func (f *Front) Drain() {
	if server, _ := f.now(); server != nil {
		if d, ok := server.(Drainer); ok {
			d.Drain()
		}
	}
}

// ServeHTTP serves clients and probes.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == v1beta1.HealthPath:
	case !f.allowed(r):
		rpcerror.Write(w, http.StatusForbidden, nil, fmt.Sprintf("the origin %q is not allowed: add it to %s", r.Header.Get("Origin"), OriginsEnv))
		return
	case !f.mayBeCalled(r):
		rpcerror.Write(w, http.StatusForbidden, nil, fmt.Sprintf("the host %q is not allowed: add the name by which clients reach the proxy to %s", r.Host, HostsEnv))
		return
	}
	f.mux.ServeHTTP(w, r)
}

func (f *Front) now() (server Server, waiting string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.server, f.waiting
}

func (f *Front) pass(w http.ResponseWriter, r *http.Request) {
	server, waiting := f.now()
	if server == nil {
		rpcerror.WriteRetry(w, http.StatusServiceUnavailable, nil, "the MCP server is not there yet: "+waiting, retryAfter)
		return
	}
	server.ServeHTTP(w, r)
}

// report is the answer to a probe, in the form of the peer's.
type report struct {
	Status    string    `json:"status"`
	Timestamp time.Time `json:"timestamp"`
	Transport string    `json:"transport"`
	MCP       mcp       `json:"mcp"`
}

type mcp struct {
	Available      bool      `json:"available"`
	ResponseTimeMS *int64    `json:"response_time_ms,omitempty"`
	Error          string    `json:"error,omitempty"`
	LastChecked    time.Time `json:"last_checked"`
}

// health is about the proxy: it is 200 with a server that is away, too, for
// restarting the proxy would not bring that back.
func (f *Front) health(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"error": fmt.Sprintf("%s: use GET", r.Method)})
		return
	}
	now := time.Now().UTC()
	answer := report{Status: "degraded", Timestamp: now, Transport: f.transport, MCP: mcp{LastChecked: now}}
	server, waiting := f.now()
	if server == nil {
		answer.MCP.Error = waiting
	} else {
		look(server, &answer)
	}
	writeJSON(w, http.StatusOK, answer)
}

func look(server Server, answer *report) {
	ok, message := server.Health()
	if answer.MCP.Available = ok; ok {
		answer.Status = "healthy"
	} else {
		answer.MCP.Error = message
	}
	if p, is := server.(Pinged); is {
		at, took := p.LastPing()
		answer.MCP.LastChecked, answer.MCP.ResponseTimeMS = at.UTC(), new(took.Milliseconds())
	}
}

// wellKnown says that the proxy asks for no authorization: clients look here first.
func wellKnown(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusNotFound, map[string]string{"error": "not_found", "error_description": r.URL.Path + " is not served: no authorization is needed"})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a prober that is gone needs no answer
}
