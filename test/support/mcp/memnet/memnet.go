// Package memnet is a network in memory, for tests in a synctest bubble: whoever
// waits for a connection of it is durably blocked, so that the bubble's clock runs.
// A connection holds nothing: a write lasts until the other side has read it.
package memnet

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Listener is a net.Listener that Dial reaches.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen makes a listener.
func Listen() *Listener { return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})} }

// Accept is that of net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close is that of net.Listener. It may be called twice.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is that of net.Listener.
func (l *Listener) Addr() net.Addr { return address{} }

// Dial connects; the error is net.ErrClosed once the listener is.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Client makes an HTTP client that dials the listener, whatever the host. Its
// connections are closed by CloseIdleConnections.
func (l *Listener) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) },
		MaxIdleConnsPerHost: 1000,
	}}
}

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }
