package bridge

import (
	"container/list"
	"crypto/rand"
	"net/http"
	"slices"
	"strconv"
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

// itemBytes is what a message costs beside its text.
const itemBytes = 96

func (i *item) size() int { return itemBytes + len(i.data) }

// session is one client. A request without a session has one that nobody else
// knows. All but bridge, id, from and box are guarded by Bridge.mu.
type session struct {
	bridge *Bridge
	id     string
	from   string   // for whom it counts, as limit.Client says
	box    *mailbox // for its stream
	// calls are those under way, by the client's id.
	calls map[rpcID]*call
	used  time.Time
	at    *list.Element // in Bridge.byUse; nil if others do not know the session
	over  bool
	// capabilities are what the client has declared, by name, and subscriptions the
	// URIs of resources that it wants to know of.
	capabilities  map[string]struct{}
	subscriptions map[string]struct{}
	// held is what it has of Options.State, apart from its calls.
	held int
	// streams are those of its last calls, which it may ask for again, and calledFor how
	// many there were.
	streams   []*mailbox
	calledFor int
	// lingers ends the session, whose only stream of sse is lost; nil while it has that.
	lingers *time.Timer
}

func (b *Bridge) newSession(from string) *session {
	s := &session{bridge: b, id: rand.Text(), from: from, box: newMailbox(), calls: map[rpcID]*call{}, used: time.Now()}
	s.box.kept.name = ownStream
	return s
}

// open makes a session that others know, or says why not.
func (b *Bridge) open(from string) (*session, *failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return nil, unavailable(b.away)
	}
	if b.mail.draining {
		return nil, unavailable(ending)
	}
	if !b.roomLocked(from, sessionBytes, nil) {
		return nil, &failure{status: http.StatusServiceUnavailable, code: codeConnectionClosed,
			message: "there are too many sessions: end some, or try again later"}
	}
	s := b.newSession(from)
	s.held = sessionBytes
	if b.o.Mode == ModeSSE {
		s.box.kept.name = s.id // nothing else in a request for its stream names the session
	}
	b.sessions[s.id] = s
	s.at = b.byUse.PushBack(s)
	return s, nil
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
func (s *session) end() {
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
	s.endLocked()
}

func (s *session) endLocked() {
	if s.over {
		return
	}
	s.over = true
	delete(s.bridge.sessions, s.id)
	if s.at != nil {
		s.bridge.byUse.Remove(s.at)
	}
	for _, c := range s.calls {
		c.giveUpLocked("the session has ended", sessionEnded())
	}
	if l := s.bridge.link; l != nil {
		l.disappointLocked(s)
		l.unsubscribeLocked(s)
	}
	s.bridge.o.State.Give(s.from, s.held)
	s.subscriptions, s.held = nil, 0 // a number that was given up may keep the session
	s.bridge.mail.cutLocked(s.box)
	s.bridge.mail.discardLocked(s.box)
	for len(s.streams) > 0 {
		s.unnameLocked(s.streams[0])
	}
}

// nameStream makes the stream of a call one that its client can ask for again, and returns
// the id of what comes before its first event; empty if nobody else knows the session.
func (s *session) nameStream(box *mailbox) (first string) {
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
	if s.at == nil || s.over {
		return ""
	}
	s.calledFor++
	box.kept.name, box.kept.call = strconv.Itoa(s.calledFor), true
	s.streams = append(s.streams, box)
	box.kept.of, box.kept.asked = s, s.bridge.named.PushBack(box)
	if len(s.streams) > maxStreams {
		s.unnameLocked(s.streams[0])
	}
	if s.bridge.named.Len() > maxNamed {
		oldest := s.bridge.named.Front().Value.(*mailbox)
		oldest.kept.of.unnameLocked(oldest)
	}
	return box.kept.id(0)
}

// unnameLocked makes a stream one that cannot be asked for again.
func (s *session) unnameLocked(box *mailbox) {
	s.streams = slices.DeleteFunc(s.streams, func(one *mailbox) bool { return one == box })
	s.bridge.named.Remove(box.kept.asked)
	s.bridge.mail.unnameLocked(box)
}

func (s *session) streamOf(event string) (box *mailbox, n int, ok bool) {
	name, n, ok := readEventID(event)
	if !ok {
		return nil, 0, false
	}
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
	for _, box := range append([]*mailbox{s.box}, s.streams...) {
		if box.kept.name == name {
			return box, n, true
		}
	}
	return nil, 0, false
}

// lose ends a session of sse whose stream is lost, unless its client comes back.
func (s *session) lose() {
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
	if s.over || s.box.reader != nil {
		return
	}
	if s.bridge.mail.draining {
		s.endLocked()
		return
	}
	var this *time.Timer
	this = time.AfterFunc(linger, func() { s.endLost(this) })
	s.lingers = this
}

// endLost ends a session of sse when it has lingered, if its client has not come back, not even to be lost again.
func (s *session) endLost(timer *time.Timer) {
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
	if s.lingers == timer && s.box.reader == nil {
		s.endLocked()
	}
}

// expire ends sessions that nobody has used for the TTL.
func (b *Bridge) expire(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sessions {
		if s.idleLocked() && now.Sub(s.used) > b.o.SessionTTL {
			s.endLocked()
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
		s.drainLocked()
	}
	if b.link != nil {
		b.link.endListensLocked()
	}
}

func (b *Bridge) isDraining() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mail.draining
}

// drainLocked ends the session's stream when all is written, if no call is under way.
func (s *session) drainLocked() {
	if s.bridge.mail.draining && s.lingers != nil && len(s.calls) == 0 {
		s.endLocked()
		return
	}
	if r := s.box.reader; s.bridge.mail.draining && r != nil && len(s.calls) == 0 {
		r.finish = true
		if s.box.bytes == 0 {
			s.bridge.mail.cutLocked(s.box)
		}
	}
}

func (b *Bridge) endAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	for _, s := range b.sessions {
		s.endLocked()
	}
}
