package bridge

import (
	"encoding/json"
	"fmt"
	"strings"
)

// The server believes that it has one client, and does not say whom of ours a
// message is for. What follows says it where that is certain. Where it is not, a
// message that may tell what another client asked is not passed on.

// announceLocked hands a notification to those whom it concerns.
func (l *link) announceLocked(m *rpcRequest) {
	data, err := encodeMessage(m)
	if err != nil || l.listenedLocked(m) {
		return
	}
	only, busy := l.callerLocked()
	switch {
	case strings.HasSuffix(m.Method, "/list_changed"):
		l.bridge.toAllLocked(data)
	case m.Method == "notifications/resources/updated":
		var uri string
		_ = json.Unmarshal(at(m.Params, "uri"), &uri) // without one it concerns nobody
		for _, s := range l.bridge.sessions {
			if s.subscribedTo(uri) {
				l.bridge.mail.pushLocked(s.box, item{data: data})
			}
		}
	case !busy:
		l.bridge.toAllLocked(data) // it is about the server
	case only != nil:
		l.bridge.mail.pushLocked(l.streamLocked(only), item{data: data})
	}
}

func (b *Bridge) toAllLocked(data []byte) {
	for _, s := range b.sessions {
		b.mail.pushLocked(s.box, item{data: data})
	}
}

// callerLocked is the only session for which the server may be working, nil if there is none, or
// several; busy says that there is one. Calls that were given up count as those under way do. What
// only listens does not, nor what the bridge itself asks.
func (l *link) callerLocked() (only *session, busy bool) {
	if l.blind {
		return nil, true
	}
	for _, c := range l.calls {
		if c.listens != nil || c.own {
			continue
		}
		if only != nil && c.session != only {
			return nil, true
		}
		only, busy = c.session, true
	}
	for _, s := range l.givenUp {
		if only != nil && s != only {
			return nil, true
		}
		only, busy = s, true
	}
	return only, busy
}

// streamLocked is where a message belongs that has to do with the session's calls:
// on the stream of the only one, as the specification asks for, or on its own.
func (l *link) streamLocked(s *session) *mailbox {
	if len(s.calls) == 1 && len(l.givenUp) == 0 { // which are all of this session, if any
		for _, c := range s.calls {
			if c.streams {
				return c.box
			}
		}
	}
	return s.box
}

// subscribedTo tells whether a resource, or one that it is a part of, is among the
// session's subscriptions.
func (s *session) subscribedTo(uri string) bool {
	for subscribed := range s.subscriptions {
		if rest, ok := strings.CutPrefix(uri, subscribed); ok && (rest == "" || strings.HasSuffix(subscribed, "/") || strings.ContainsAny(rest[:1], "/#?")) {
			return true
		}
	}
	return false
}

// unsubscribe ends a subscription that the server is to keep for others. It is false where there are none.
func (c *call) unsubscribe() bool {
	c.bridge.mu.Lock()
	defer c.bridge.mu.Unlock()
	if !c.session.keptLocked(c.about) {
		return false
	}
	c.session.subscribeLocked(c)
	c.replyLocked(&rpcResponse{Result: json.RawMessage("{}")}, nil)
	return true
}

// unsubscribeLocked ends the subscriptions of a session that is over, but for those of others. Nobody waits for the answers.
func (l *link) unsubscribeLocked(s *session) {
	if l.bridge.over {
		return // the server ends as well
	}
	for uri := range s.subscriptions {
		if !s.keptLocked(uri) {
			params, _ := json.Marshal(map[string]any{"uri": uri}) // a text
			l.offer(&rpcRequest{ID: number(l.numberLocked()), Method: methodUnsubscribe, Params: params})
		}
	}
}

// introduce notes what the client of a session can do.
func (s *session) introduce(params json.RawMessage) {
	var can map[string]json.RawMessage
	_ = json.Unmarshal(at(params, "capabilities"), &can) // one that declares nothing can do nothing
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
	s.capabilities = map[string]struct{}{}
	for _, ability := range abilities {
		if _, ok := can[ability]; ok {
			s.capabilities[ability] = struct{}{}
		}
	}
}

// keptLocked tells whether another session is subscribed to what this one gives up, or has asked to be. The
// server has one subscription for all.
func (s *session) keptLocked(uri string) bool {
	for _, other := range s.bridge.sessions {
		if other == s {
			continue
		}
		if _, ok := other.subscriptions[uri]; ok {
			return true
		}
		for _, c := range other.calls {
			if c.method == methodSubscribe && c.about == uri {
				return true
			}
		}
	}
	return false
}

// abilities are what a client must have declared to be asked.
var abilities = map[string]string{"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}

// questionLocked hands a request of the server to the client that it is for: the
// one whose call is under way, or the only one there is. If nobody can answer it
// fails at once.
func (l *link) questionLocked(m *rpcRequest) {
	if m.Method == "ping" {
		l.offer(&rpcResponse{ID: m.ID, Result: json.RawMessage("{}")})
		return
	}
	s, why := l.whomLocked(m.Method)
	if why == "" {
		why = l.putLocked(s, m)
	}
	if why != "" {
		l.offer((&failure{code: codeInvalidRequest, message: why}).response(m.ID))
	}
}

// putLocked puts a question to a session, or says why it cannot.
func (l *link) putLocked(s *session, m *rpcRequest) string {
	box := l.streamLocked(s)
	if box.reader == nil || box.reader.isCut {
		return m.Method + ": the client has no stream open on which it could be asked"
	}
	n := l.numberLocked()
	data, err := encodeMessage(&rpcRequest{ID: number(n), Method: m.Method, Params: m.Params})
	if err != nil {
		return "the request cannot be written as JSON"
	}
	if !l.bridge.mail.pushLocked(box, item{data: data}) {
		return "the client does not read its messages"
	}
	l.questions[n] = question{session: s, id: m.ID}
	return ""
}

// onlyLocked is the only session whose client is there.
func (b *Bridge) onlyLocked() (only *session) {
	for _, s := range b.sessions {
		if s.lingers != nil {
			continue
		}
		if only != nil {
			return nil
		}
		only = s
	}
	return only
}

// whomLocked is the session that the server asks, or says why there is none.
func (l *link) whomLocked(method string) (whom *session, why string) {
	if len(l.questions) >= maxQuestions {
		return nil, "too many requests wait for clients"
	}
	s, busy := l.callerLocked()
	switch {
	case s == nil && busy:
		return nil, method + " needs exactly one client with calls under way, of which one counts that was given up and is not answered yet"
	case s == nil:
		s = l.bridge.onlyLocked()
	}
	if s == nil || l.bridge.sessions[s.id] != s {
		return nil, fmt.Sprintf("%s needs exactly one client that is free to answer; there are %d", method, len(l.bridge.sessions))
	}
	ability, known := abilities[method]
	if _, able := s.capabilities[ability]; known && !able {
		return nil, "the client does not support " + ability
	}
	return s, ""
}
