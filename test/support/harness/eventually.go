package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// pollEvery is short against everything that is waited for, and long against a
// request to a local API server. After a longer wait pollLater is short enough: a look is
// often two requests, and their answers are up to a tenth of what the servers compute.
const (
	pollEvery = 25 * time.Millisecond
	pollLater = 100 * time.Millisecond
)

// nextPoll is the time between two looks: a twentieth of the wait until now, within these limits.
func nextPoll(waited time.Duration) time.Duration {
	return min(max(waited/20, pollEvery), pollLater)
}

// permanent marks an error that no waiting will cure.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks an error that ends the waiting at once.
func Permanent(err error) error { return permanent{err} }

// Await calls met until it returns nil, at once and then every 25 ms, which become 100 ms in the
// course of two seconds. The error tells what was waited for and why met was not satisfied the last time; it comes
// after timeout, when ctx is done, or when met's error is Permanent.
func Await(ctx context.Context, what string, timeout time.Duration, met func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	begun := time.Now()
	var reason error
	for {
		err := met(limited)
		if err == nil {
			if took := time.Since(begun); took > longWait {
				Cost{What: "wait for " + what, Took: took}.Write()
			}
			return nil
		}
		// A call cut off by the timeout tells less than the one before it.
		if reason == nil || limited.Err() == nil {
			reason = err
		}
		var final permanent
		if errors.As(err, &final) {
			return fmt.Errorf("waited for %s: will not happen, seen after %s: %w", what, since(begun), err)
		}
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("waited for %s: given up after %s (%w): %w", what, since(begun), context.Cause(ctx), reason)
			}
			return fmt.Errorf("waited for %s: not within %s: %w", what, timeout, reason)
		case <-time.After(nextPoll(time.Since(begun))):
		}
	}
}

func since(begun time.Time) time.Duration { return time.Since(begun).Round(time.Millisecond) }

// Patience is how long a test waits for what has to come. It is no claim about how long that takes: machines are busy,
// some are five times slower than others, and only a failure costs that long. But it is shorter than the five minutes
// after which the machine of MCP servers looks again: what a watch must bring does not come of a poll.
const Patience = 4 * time.Minute

// Eventually is Await for a test, with Patience; it ends the test if the wait was in vain.
func Eventually(t testing.TB, what string, met func() error) {
	t.Helper()
	if err := Await(t.Context(), what, Patience, func(context.Context) error { return met() }); err != nil {
		t.Fatal(err)
	}
}
