package relay

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// pingEvery is how old the answer of Health may be, and pingAgain how old a bad one.
	pingEvery, pingAgain = 10 * time.Second, 2 * time.Second
	// pingTimeout is how long the server may take to say anything at all.
	pingTimeout = 3 * time.Second
)

// Run asks the server now and then whether it is there, and when a call came to
// nothing, until ctx is done. The error is always nil.
func (p *Relay) Run(ctx context.Context) error {
	for {
		pause, wake := pingAgain, (chan struct{})(nil)
		if p.ping(ctx) {
			pause, wake = pingEvery, p.wake
		}
		p.lookForBackends(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-time.After(pause):
		}
	}
}

// lookForBackends follows their number. Where that cannot be asked it is taken to be as it was.
func (p *Relay) lookForBackends(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, _ = p.backends.look(ctx)
}

// ping is good with every answer but one that says that the server is broken:
// there need not be anything at the root.
func (p *Relay) ping(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	began := time.Now()
	said := ""
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.target.String(), nil)
	if err == nil {
		var answer *http.Response
		if answer, err = p.proxy.Transport.RoundTrip(r); err == nil {
			defer answer.Body.Close()
			if answer.StatusCode >= http.StatusInternalServerError {
				said = "GET / was answered with " + answer.Status
			}
		}
	}
	if err != nil {
		said = fmt.Sprintf("no answer from %s: %v", p.target.Host, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ok, p.said, p.at, p.took = said == "", said, began, time.Since(began)
	return p.ok
}

// Health tells whether the server answered the last time, or what came instead.
func (p *Relay) Health() (ok bool, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ok, p.said
}

// LastPing is when that was, and how long the answer took.
func (p *Relay) LastPing() (at time.Time, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at, p.took
}
