// Package limit bounds what clients without credentials can make the proxy hold:
// how long a request may take to arrive and an answer to be read, and how much
// memory the bodies and answers of all clients take together.
//
// It knows HTTP, and neither MCP nor Kubernetes.
package limit

import (
	"net/http"
	"time"
)

const (
	// ReadTime is how long the body of a request may take to arrive, where nobody says.
	ReadTime = 30 * time.Second
	// WriteTime is how long a client may take to receive an answer or, of an event
	// stream, one write. Time in which there is nothing to write does not count.
	WriteTime = 30 * time.Second
)

// Time gives every request of a handler its deadlines; read is that of its body. The server's
// own timeouts would end streams and calls that take long for good reasons.
func Time(handler http.Handler, read time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			_ = rc.SetReadDeadline(time.Now().Add(read)) // not every writer has deadlines
			r.Body = &timedBody{ReadCloser: r.Body, rc: rc}
		}
		timed := &timedWriter{ResponseWriter: w, rc: rc, left: WriteTime}
		handler.ServeHTTP(timed, r)
		if !timed.hijacked {
			_ = rc.SetWriteDeadline(time.Now().Add(WriteTime)) // for what is still in a buffer
		}
	})
}
