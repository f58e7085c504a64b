package front

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
)

const (
	// readHeader is how long a client may take to say what it wants.
	readHeader = 10 * time.Second
	// idle is how long a connection is kept that nobody uses.
	idle = 2 * time.Minute
	// Drain is how long calls under way are waited for at the end. A pod has 30 s.
	Drain = 20 * time.Second
	// maxHeader is how long the header of a request may be, in bytes.
	maxHeader = 32 << 10
	// maxConns is how many connections there may be, and maxRequests how many
	// requests but those of probes.
	maxConns, maxRequests = 4096, 4032
)

// Serve serves clients on listener until ctx is done, then accepts no more, waits
// for calls under way for up to drain, and cuts the rest. cutStreams says that a
// GET is a stream of news only, which ends at once: its client opens it elsewhere.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, cutStreams bool, drain time.Duration) error {
	if cutStreams {
		handler = endStreams(ctx, handler)
	}
	server := &http.Server{
		Handler: limit.Time(handler), ReadHeaderTimeout: readHeader, IdleTimeout: idle, MaxHeaderBytes: maxHeader,
		WriteTimeout: limit.WriteTime, // for answers that are not a handler's, limit.Time is for the others
		ConnState:    limit.NewConns(maxConns).State,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := server.Shutdown(within); errors.Is(err, context.DeadlineExceeded) {
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
