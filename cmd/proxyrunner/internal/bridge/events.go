package bridge

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"
)

const (
	// keepAlive is how often something is sent on a stream that has nothing to say,
	// so that nobody on the way takes it for dead.
	keepAlive = 30 * time.Second
	// writeLimit is how long a client may take to receive one message.
	writeLimit = 30 * time.Second
)

// events writes a response as an event stream.
type events struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begun bool
}

// stream prepares a response that may take long: the limits of the HTTP server for
// a request as a whole do not count for it. The caller calls end.
func stream(w http.ResponseWriter) *events {
	e := &events{w: w, rc: http.NewResponseController(w)}
	_ = e.rc.SetReadDeadline(time.Time{}) // not every writer has deadlines
	return e
}

// end takes the last message's limit from the connection, which may be used again.
func (e *events) end() { _ = e.rc.SetWriteDeadline(time.Time{}) }

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

// event sends one event. data has no line end in it.
func (e *events) event(name string, data []byte) error {
	if err := e.begin(); err != nil {
		return err
	}
	var text bytes.Buffer
	text.WriteString("event: " + name + "\ndata: ")
	text.Write(data)
	text.WriteString("\n\n")
	return e.write(text.Bytes())
}

func (e *events) alive() error { return e.write([]byte(": alive\n\n")) }

func (e *events) write(text []byte) error {
	_ = e.rc.SetWriteDeadline(time.Now().Add(writeLimit))
	if _, err := e.w.Write(text); err != nil {
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

// follow sends the session's messages until the client is gone, the stream is cut
// or, with an error, a write fails.
func (e *events) follow(r *http.Request, s *session, cut <-chan struct{}) error {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-r.Context().Done():
			return nil
		case <-cut:
			return nil
		case i := <-s.out:
			err = e.event("message", i.data)
		case <-tick.C:
			err = e.alive()
		}
		if err != nil {
			return err
		}
	}
}

// accepts tells which of the two kinds of answer a client takes. One that says
// nothing takes JSON.
func accepts(h http.Header) (json, events bool) {
	values := h.Values("Accept")
	if len(values) == 0 {
		return true, false
	}
	for _, part := range strings.Split(strings.Join(values, ","), ",") {
		switch media(part) {
		case "*/*", "application/*", "application/json":
			json = true
		case "text/event-stream", "text/*":
			events = true
		}
	}
	return json, events
}

// media is a media type without its parameters.
func media(value string) string {
	kind, _, err := mime.ParseMediaType(strings.TrimSpace(value))
	if err != nil {
		return ""
	}
	return kind
}
