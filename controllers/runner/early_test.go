package runner_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A wake-up in the middle of a backoff tries nothing and writes nothing, also for a manager that was just started.
func TestAnEarlyPassWritesNothing(t *testing.T) {
	b := newBench(t)
	b.atWork()
	worked := 0
	b.work = func(context.Context, *scope) (map[string]any, error) {
		worked++
		return nil, errors.New("no luck")
	}
	b.see()
	before := b.shown()
	for i := range 12 {
		b.clock.Step(40 * time.Millisecond)
		if i == 6 {
			b.restart()
		}
		got := b.see()
		if len(got.Writes) > 0 || got.Result.RequeueAfter <= 0 || got.Result.RequeueAfter > 2*time.Second {
			t.Errorf("an early pass writes %v, and comes again after %s", got.Writes, got.Result.RequeueAfter)
		}
	}
	if diff := cmp.Diff(before, b.shown()); diff != "" || worked != 1 {
		t.Errorf("worked %d times (-before +after):\n%s", worked, diff)
	}
	b.clock.Step(2 * time.Second)
	b.see()
	if n := b.state().Status.Attempts; worked != 2 || n != 2 {
		t.Errorf("worked %d times, attempts %d after the backoff", worked, n)
	}
}
