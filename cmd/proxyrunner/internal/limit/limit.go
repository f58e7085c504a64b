// Package limit bounds what clients without credentials can make the proxy hold:
// how long a request may take to arrive and an answer to be read, how much memory
// requests, answers and what lasts of all clients take together, and how much of it
// one client may have.
//
// It knows HTTP, and neither MCP nor Kubernetes.
package limit

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"net"
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

// timedBody takes the read deadline away once the body is there: the server goes
// on reading, to see whether the client has left.
type timedBody struct {
	io.ReadCloser
	rc   *http.ResponseController
	over bool
}

// Read is that of io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && !b.over {
		b.over = true
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// timedWriter sets the write deadline anew before each write.
type timedWriter struct {
	http.ResponseWriter
	rc       *http.ResponseController
	left     time.Duration // of an answer that is no event stream
	stream   bool
	begun    bool
	hijacked bool
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader is that of http.ResponseWriter.
func (w *timedWriter) WriteHeader(status int) {
	if status >= http.StatusOK && !w.begun {
		w.begun = true
		kind, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type"))
		w.stream = kind == "text/event-stream"
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write is that of http.ResponseWriter.
func (w *timedWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	began := w.start()
	n, err := w.ResponseWriter.Write(p)
	w.stop(began)
	return n, err
}

// FlushError is for http.ResponseController.
func (w *timedWriter) FlushError() error {
	w.begun = true // the header goes out with it
	began := w.start()
	err := w.rc.Flush()
	w.stop(began)
	return err
}

// Hijack is for http.ResponseController. What takes the connection over has no
// deadlines.
func (w *timedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked = true
	return w.rc.Hijack()
}

func (w *timedWriter) start() time.Time {
	now, within := time.Now(), WriteTime
	if !w.stream {
		within = w.left
	}
	_ = w.rc.SetWriteDeadline(now.Add(within))
	return now
}

func (w *timedWriter) stop(began time.Time) { w.left -= time.Since(began) }
