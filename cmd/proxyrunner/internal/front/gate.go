package front

import (
	"net/http"
	"sync"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

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
