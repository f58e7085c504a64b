package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// look is how soon a change is on the page.
	look = 250 * time.Millisecond
	// beat is how often the page hears that nothing has changed; it says that it is
	// stale when it hears nothing for three of them.
	beat = 5 * time.Second
)

// events is a stream of server-sent events: `state` with the page's content when it
// differs from what was sent last, `beat` when it does not.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var last content
	var sent time.Time
	for {
		now, err := s.content()
		if err != nil {
			return // the browser asks again
		}
		event := ""
		switch {
		case now != last:
			event = "state"
		case time.Since(sent) >= beat:
			event = "beat"
		}
		if event != "" {
			if send(w, out, event, now) != nil {
				return // nobody reads any more
			}
			last, sent = now, time.Now()
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}

// send writes one event. JSON has no line breaks, which would end the event.
func send(w http.ResponseWriter, out *http.ResponseController, event string, c content) error {
	data := []byte("{}")
	if event == "state" {
		var err error
		if data, err = json.Marshal(c); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "retry: 1000\nevent: %s\ndata: %s\n\n", event, data); err != nil {
		return err
	}
	return out.Flush()
}
