package limit

import (
	"container/list"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

// Conns bounds the connections of a server. With too many, the one that has been
// idle for longest is closed.
type Conns struct {
	most int

	mu    sync.Mutex
	all   map[net.Conn]*list.Element // nil while a request is served
	quiet list.List                  // of net.Conn, longest first
}

// NewConns bounds them to that many.
func NewConns(most int) *Conns { return &Conns{most: most, all: map[net.Conn]*list.Element{}} }

// State is http.Server.ConnState.
func (c *Conns) State(conn net.Conn, state http.ConnState) {
	if surplus := c.note(conn, state); surplus != nil {
		_ = surplus.Close() // its server notices
	}
}

// note returns a connection to be closed, or nil.
func (c *Conns) note(conn net.Conn, state http.ConnState) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.all[conn]; at != nil {
		c.quiet.Remove(at)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		c.all[conn] = c.quiet.PushBack(conn)
	case http.StateActive:
		c.all[conn] = nil
	default:
		delete(c.all, conn)
	}
	if len(c.all) <= c.most || c.quiet.Len() == 0 {
		return nil
	}
	first := c.quiet.Remove(c.quiet.Front()).(net.Conn)
	c.all[first] = nil // until it says that it is closed
	return first
}

// Requests bounds how many requests a handler serves at a time. What is too much
// is answered that it should come again.
func Requests(most int64, handler http.Handler) http.Handler {
	var now atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer now.Add(-1)
		if now.Add(1) > most {
			w.Header().Set("Connection", "close")
			rpcerror.WriteRetry(w, http.StatusServiceUnavailable, nil, "the proxy serves as many requests as it can: try again", 2*time.Second)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
