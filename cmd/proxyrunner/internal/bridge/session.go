package bridge

import (
	"container/list"
	"crypto/rand"
	"net/http"
	"time"
)

type item struct {
	// id is that of the event, by which a client asks for what follows; empty if it cannot.
	id   string
	data []byte
	// answer says that nothing follows in the response to a call.
	answer bool
	// why is set if the bridge answers in place of the server.
	why *failure
}

// session is one client. A request without a session has one that nobody else
// knows. All but id and box are guarded by Bridge.mu.
type session struct {
	id  string
	box *mailbox // for its stream
	// calls are those under way, by the client's id.
	calls map[rpcID]*call
	used  time.Time
	at    *list.Element // in Bridge.byUse; nil if others do not know the session
	over  bool
	// capabilities are what the client has declared, by name, and subscriptions the
	// URIs of resources that it wants to know of.
	capabilities  map[string]struct{}
	subscriptions map[string]struct{}
	// streams are those of its last calls, which it may ask for again, and calledFor how
	// many there were.
	streams   []*mailbox
	calledFor int
	// lingers ends the session, whose only stream of sse is lost; nil while it has that.
	lingers *time.Timer
}

func newSession() *session {
	s := &session{id: rand.Text(), box: newMailbox(), calls: map[rpcID]*call{}, used: time.Now()}
	s.box.kept.name = ownStream
	return s
}

// open makes a session that others know, or says why not.
func (b *Bridge) open() (*session, *failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return nil, unavailable(b.away)
	}
	if b.mail.draining {
		return nil, unavailable(ending)
	}
	if len(b.sessions) >= maxSessions && !b.evictSessionLocked() {
		return nil, &failure{status: http.StatusServiceUnavailable, code: codeConnectionClosed,
			message: "there are too many sessions: end some, or try again later"}
	}
	s := newSession()
	if b.o.Mode == ModeSSE {
		s.box.kept.name = s.id // nothing else in a request for its stream names the session
	}
	b.sessions[s.id] = s
	s.at = b.byUse.PushBack(s)
	return s, nil
}

// evictSessionLocked ends the session that nobody has used for longest, if there is
// one without a stream and a call. Its client initializes again.
func (b *Bridge) evictSessionLocked() bool {
	for at := b.byUse.Front(); at != nil; at = at.Next() {
		if s := at.Value.(*session); s.idleLocked() {
			b.endLocked(s)
			return true
		}
	}
	return false
}

// idleLocked tells whether nobody waits for anything of the session.
func (s *session) idleLocked() bool { return s.box.reader == nil && len(s.calls) == 0 }

// find returns a session that is not over, and notes that it is in use.
func (b *Bridge) find(id string) (*session, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.sessions[id]
	if ok {
		s.used = time.Now()
		b.byUse.MoveToBack(s.at)
	}
	return s, ok
}

// end forgets a session, and tells the server to forget its calls. It may be
// called twice.
func (b *Bridge) end(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endLocked(s)
}

func (b *Bridge) endLocked(s *session) {
	if s.over {
		return
	}
	s.over = true
	delete(b.sessions, s.id)
	if s.at != nil {
		b.byUse.Remove(s.at)
	}
	for _, c := range s.calls {
		c.giveUpLocked("the session has ended", sessionEnded())
	}
	if b.link != nil {
		b.link.disappointLocked(s)
	}
	b.mail.cutLocked(s.box)
	b.mail.discardLocked(s.box)
	for _, box := range s.streams {
		b.mail.unnameLocked(box)
	}
	s.streams = nil
}

// expire ends sessions that nobody has used for the TTL.
func (b *Bridge) expire(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sessions {
		if s.idleLocked() && now.Sub(s.used) > b.o.SessionTTL {
			b.endLocked(s)
		}
	}
}

const ending = "the proxy is ending"

// Drain ends the streams of sessions that wait for nothing, and those of others
// once they do; no session begins any more. Calls go on.
func (b *Bridge) Drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mail.draining = true
	for _, s := range b.sessions {
		b.drainLocked(s)
	}
	b.endListensLocked()
}

func (b *Bridge) isDraining() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mail.draining
}

// drainLocked ends the session's stream when all is written, if no call is under way.
func (b *Bridge) drainLocked(s *session) {
	if b.mail.draining && s.lingers != nil && len(s.calls) == 0 {
		b.endLocked(s)
		return
	}
	if r := s.box.reader; b.mail.draining && r != nil && len(s.calls) == 0 {
		r.finish = true
		if s.box.bytes == 0 {
			b.mail.cutLocked(s.box)
		}
	}
}

func (b *Bridge) endAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	for _, s := range b.sessions {
		b.endLocked(s)
	}
}
