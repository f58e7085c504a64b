package front

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

const (
	// readHeader is how long a client may take to say what it wants.
	readHeader = 10 * time.Second
	// idle is how long a connection is kept that nobody uses.
	idle = 2 * time.Minute
	// Drain is how long calls under way are waited for at the end. A pod has 30 s.
	Drain = 20 * time.Second
)

// Serve serves clients on listener until ctx is done, then accepts no more, waits
// for calls under way for up to drain, and cuts the rest. cutStreams says that a
// GET is a stream of news only, which ends at once: its client opens it elsewhere.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, cutStreams bool, drain time.Duration) error {
	if cutStreams {
		handler = endStreams(ctx, handler)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: readHeader, IdleTimeout: idle}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := server.Shutdown(limit); errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	} else if err != nil {
		return err
	}
	return nil
}

// endStreams ends GET requests with ctx.
func endStreams(ctx context.Context, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			own, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			r = r.WithContext(own)
		}
		handler.ServeHTTP(w, r)
	})
}
