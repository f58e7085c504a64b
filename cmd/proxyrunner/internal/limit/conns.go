package limit

import (
	"container/list"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

// Conns bounds the connections of a server. With too many, the one that has been
// idle for longest is closed; of a client that has its share, one of its own.
type Conns struct {
	most int

	mu    sync.Mutex
	all   map[net.Conn]*list.Element // nil while a request is served
	quiet list.List                  // of net.Conn, longest first
	of    map[string]int             // by the address of the client
}

// NewConns bounds them to that many.
func NewConns(most int) *Conns {
	return &Conns{most: most, all: map[net.Conn]*list.Element{}, of: map[string]int{}}
}

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
	client := hostOf(conn.RemoteAddr().String())
	switch state {
	case http.StateNew:
		c.all[conn] = c.quiet.PushBack(conn)
		c.of[client]++
		return c.surplusLocked(client)
	case http.StateIdle:
		c.all[conn] = c.quiet.PushBack(conn)
	case http.StateActive:
		c.all[conn] = nil
	default:
		if _, there := c.all[conn]; !there {
			break
		}
		delete(c.all, conn)
		if c.of[client]--; c.of[client] == 0 {
			delete(c.of, client)
		}
	}
	return nil
}

// surplusLocked is the connection that has to go when that client has just opened one; nil if there is room.
func (c *Conns) surplusLocked(client string) net.Conn {
	left := c.most - (len(c.all) - 1)
	greedy := c.of[client]-1 >= perFree*max(left, 1)
	if left > 0 && !greedy {
		return nil
	}
	for at := c.quiet.Front(); at != nil; at = at.Next() {
		first := at.Value.(net.Conn)
		if !greedy || hostOf(first.RemoteAddr().String()) == client { // the new one at the latest
			c.quiet.Remove(at)
			c.all[first] = nil // until it says that it is closed
			return first
		}
	}
	return nil
}

// Requests bounds how many requests a handler serves at a time, of all and of one client, as
// client names it. What is too much is answered that it should come again.
func Requests(most int, client func(*http.Request) string, handler http.Handler) http.Handler {
	places := NewShares(most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := client(r)
		if !places.Take(from, 1) {
			w.Header().Set("Connection", "close")
			rpcerror.WriteRetry(w, http.StatusServiceUnavailable, nil, "the proxy serves as many requests as it can, of all clients or of this address: try again", 2*time.Second)
			return
		}
		defer places.Give(from, 1)
		handler.ServeHTTP(w, r)
	})
}
