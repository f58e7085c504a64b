package bridge

import (
	"encoding/json"
	"fmt"
	"net/http"
)

type question struct {
	session *session
	id      rpcID // what the server knows it by
}

// route hands a message of the server to whom it concerns.
func (l *link) route(m rpcMessage, wrong error) {
	l.bridge.mu.Lock()
	defer l.bridge.mu.Unlock()
	switch m := m.(type) {
	case *rpcResponse:
		c := l.answeredLocked(m.ID)
		switch {
		case c == nil && m.ID == "" && m.Error != nil:
			l.bridge.o.Log.Warn("the MCP server refuses a message, and does not say which one", "error", said(m.Error))
		case c == nil:
		case wrong != nil:
			c.failLocked(wrongAnswer(wrong))
		default:
			c.finishLocked(m, nil)
		}
	case *rpcRequest:
		switch {
		case m.IsCall():
			l.questionLocked(m)
		case m.Method == "notifications/progress":
			l.routeProgressLocked(m)
		case m.Method == "notifications/cancelled":
			l.withdrawLocked(m)
		default:
			l.announceLocked(m)
		}
	}
}

func (l *link) callLocked(id rpcID) *call {
	n, ok := id.int()
	if !ok {
		return nil
	}
	return l.calls[n]
}

func (l *link) routeProgressLocked(m *rpcRequest) {
	if c := l.callLocked(rpcID(at(m.Params, "progressToken"))); c != nil {
		c.progressLocked(m.Params)
	}
}

// withdrawLocked tells the client that the server no longer waits for its answer.
func (l *link) withdrawLocked(m *rpcRequest) {
	id, err := readID(at(m.Params, "requestId"))
	if err != nil || id == "" {
		return
	}
	for n, q := range l.questions {
		if q.id != id {
			continue
		}
		delete(l.questions, n)
		params, _ := swap(m.Params, n, "requestId")
		l.bridge.mail.pushMessageLocked(q.session.box, &rpcRequest{Method: m.Method, Params: params})
		return
	}
}

// disappointLocked answers the questions that a session will not answer any more.
func (l *link) disappointLocked(s *session) {
	for n, q := range l.questions {
		if q.session == s {
			delete(l.questions, n)
			l.offer((&failure{code: codeConnectionClosed, message: "the client is gone"}).response(q.id))
		}
	}
}

func (l *link) asksLocked(s *session) bool {
	for _, q := range l.questions {
		if q.session == s {
			return true
		}
	}
	return false
}

func (s *session) accept(m rpcMessage) {
	switch m := m.(type) {
	case *rpcResponse:
		s.answered(m)
	case *rpcRequest:
		s.notified(m)
	}
}

// answered takes a client's response to the question that it answers. A response
// that nobody waits for is passed over.
func (s *session) answered(m *rpcResponse) {
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
	l := s.bridge.link
	n, ok := m.ID.int()
	if !ok || l == nil {
		return
	}
	q, ok := l.questions[n]
	if !ok || q.session != s {
		return
	}
	delete(l.questions, n)
	l.offer(&rpcResponse{ID: q.id, Result: m.Result, Error: m.Error})
}

// notified passes a client's notification on, if it says something that the
// server has to know.
func (s *session) notified(m *rpcRequest) {
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
	l := s.bridge.link
	if l == nil || m.Method == "notifications/initialized" {
		return
	}
	if m.Method == "notifications/progress" && !l.asksLocked(s) {
		return // of nothing that the server has asked this client
	}
	if m.Method != "notifications/cancelled" {
		l.offer(&rpcRequest{Method: m.Method, Params: m.Params})
		return
	}
	id, err := readID(at(m.Params, "requestId"))
	if err != nil || id == "" {
		return
	}
	if c := s.calls[id]; c != nil {
		params, _ := swap(m.Params, c.number, "requestId")
		l.offer(&rpcRequest{Method: m.Method, Params: params})
		c.withdrawnLocked()
	}
}

// tooLong fails the call whose answer is too long to be passed on.
func (l *link) tooLong(raw json.RawMessage) {
	l.bridge.o.Log.Warn("the MCP server printed a line that is too long", "limit", MaxLine)
	id, err := readID(raw)
	if err != nil {
		return
	}
	l.bridge.mu.Lock()
	defer l.bridge.mu.Unlock()
	if c := l.answeredLocked(id); c != nil {
		c.failLocked(&failure{status: http.StatusBadGateway, code: codeInternalError,
			message: fmt.Sprintf("the answer of the MCP server is longer than %d bytes, which is all that the proxy passes on", MaxLine)})
	}
}
