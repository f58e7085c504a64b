package streamable

import (
	"maps"
	"net/http"
)

// isRefused hands a request to the server, and tells whether that answered as one that knows no
// streamable-http: with 400, 404 or 405, by which a client is to know it. Any other answer is the client's.
func (s *Server) isRefused(w http.ResponseWriter, r *http.Request) bool {
	t := &trial{ResponseWriter: w, header: http.Header{}}
	s.Relay.ServeHTTP(t, r)
	return t.refused
}

// trial writes a response unless it is a refusal.
type trial struct {
	http.ResponseWriter
	header         http.Header
	begun, refused bool
}

// Header is that of http.ResponseWriter.
func (t *trial) Header() http.Header { return t.header }

// WriteHeader is that of http.ResponseWriter.
func (t *trial) WriteHeader(status int) {
	if status < http.StatusOK || t.begun {
		return
	}
	t.begun = true
	t.refused = status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusMethodNotAllowed
	if !t.refused {
		maps.Copy(t.ResponseWriter.Header(), t.header)
		t.ResponseWriter.WriteHeader(status)
	}
}

// Write is that of http.ResponseWriter.
func (t *trial) Write(p []byte) (int, error) {
	if t.WriteHeader(http.StatusOK); t.refused {
		return len(p), nil
	}
	return t.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (t *trial) FlushError() error {
	if t.WriteHeader(http.StatusOK); t.refused {
		return nil
	}
	return http.NewResponseController(t.ResponseWriter).Flush()
}
