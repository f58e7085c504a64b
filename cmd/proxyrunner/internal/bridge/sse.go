package bridge

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

// serveSSE is a session of sse: it lasts as long as its stream, on which all
// answers come, and which says first where to send messages.
func (b *Bridge) serveSSE(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		rpcerror.Write(w, http.StatusMethodNotAllowed, nil, r.Method+" is not allowed on /sse: use GET")
		return
	}
	out := stream(w)
	s, from, first := b.comeBack(r, out)
	if s == nil {
		var why *failure
		if s, why = b.open(b.client(r)); why != nil {
			refuse(w, "", why)
			return
		}
		var ok bool
		if from, ok = b.mail.attend(s.box, false, out.abort); !ok { // the proxy is ending
			s.end()
			rpcerror.Write(w, http.StatusServiceUnavailable, nil, sessionEnded().message)
			return
		}
		first = b.mail.lastEvent(s.box)
	}
	defer s.lose()
	defer b.mail.leave(s.box, from)
	// A client resolves it against the address that it used itself, so a path is all
	// that it needs to be told.
	endpoint := b.prefix(r.Header) + "/messages?session_id=" + url.QueryEscape(s.id)
	if out.event("endpoint", first, []byte(endpoint)) == nil {
		b.mail.follow(out, r, s.box, from)
	}
}

// comeBack makes the caller the reader of a session whose stream its client has lost after
// the event last. There is no session if that has ended: the client gets another one.
func (b *Bridge) comeBack(r *http.Request, out *events) (s *session, from *reader, last string) {
	last = r.Header.Get(lastEventHeader)
	id, n, ok := readEventID(last)
	if !ok {
		return nil, nil, ""
	}
	if s, ok = b.find(id); ok {
		from, ok = b.mail.resume(s.box, n, out.abort)
	}
	if !ok {
		return nil, nil, ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.lingers = nil
	return s, from, last
}

// prefix is the path under which the client reaches the proxy, or nothing.
func (b *Bridge) prefix(h http.Header) string {
	p := b.o.EndpointPrefix
	if p == "" && b.o.TrustProxyHeaders {
		p = h.Get("X-Forwarded-Prefix")
	}
	if p = strings.Trim(p, "/"); p == "" {
		return ""
	}
	return (&url.URL{Path: "/" + p}).EscapedPath()
}

func (b *Bridge) serveMessages(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		rpcerror.Write(w, http.StatusMethodNotAllowed, nil, r.Method+" is not allowed on /messages: use POST")
		return
	}
	id := r.URL.Query().Get("session_id")
	if id == "" {
		rpcerror.Write(w, http.StatusBadRequest, nil, "session_id is missing: post to the address that the stream of /sse named")
		return
	}
	s, ok := b.find(id)
	if !ok {
		rpcerror.Write(w, http.StatusNotFound, nil, "the session has ended: open /sse again")
		return
	}
	m, free, ok := b.message(w, r)
	if !ok {
		return
	}
	defer free()
	if req, isRequest := m.(*rpcRequest); isRequest && req.IsCall() {
		s.ask(r.Context(), req, s.box, true)
	} else {
		s.accept(m)
	}
	w.WriteHeader(http.StatusAccepted)
}
