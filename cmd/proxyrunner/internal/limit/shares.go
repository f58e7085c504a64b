package limit

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
)

// Shares is a number of places or bytes that clients share. A client gets more while it has less than three times
// what is left: alone it may have three quarters, and of two that want everything each three sevenths. So something is
// left for a client that comes later, also where many share one address.
type Shares struct {
	mu   sync.Mutex
	left int
	of   map[string]int
}

// perFree is how many times what is left a client may have.
const perFree = 3

// NewShares makes that many of them.
func NewShares(total int) *Shares { return &Shares{left: total, of: map[string]int{}} }

// Take takes n for a client, or none and returns false.
func (s *Shares) Take(client string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.left || s.of[client] >= perFree*s.left {
		return false
	}
	s.left -= n
	s.of[client] += n
	return true
}

// Give returns n that were taken for that client.
func (s *Shares) Give(client string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left += n
	if s.of[client] -= n; s.of[client] <= 0 {
		delete(s.of, client)
	}
}

// Left is how many are free.
func (s *Shares) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// Client is for whom a request counts: the address that it comes from or, where what stands before the proxy is
// trusted, the one that this has seen last.
func Client(r *http.Request, trusted bool) string {
	if values := r.Header.Values("X-Forwarded-For"); trusted && len(values) > 0 {
		last := values[len(values)-1]
		if ip, err := netip.ParseAddr(strings.TrimSpace(last[strings.LastIndex(last, ",")+1:])); err == nil {
			return ip.String()
		}
	}
	return hostOf(r.RemoteAddr)
}

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
