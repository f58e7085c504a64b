// Package leaderguard keeps a process that has lost its lease from writing. Leader election
// alone does not: a process that is stopped, and goes on when another one has taken
// over, believes in its lease until a renewal has failed for a whole renew deadline.
//
// So the connections themselves ask, at every write to them, when the lease was renewed
// last. It knows how a renewal looks on the wire, and nothing of what else is sent.
package leaderguard

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

// Lease is what a process knows of the lease that it holds.
type Lease struct {
	// worth is how long after a renewal was sent the lease is relied on.
	worth time.Duration
	// renewed is when the last renewal that succeeded was sent, the zero time once the
	// lease was given up; nil: it was never held, and there is nothing to lose.
	renewed atomic.Pointer[time.Time]
}

// New makes a lease that nobody holds. worth must be shorter than the time after which
// others take over: the difference is what a write that was just sent may need to arrive.
func New(worth time.Duration) *Lease { return &Lease{worth: worth} }

// Renewals wraps the transport of the election's client, for rest.Config.Wrap: it is
// where the lease is seen to be renewed and given up.
func (l *Lease) Renewals(next http.RoundTripper) http.RoundTripper { return renewals{next, l} }

type renewals struct {
	http.RoundTripper
	lease *Lease
}

func (r renewals) RoundTrip(req *http.Request) (*http.Response, error) {
	holder, writes := holderOf(req)
	if !writes {
		return r.RoundTripper.RoundTrip(req)
	}
	sent := time.Now()
	if holder == "" {
		r.lease.renewed.Store(&time.Time{}) // given up from here on, whatever comes of the request
	}
	answer, err := r.RoundTripper.RoundTrip(req)
	if err == nil && answer.StatusCode < http.StatusMultipleChoices && holder != "" {
		r.lease.renewed.Store(&sent)
	}
	return answer, err
}

// holderOf is who holds the lease once the request has succeeded. A lease that cannot be
// read is held by nobody: then nothing is sent, which is seen at once.
func holderOf(req *http.Request) (holder string, writes bool) {
	writes = slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, req.Method) && strings.Contains(req.URL.Path, "/leases")
	if !writes || req.GetBody == nil {
		return "", writes
	}
	body, err := req.GetBody()
	if err != nil {
		return "", writes
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return "", writes
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil) // JSON or protobuf, as the client likes
	if lease, ok := obj.(*coordinationv1.Lease); ok && err == nil {
		return ptr.Deref(lease.Spec.HolderIdentity, ""), writes
	}
	return "", writes
}

// Dial is for rest.Config.Dial of whoever may write only while the lease is held. The
// monotonic clock goes on while a process is stopped.
func (l *Lease) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // as client-go's own
	c, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return conn{c, l}, nil
}

type conn struct {
	net.Conn
	lease *Lease
}

// Write is the last thing that the process does with a request. Nothing else on the
// connection is of use when one is held back, so it is closed.
func (c conn) Write(data []byte) (int, error) {
	if err := c.lease.lost(); err != nil {
		_ = c.Close() // what is told is why
		return 0, err
	}
	return c.Conn.Write(data)
}

// lost is a loss of the connection to whoever asks what may be tried again.
func (l *Lease) lost() error {
	renewed := l.renewed.Load()
	if renewed == nil || time.Since(*renewed) < l.worth {
		return nil
	}
	why := fmt.Errorf("the lease was not renewed for %s, another process may lead: %w", l.worth, syscall.ECONNABORTED)
	return &net.OpError{Op: "write", Net: "tcp", Err: why}
}
