// Package health answers probes: is this process wedged, can it do its work. It
// knows how an answer looks, and nothing of what is asked.
package health

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Check is one line of an answer. Ask answers with a note for people, or why not;
// it is asked by any number of probes at a time, and must not take long.
type Check struct {
	Name string
	Ask  func(context.Context) (note string, err error)
}

// Handler answers 200 when all checks pass and 503 when one does not. With
// ?verbose, and whenever one fails, each has a line as Kubernetes writes it.
func Handler(checks ...Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var lines strings.Builder
		failed := false
		for _, check := range checks {
			note, err := check.Ask(req.Context())
			if err != nil {
				failed = true
				fmt.Fprintf(&lines, "[-]%s failed: %v\n", check.Name, err)
				continue
			}
			if note != "" {
				note = ": " + note
			}
			fmt.Fprintf(&lines, "[+]%s ok%s\n", check.Name, note)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		text := "ok"
		if failed || req.URL.Query().Has("verbose") {
			text = lines.String()
		}
		if failed {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, text)
	})
}

// Kept asks at most once in each period, however many probes come, and answers the
// others with what it heard. Those that come meanwhile wait for the answer.
func Kept(period time.Duration, ask func(context.Context) (string, error)) func(context.Context) (string, error) {
	var (
		mu   sync.Mutex
		last time.Time
		note string
		err  error
	)
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if last.IsZero() || time.Since(last) >= period {
			// Not the probe's own context: one that hangs up must not spoil the
			// answer of the others.
			note, err = ask(context.WithoutCancel(ctx))
			last = time.Now()
		}
		return note, err
	}
}

// Pulse tells whether a loop still goes round. The zero value is a loop that has
// not begun.
type Pulse struct{ last atomic.Pointer[time.Time] }

// Beat is called by the loop each time round.
func (p *Pulse) Beat() {
	p.last.Store(new(time.Now()))
}

// Within fails when the last beat is longer ago than limit. A loop that has not
// begun is not wedged.
func (p *Pulse) Within(limit time.Duration) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		last := p.last.Load()
		if last == nil {
			return "not begun", nil
		}
		if silent := time.Since(*last); silent > limit {
			return "", fmt.Errorf("no sign of life for %s, at most %s are usual: the process must be started anew", silent.Round(time.Second), limit)
		}
		return "", nil
	}
}
