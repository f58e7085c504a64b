// Package dashboard shows where the objects of a kind stand, in a browser on the machine of
// who looks: one page, live, read-only.
//
// Everything on the page comes from one value, a Snapshot; the HTML is made here,
// where every value is escaped, and sent again when it has changed. The browser
// lays it over what it shows. Nothing is loaded from elsewhere.
package dashboard

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/fsm"
)

// Snapshot is what is known of a cluster.
type Snapshot struct {
	// Objects in the order in which they are shown.
	Objects []live.Object
	// Answered is when the API server answered last; zero if it never did.
	Answered time.Time
	// Trouble is why it did not since; nil if all is well.
	Trouble error
}

// maxShown is how many objects a page has: with hundreds nobody would find one.
const maxShown = 30

func (s Snapshot) shown() []live.Object { return s.Objects[:min(len(s.Objects), maxShown)] }

// Server makes the page. It holds no state of its own.
type Server struct {
	// Kind is that of the objects.
	Kind string
	// Machine answers the one that drives an object.
	Machine func(live.Object) *fsm.Machine
	// Caller is what the commands on the page need.
	Caller statusview.Caller
	// Cluster is what the page calls the cluster.
	Cluster string
	// Look answers what is known now. It is called often and must not wait.
	Look func() Snapshot
	// Now is the clock.
	Now func() time.Time
}

// How long things take.
const (
	headerLimit = 5 * time.Second
	closeLimit  = time.Second
)

// Serve answers until the context ends, which is no error. It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerLimit,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends what is streamed
	}
	stop := context.AfterFunc(ctx, func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		_ = server.Shutdown(limited) // whoever still reads is cut off when the program ends
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the dashboard on %s: %w", l.Addr(), err)
	}
	return nil
}

//go:embed static
var files embed.FS

// Handler is all that is served: the page, its two files, and the stream of changes.
func (s *Server) Handler() http.Handler {
	static, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // the directory is compiled in
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /events", s.events)
	mux.Handle("GET /style.css", http.FileServerFS(static))
	mux.Handle("GET /live.js", http.FileServerFS(static))
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }) // browsers ask
	return guarded(mux)
}

// guarded lets only those in who asked for this machine by a name of its own: a page
// of somebody else, whose name was made to lead here, must not read along.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy":      "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
			"Referrer-Policy":              "no-referrer",
			"Cache-Control":                "no-store",
		} {
			w.Header().Set(name, value)
		}
		if !loopback(r.Host) {
			http.Error(w, "this page is served under localhost and 127.0.0.1 only", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopback tells whether a Host header names this machine, with or without a port.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

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
