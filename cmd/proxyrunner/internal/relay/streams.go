package relay

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// streams are those of an sse server, by the path and query that their clients post to,
// as the server said it. An answer comes on the stream, not on the request: at the end of
// the proxy, a stream on which none is awaited is idle.
type streams struct {
	mu       sync.Mutex
	open     map[string]*stream
	draining bool
}

// stream is guarded by streams.mu.
type stream struct {
	endpoint string
	awaited  int
	// unsure says that something on it could not be told from an answer, or from a
	// call: it is never idle.
	unsure bool
	isCut  bool
	cut    context.CancelFunc
}

type streamID struct{}

// Drain ends the streams on which no answer is awaited, and the others once it is there.
func (p *Relay) Drain() {
	p.streams.mu.Lock()
	defer p.streams.mu.Unlock()
	p.streams.draining = true
	for _, s := range p.streams.open {
		p.streams.endLocked(s)
	}
}

func (all *streams) isDraining() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.draining
}

func (all *streams) endLocked(s *stream) {
	if all.draining && s.awaited == 0 && !s.unsure {
		s.isCut = true
		s.cut()
	}
}

// begin is for a stream whose server has said where its client posts.
func (all *streams) begin(s *stream, at *url.URL, endpoint string) {
	u, err := at.Parse(endpoint)
	if err != nil {
		return // its client cannot post either
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	s.endpoint = u.RequestURI()
	all.open[s.endpoint] = s
	all.endLocked(s)
}

func (all *streams) end(s *stream) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.open[s.endpoint] == s {
		delete(all.open, s.endpoint)
	}
}

// call notes what a client posts. refused takes it back.
func (all *streams) call(r *http.Request, body []byte) (refused func()) {
	all.mu.Lock()
	defer all.mu.Unlock()
	s := all.open[r.URL.RequestURI()]
	var m struct {
		Method *string
		ID     any
	}
	switch {
	case s == nil:
		return func() {}
	case json.Unmarshal(body, &m) != nil:
		s.unsure = true // a batch
		return func() {}
	case m.Method == nil || m.ID == nil:
		return func() {}
	}
	s.awaited++
	return func() { all.answered(s) }
}

func (all *streams) answered(s *stream) {
	all.mu.Lock()
	defer all.mu.Unlock()
	s.awaited = max(s.awaited-1, 0)
	all.endLocked(s)
}

// maxLook is how much of a message is looked at: whether it is an answer is said before
// what it answers.
const maxLook = 4 << 10

// watched is the body of a stream, on which answers are counted.
type watched struct {
	io.ReadCloser
	all    *streams
	stream *stream
	lines  eventLines
	line   []byte // the beginning of the present line
	event  looked // the present one
}

// looked is what is known of an event: its name may come behind its data.
type looked struct {
	answer, unknown bool
	passed          bool // it is no message
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.look(p[:n])
	if err != nil {
		w.all.mu.Lock()
		defer w.all.mu.Unlock()
		if w.stream.isCut {
			err = io.EOF // it ends as if the server had ended it
		}
	}
	return n, err
}

func (w *watched) Close() error {
	w.all.end(w.stream)
	return w.ReadCloser.Close()
}

func (w *watched) look(p []byte) {
	for len(p) > 0 {
		part, used, ended := w.lines.cut(p)
		w.line = append(w.line, part[:min(len(part), maxLook-len(w.line))]...)
		if !ended {
			return
		}
		w.lineEnds()
		w.line, p = w.line[:0], p[used:]
	}
}

func (w *watched) lineEnds() {
	switch name, value := field(w.line); {
	case name == "":
		w.eventEnds()
	case name == "event":
		kind := strings.TrimSpace(value)
		w.event.passed = kind != "" && kind != "message"
	case name == "data" && value != "": // an event without data is none
		answer, known := isAnswer(value)
		w.event.answer = w.event.answer || answer
		w.event.unknown = w.event.unknown || !known
	}
}

func (w *watched) eventEnds() {
	event := w.event
	w.event = looked{}
	if event.passed {
		return
	}
	if event.unknown {
		w.all.mu.Lock()
		w.stream.unsure = true
		w.all.mu.Unlock()
	}
	if event.answer {
		w.all.answered(w.stream)
	}
}

// isAnswer looks at the beginning of a message for the member that decides.
func isAnswer(beginning string) (answer, known bool) {
	in := json.NewDecoder(strings.NewReader(beginning))
	if first, err := in.Token(); err != nil || first != json.Delim('{') {
		return false, false
	}
	for {
		name, err := in.Token()
		if err != nil {
			return false, false
		}
		switch name {
		case "method":
			return false, true
		case "result", "error":
			return true, true
		}
		var passed json.RawMessage
		if in.Decode(&passed) != nil {
			return false, false
		}
	}
}

// asksForStream tells whether a request is for something that lasts.
func asksForStream(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}
