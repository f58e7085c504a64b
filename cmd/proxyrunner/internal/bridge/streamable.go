package bridge

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	retryAfter    = 2 * time.Second
)

func (b *Bridge) serveMCP(w http.ResponseWriter, r *http.Request) {
	if v := versions(r.Header); v != "" && !slices.Contains(legacy, v) && r.Method != http.MethodPost {
		if v >= modern {
			w.Header().Set("Allow", http.MethodPost)
			rpcerror.Write(w, http.StatusMethodNotAllowed, nil, r.Method+" is not part of version "+v+": use POST")
			return
		}
		rpcerror.Write(w, http.StatusBadRequest, nil, unsupported(v, legacy).message)
		return
	}
	switch r.Method {
	case http.MethodPost:
		b.post(w, r)
	case http.MethodGet:
		b.listen(w, r)
	case http.MethodDelete:
		if s, ok := b.known(w, r); ok {
			s.end()
			w.WriteHeader(http.StatusNoContent)
		}
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		rpcerror.Write(w, http.StatusMethodNotAllowed, nil, r.Method+" is not allowed on /mcp: use POST, GET or DELETE")
	}
}

func (b *Bridge) client(r *http.Request) string { return limit.Client(r, b.o.TrustProxyHeaders) }

// versions is what a client says of the protocol; several do not make one that the
// bridge could speak.
func versions(h http.Header) string { return strings.Join(h.Values(versionHeader), ", ") }

// known finds the session that a request names, or answers the request.
func (b *Bridge) known(w http.ResponseWriter, r *http.Request) (*session, bool) {
	id := r.Header.Get(sessionHeader)
	if len(r.Header.Values(sessionHeader)) > 1 {
		rpcerror.Write(w, http.StatusBadRequest, nil, sessionHeader+" is there more than once: send one")
		return nil, false
	}
	if id == "" {
		rpcerror.Write(w, http.StatusBadRequest, nil, sessionHeader+" is missing: send the one that the answer to initialize had")
		return nil, false
	}
	s, ok := b.find(id)
	if !ok {
		rpcerror.Write(w, http.StatusNotFound, nil, sessionEnded().message)
	}
	return s, ok
}

// listen is the stream of what the server says of its own accord.
func (b *Bridge) listen(w http.ResponseWriter, r *http.Request) {
	s, ok := b.known(w, r)
	if !ok {
		return
	}
	if j, e := accepts(r.Header); !e && !j {
		rpcerror.Write(w, http.StatusNotAcceptable, nil, "there is nothing but an event stream: accept text/event-stream")
		return
	}
	if event := r.Header.Get(lastEventHeader); event != "" {
		b.listenAgain(w, r, s, event)
		return
	}
	out := stream(w)
	from, ok := b.mail.attend(s.box, false, out.abort)
	if !ok && b.isDraining() {
		rpcerror.WriteRetry(w, http.StatusServiceUnavailable, nil, ending+": open the stream again", retryAfter)
		return
	}
	if !ok {
		rpcerror.Write(w, http.StatusConflict, nil, "the session has a stream already: end that one")
		return
	}
	defer b.find(s.id) // it was in use until now
	defer b.mail.leave(s.box, from)
	begin := out.begin
	if r.Header.Get(versionHeader) >= primed {
		begin = func() error { return out.prime(b.mail.lastEvent(s.box)) }
	}
	if begin() == nil {
		b.mail.follow(out, r, s.box, from)
	}
}

// listenAgain goes on with a stream that the client has lost after an event.
func (b *Bridge) listenAgain(w http.ResponseWriter, r *http.Request, s *session, event string) {
	box, n, ok := s.streamOf(event)
	if !ok {
		rpcerror.Write(w, http.StatusBadRequest, nil, "the stream of that "+lastEventHeader+" is not kept any more: open one without it")
		return
	}
	out := stream(w)
	from, ok := b.mail.resume(box, n, out.abort)
	if !ok {
		rpcerror.WriteRetry(w, http.StatusServiceUnavailable, nil, ending+": open the stream again", retryAfter)
		return
	}
	defer b.find(s.id) // it was in use until now
	defer b.mail.leave(box, from)
	if out.begin() == nil {
		b.mail.follow(out, r, box, from)
	}
}

