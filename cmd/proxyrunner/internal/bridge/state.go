package bridge

import (
	"fmt"
	"net/http"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

// What a client makes the bridge hold beyond a request is charged to Options.State until it is let go: a session until
// it ends, a call until it is answered, a subscription until it ends. What is below is measured, and rounded up.
const (
	sessionBytes, callBytes, subscriptionBytes = 2 << 10, 4 << 10, 128
	// maxURI is how long the URI of a resource may be that a client wants to know of, and
	// maxText any other text that is kept: an id, a progress token, a level.
	maxURI, maxText = 8 << 10, rpcerror.MaxID
	// maxCalls is how many calls of a session may be under way.
	maxCalls = 256
	// maxSubscriptions is how many resources a session, or a listen call, may want to know of.
	maxSubscriptions = 256
)

// roomLocked takes n bytes for a client, if need be from those of its sessions, but for keep, that nobody has used for
// longest: whoever has them initializes again.
func (b *Bridge) roomLocked(from string, n int, keep *session) bool {
	for !b.o.State.Take(from, n) {
		if !b.evictSessionLocked(from, keep) {
			return false
		}
	}
	return true
}

// evictSessionLocked ends the session of a client that nobody has used for longest, if there is
// one without a stream and a call.
func (b *Bridge) evictSessionLocked(from string, keep *session) bool {
	for at := b.byUse.Front(); at != nil; at = at.Next() {
		if s := at.Value.(*session); s != keep && s.from == from && s.idleLocked() {
			s.endLocked()
			return true
		}
	}
	return false
}

// holdLocked charges a call, or says why it cannot be held.
func (c *call) holdLocked() *failure {
	if c.own {
		return nil
	}
	if why := c.tooLong(); why != nil {
		return why
	}
	if len(c.session.calls) >= maxCalls {
		return &failure{status: http.StatusTooManyRequests, code: codeConnectionClosed,
			message: fmt.Sprintf("the session has %d requests under way, which is all that it may have: wait for an answer", maxCalls)}
	}
	if c.method == methodSubscribe && c.session.subscribingLocked(c.about) > maxSubscriptions {
		return &failure{status: http.StatusTooManyRequests, code: codeConnectionClosed,
			message: fmt.Sprintf("the session is subscribed to %d resources, which is all that it may be: unsubscribe from some", maxSubscriptions)}
	}
	n := callBytes + len(c.id) + len(c.token) + len(c.about)
	if c.listens != nil {
		for _, uri := range c.listens.URIs {
			n += subscriptionBytes + len(uri)
		}
	}
	if !c.bridge.roomLocked(c.session.from, n, c.session) {
		return unavailable("the proxy holds as much of what its clients, or this one, have asked for as it can")
	}
	c.held = n
	return nil
}

// tooLong says which text of a call is longer than the bridge keeps.
func (c *call) tooLong() *failure {
	switch {
	case c.method == setLevel && len(c.about) > maxText:
		return longer("level", maxText)
	case len(c.token) > maxText:
		return longer("progress token", maxText)
	case len(c.about) > maxURI:
		return longer("uri", maxURI)
	case c.listens == nil:
		return nil
	case len(c.listens.URIs) > maxSubscriptions:
		return &failure{status: http.StatusBadRequest, code: codeInvalidParams,
			message: fmt.Sprintf("resourceSubscriptions has %d entries, more than the %d that there may be", len(c.listens.URIs), maxSubscriptions)}
	}
	for _, uri := range c.listens.URIs {
		if len(uri) > maxURI {
			return longer("uri", maxURI)
		}
	}
	return nil
}

func longer(what string, most int) *failure {
	return &failure{status: http.StatusBadRequest, code: codeInvalidParams,
		message: fmt.Sprintf("the %s is longer than %d bytes, which is all that the proxy keeps", what, most)}
}

// subscribingLocked is how many resources the session would be subscribed to with this one.
func (s *session) subscribingLocked(uri string) int {
	if _, there := s.subscriptions[uri]; there {
		return 0
	}
	n := len(s.subscriptions) + 1
	for _, c := range s.calls {
		if c.method == methodSubscribe {
			n++
		}
	}
	return n
}

// subscribeLocked notes what a call that has succeeded changes. A new subscription takes over a part of what the call holds.
func (s *session) subscribeLocked(c *call) {
	_, there := s.subscriptions[c.about]
	n := subscriptionBytes + len(c.about)
	switch {
	case c.method == methodUnsubscribe && there:
		delete(s.subscriptions, c.about)
		s.held -= n
		s.bridge.o.State.Give(s.from, n)
	case c.method == methodSubscribe && !there && !s.over:
		if s.subscriptions == nil {
			s.subscriptions = map[string]struct{}{}
		}
		s.subscriptions[c.about] = struct{}{}
		s.held, c.held = s.held+n, c.held-n
	}
}
