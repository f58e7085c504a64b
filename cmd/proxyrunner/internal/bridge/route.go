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
func (b *Bridge) route(l *link, m rpcMessage, wrong error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch m := m.(type) {
	case *rpcResponse:
		c := l.callLocked(m.ID)
		switch {
		case c == nil:
		case wrong != nil:
			b.failLocked(c, wrongAnswer(wrong))
		default:
			b.finishLocked(c, m, nil)
		}
	case *rpcRequest:
		switch {
		case m.IsCall():
			b.questionLocked(l, m)
		case m.Method == "notifications/progress":
			b.routeProgressLocked(l, m)
		case m.Method == "notifications/cancelled":
			b.withdrawLocked(l, m)
		default:
			b.announceLocked(l, m)
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

func (b *Bridge) routeProgressLocked(l *link, m *rpcRequest) {
	var n int64
	if json.Unmarshal(at(m.Params, "progressToken"), &n) != nil {
		return
	}
	if c := l.calls[n]; c != nil {
		b.progressLocked(c, m.Params)
	}
}

// withdrawLocked tells the client that the server no longer waits for its answer.
func (b *Bridge) withdrawLocked(l *link, m *rpcRequest) {
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
		if data, err := encodeMessage(&rpcRequest{Method: m.Method, Params: params}); err == nil {
			b.mail.pushLocked(q.session.box, item{data: data})
		}
		return
	}
}

// disappointLocked answers the questions that a session will not answer any more.
func (b *Bridge) disappointLocked(l *link, s *session) {
	for n, q := range l.questions {
		if q.session == s {
			delete(l.questions, n)
			b.offer(l, (&failure{code: codeConnectionClosed, message: "the client is gone"}).response(q.id))
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

// answered takes a client's response to the question that it answers. A response
// that nobody waits for is passed over.
func (b *Bridge) answered(s *session, m *rpcResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, ok := m.ID.int()
	if !ok || b.link == nil {
		return
	}
	q, ok := b.link.questions[n]
	if !ok || q.session != s {
		return
	}
	delete(b.link.questions, n)
	b.offer(b.link, &rpcResponse{ID: q.id, Result: m.Result, Error: m.Error})
}

// notified passes a client's notification on, if it says something that the
// server has to know.
func (b *Bridge) notified(s *session, m *rpcRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link == nil || m.Method == "notifications/initialized" {
		return
	}
	if m.Method == "notifications/progress" && !b.link.asksLocked(s) {
		return // of nothing that the server has asked this client
	}
	if m.Method != "notifications/cancelled" {
		b.offer(b.link, &rpcRequest{Method: m.Method, Params: m.Params})
		return
	}
	id, err := readID(at(m.Params, "requestId"))
	if err != nil || id == "" {
		return
	}
	if c := s.calls[id]; c != nil {
		params, _ := swap(m.Params, c.number, "requestId")
		b.offer(b.link, &rpcRequest{Method: m.Method, Params: params})
	}
}

// tooLong fails the call whose answer is too long to be passed on.
func (b *Bridge) tooLong(l *link, id json.RawMessage) {
	b.o.Log.Warn("the MCP server printed a line that is too long", "limit", MaxLine)
	var n int64
	if json.Unmarshal(id, &n) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := l.calls[n]; c != nil {
		b.failLocked(c, &failure{status: http.StatusBadGateway, code: codeInternalError,
			message: fmt.Sprintf("the answer of the MCP server is longer than %d bytes, which is all that the proxy passes on", MaxLine)})
	}
}