func (b *Bridge) post(w http.ResponseWriter, r *http.Request) {
	m, free, ok := b.message(w, r)
	if !ok {
		return
	}
	defer free()
	req, isCall := m.(*rpcRequest)
	isCall = isCall && req.IsCall()
	object, streams := accepts(r.Header)
	if isCall && !object && !streams {
		rpcerror.Write(w, http.StatusNotAcceptable, nil, "an answer is application/json or text/event-stream: accept both")
		return
	}
	s, ok := b.sessionOf(w, r, m)
	if !ok {
		return
	}
	if !isCall {
		s.accept(m)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	box, first := newMailbox(), ""
	e := stream(w)
	from, _ := b.mail.attend(box, true, e.abort) // nobody else knows it
	defer b.mail.leave(box, from)
	if streams {
		first = s.nameStream(box)
	}
	s.ask(r.Context(), req, box, streams)
	free() // the call waits for as long as it takes, but not with its request
	primeLater(e, r, box, from, first)
	b.respond(e, r, s, box, from, streams)
	if _, found := b.find(s.id); !found {
		s.end() // a session that nobody else knows
	}
}

// message reads the body of a request, or answers the request.
func (b *Bridge) message(w http.ResponseWriter, r *http.Request) (m rpcMessage, free func(), ok bool) {
	if media(r.Header.Get("Content-Type")) != "application/json" {
		rpcerror.Write(w, http.StatusUnsupportedMediaType, nil, "the Content-Type must be application/json")
		return nil, nil, false
	}
	body, free, ok := b.o.Requests.Body(w, r)
	if !ok {
		return nil, nil, false
	}
	m, err := decode(body)
	if err != nil {
		free()
		refuse(w, "", malformed(err))
		return nil, nil, false
	}
	if len(idOf(m)) > maxText {
		free()
		refuse(w, "", longer("id", maxText))
		return nil, nil, false
	}
	if why := checkVersion(r.Header, m); why != nil && b.o.Mode != ModeSSE {
		free()
		refuse(w, idOf(m), why)
		return nil, nil, false
	}
	return m, free, true
}

// sessionOf is the session that a message belongs to. initialize opens one; what
// names none is alone.
func (b *Bridge) sessionOf(w http.ResponseWriter, r *http.Request, m rpcMessage) (*session, bool) {
	if req, ok := m.(*rpcRequest); ok && version(req) != "" {
		return b.newSession(b.client(r)), true // such versions have none
	}
	if len(r.Header.Values(sessionHeader)) > 0 && strings.Join(r.Header.Values(sessionHeader), "") != "" {
		return b.known(w, r)
	}
	if req, ok := m.(*rpcRequest); !ok || req.Method != "initialize" || !req.IsCall() {
		return b.newSession(b.client(r)), true
	}
	s, why := b.open(b.client(r))
	if why != nil {
		refuse(w, idOf(m), why)
		return nil, false
	}
	w.Header().Set(sessionHeader, s.id)
	return s, true
}

// respond writes what comes out of a call: one JSON object, or a stream that ends
// with it. An answer that is all there is has a status of its own.
func (b *Bridge) respond(e *events, r *http.Request, s *session, box *mailbox, from *reader, streams bool) {
	for {
		i, ok := b.mail.next(r.Context(), box, from, func() error { return e.idle(streams) })
		if !ok {
			e.lost(r)
			return
		}
		if h := e.w.Header(); h.Get(sessionHeader) != "" && isError(i) {
			h.Del(sessionHeader) // the session was opened for nothing
			s.end()
		}
		if !streams || (i.why != nil && i.why.status != http.StatusOK && !e.begun) {
			writeJSON(e.w, i)
			return
		}
		if e.event("message", i.id, i.data) != nil || i.answer {
			return
		}
	}
}

// lost says that the answer had to be dropped, if that can be said.
func (e *events) lost(r *http.Request) {
	if r.Context().Err() == nil && !e.begun {
		refuse(e.w, "", unavailable("too much waits for clients, and the answer is lost: it may or may not have been done"))
	}
}

func isError(i item) bool {
	m, err := decode(i.data)
	resp, ok := m.(*rpcResponse)
	return err != nil || (ok && resp.Error != nil)
}

func writeJSON(w http.ResponseWriter, i item) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	status := http.StatusOK
	if i.why != nil {
		status = i.why.status
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", fmt.Sprint(int(retryAfter.Seconds())))
	}
	w.WriteHeader(status)
	_, _ = w.Write(i.data) // a client that is gone needs no answer
}

func idOf(m rpcMessage) (id rpcID) {
	if req, ok := m.(*rpcRequest); ok {
		id = req.ID
	}
	return id
}

// refuse answers the call id, empty if that is not known, with an error of our own.
func refuse(w http.ResponseWriter, id rpcID, why *failure) {
	data, _ := encodeMessage(why.response(id)) // it is always JSON
	writeJSON(w, item{data: data, why: why})
}
