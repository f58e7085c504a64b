package runner_test

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A step is done once, whatever the API server answers to the write of its outcome: it may be the copying of
// everything, under a lock.
func TestStepIsNotDoneAgainForItsStatus(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "errands"}, "e", errors.New("the object has been modified"))
	lose := func(send func() error) error { return errors.Join(send(), syscall.ECONNRESET) }
	refuse := func(err error) func(func() error) error { return func(func() error) error { return err } }
	twice, once := []string{"state", "state", "status"}, []string{"state", "status"}
	cases := map[string]struct {
		why    string
		answer func(send func() error) error
		writes []string
	}{
		"lost":              {why: "it is stored, as a look shows", answer: lose, writes: once},
		"an error":          {why: "the server may have it better in a moment", answer: refuse(apierrors.NewInternalError(errors.New("no quorum"))), writes: twice},
		"a needless no":     {why: "nobody has written in between", answer: refuse(conflict), writes: twice},
		"lost, then denied": {why: "client-go sends again by itself, and meets its own write", answer: func(send func() error) error { return errors.Join(send(), conflict) }, writes: once},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.atWork()
			worked := 0
			b.work = func(context.Context, *scope) (map[string]any, error) {
				worked++
				return map[string]any{"done": true}, nil
			}
			first := true
			b.between(func(_ context.Context, _ string, send func() error) error {
				if !first {
					return send()
				}
				first = false
				return c.answer(send)
			})
			want := seen{Phase: "Done", Held: []string{"thing"}, Writes: c.writes, Result: now}
			if diff := cmp.Diff(want, b.see()); diff != "" || worked != 1 {
				t.Errorf("%s: worked %d times; the pass (-want +got):\n%s", c.why, worked, diff)
			}
			if diff := cmp.Diff([]string{"Normal Worked Working → Done"}, b.told()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// The answer to a write of progress may be lost, too: what the action finds then, or the pass that writes its
// outcome, is its own.
func TestLostProgressIsNotSomebodyElse(t *testing.T) {
	cases := map[string]struct {
		why   string
		ticks int32
	}{
		"the first of three": {why: "the next progress meets it", ticks: 3},
		"the last":           {why: "the outcome meets it", ticks: 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.atWork()
			worked := 0
			b.work = func(ctx context.Context, s *scope) (map[string]any, error) {
				worked++
				for second := range c.ticks {
					s.Report(migrated(second + 1))
					if err := errors.Join(b.tick(ctx), b.awaitMigrated(ctx, second+1)); err != nil {
						return nil, err
					}
				}
				return map[string]any{"done": true}, nil
			}
			first := true
			b.between(func(_ context.Context, _ string, send func() error) error {
				if err := send(); err != nil || !first {
					return err
				}
				first = false
				return syscall.ECONNRESET
			})
			b.see()
			if got := b.stored().Status; worked != 1 || got.Progress.Migrated != c.ticks || got.Machine.StepIndex != 2 {
				t.Errorf("%s: worked %d times; progress %d, stepIndex %d after the action, want once, %d and 2", c.why, worked, got.Progress.Migrated, got.Machine.StepIndex, c.ticks)
			}
		})
	}
}
