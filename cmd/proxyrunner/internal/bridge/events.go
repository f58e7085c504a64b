package bridge

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// keepAlive is how often something is sent on a stream that has nothing to say,
// so that nobody on the way takes it for dead.
const keepAlive = 30 * time.Second

// events writes a response as an event stream.
type events struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begun bool
}

// stream prepares a response that may take long.
func stream(w http.ResponseWriter) *events {
	return &events{w: w, rc: http.NewResponseController(w)}
}

// abort makes a write under way fail.
func (e *events) abort() { _ = e.rc.SetWriteDeadline(time.Now()) } // not every writer has deadlines

// begin sends the head of the response.
func (e *events) begin() error {
	if e.begun {
		return nil
	}
	e.begun = true
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	e.w.WriteHeader(http.StatusOK)
	return e.flush()
}

// prime sends an event that says nothing but its id.
func (e *events) prime(id string) error {
	if err := e.begin(); err != nil {
		return err
	}
	return e.write([]byte("id: " + id + "\ndata: \n\n"))
}

// event sends one event, with an id if it has one. data has no line end in it.
func (e *events) event(name, id string, data []byte) error {
	if err := e.begin(); err != nil {
		return err
	}
	var text bytes.Buffer
	if id != "" {
		text.WriteString("id: " + id + "\n")
	}
	text.WriteString("event: " + name + "\ndata: ")
	text.Write(data)
	text.WriteString("\n\n")
	return e.write(text.Bytes())
}

// idle keeps a stream alive, if there is one already.
func (e *events) idle(streams bool) error {
	if !streams || !e.begun {
		return nil
	}
	return e.alive()
}

func (e *events) alive() error { return e.write([]byte(": alive\n\n")) }

func (e *events) write(text []byte) error {
	if _, err := e.w.Write(text); err != nil { //nolint:gosec,nolintlint // an event stream, no page; gosec finds it only sometimes
		return err
	}
	return e.flush()
}

func (e *events) flush() error {
	if err := e.rc.Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// follow sends the messages of a mailbox until it has the answer to its call, the client is
// gone, the reader is cut or a write fails.
func (m *mailboxes) follow(e *events, r *http.Request, box *mailbox, from *reader) {
	for !m.isAnswered(box) {
		i, ok := m.next(r.Context(), box, from, e.alive)
		if !ok || e.event("message", i.id, i.data) != nil {
			return
		}
	}
}

// accepts tells which of the two kinds of answer a client takes. One that says
// nothing takes JSON. What is more exact counts more, and q=0 is no.
func accepts(h http.Header) (json, events bool) {
	values := h.Values("Accept")
	if len(values) == 0 {
		return true, false
	}
	takes := map[string]bool{}
	for _, part := range strings.Split(strings.Join(values, ","), ",") {
		kind, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		q, err := strconv.ParseFloat(params["q"], 64)
		takes[kind] = err != nil || q > 0
	}
	return first(takes, "application/json", "application/*", "*/*"), first(takes, "text/event-stream", "text/*")
}

// first is what is said of the first kind of which something is said.
func first(takes map[string]bool, kinds ...string) bool {
	for _, kind := range kinds {
		if yes, said := takes[kind]; said {
			return yes
		}
	}
	return false
}

func media(value string) string {
	kind, _, err := mime.ParseMediaType(strings.TrimSpace(value))
	if err != nil {
		return ""
	}
	return kind
}
