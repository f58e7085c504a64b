package runner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/harness"
)

// migrated sets the field that these tests use for progress.
func migrated(n int32) func(*errand) {
	return func(o *errand) { o.Status.Progress = &migrationv1.Progress{Migrated: n} }
}

// awaitMigrated waits until others can see the progress.
func (b *bench) awaitMigrated(ctx context.Context, n int32) error {
	return harness.Await(ctx, fmt.Sprintf("progress %d", n), harness.Patience, func(context.Context) error {
		if p := b.stored().Status.Progress; p == nil || p.Migrated != n {
			return fmt.Errorf("progress is %v", p)
		}
		return nil
	})
}

// Progress is written by the clock, not by the number of reports, and our own
// writes are not taken for those of others.
func TestProgressIsPublishedOnceASecond(t *testing.T) {
	b := newBench(t)
	b.atWork()
	b.work = func(ctx context.Context, s *scope) (map[string]any, error) {
		for second := range int32(3) {
			for i := range int32(100) {
				s.Report(migrated(second*100 + i))
			}
			if err := errors.Join(b.tick(ctx), b.awaitMigrated(ctx, second*100+99)); err != nil {
				return nil, err
			}
		}
		s.Report(migrated(1000))
		return map[string]any{"done": true}, nil
	}
	// The step was a long one, so its end is made durable by itself.
	want := seen{Phase: "Working", Held: []string{"thing"}, Writes: []string{"status", "status", "status", "state", "status"}, Result: now}
	if diff := cmp.Diff(want, b.see()); diff != "" {
		t.Errorf("the pass (-want +got):\n%s", diff)
	}
	if got := b.stored().Status; got.Progress.Migrated != 1000 || got.Machine.StepIndex != 2 {
		t.Errorf("progress %d, stepIndex %d after the action, want 1000 and 2", got.Progress.Migrated, got.Machine.StepIndex)
	}
}

func TestNothingIsPublishedWithoutNews(t *testing.T) {
	b := newBench(t)
	b.atWork()
	b.work = func(ctx context.Context, _ *scope) (map[string]any, error) {
		return map[string]any{"done": true}, errors.Join(b.tick(ctx), b.tick(ctx))
	}
	// The first shows the ledger, the second makes the end of a long step durable.
	if diff := cmp.Diff([]string{"status", "state"}, b.see().Writes); diff != "" {
		t.Errorf("writes of a pass whose action reported nothing (-want +got):\n%s", diff)
	}
}

// A step that waits is called again and again, and may take long each time: meanwhile the status tells why it waits.
func TestLongCallOfAWaitingStepLeavesTheStatus(t *testing.T) {
	b := newBench(t)
	b.edit("- {action: Work}", "- {action: Work, until: 'result.done'}")
	b.atWork()
	b.work = answer(map[string]any{"done": false, "seen": "nothing"}, nil)
	b.see()
	before := b.shown().Status
	if len(before.Machine.Blocked) == 0 || before.Machine.OnDelete == nil || before.Machine.Result == "" {
		t.Fatalf("the status of a step that waits: %+v", before.Machine)
	}
	b.work = func(ctx context.Context, _ *scope) (map[string]any, error) {
		err := errors.Join(b.tick(ctx), b.tick(ctx))
		if diff := cmp.Diff(before, b.shown().Status); diff != "" {
			t.Errorf("during the next call (-want +got):\n%s", diff)
		}
		return map[string]any{"done": false, "seen": "nothing"}, err
	}
	if writes := b.see().Writes; len(writes) > 0 {
		t.Errorf("nothing has changed, and it wrote %v", writes)
	}
}

// A long action ends when the object is not the one any more that it was started
// for, and whatever it answers then is dropped.
func TestLongActionEndsWhenTheObjectMoves(t *testing.T) {
	cases := map[string]struct {
		why  string
		move func(ctx context.Context, b *bench) error
		then string
	}{
		"deletion": {
			why:  "a person who aborts must not wait for the end of a copy",
			move: func(ctx context.Context, b *bench) error { return b.outside.Delete(ctx, b.stored()) },
			then: "Leaving",
		},
		"finalizer": {
			why:  "what needs undoing is not done without one",
			move: func(ctx context.Context, b *bench) error { return b.merge(ctx, `{"metadata":{"finalizers":null}}`) },
			then: "Working",
		},
		"what the step reads": {
			why: "its parameters are others now",
			move: func(ctx context.Context, b *bench) error {
				return b.merge(ctx, `{"metadata":{"annotations":{"say":"else"}}}`)
			},
			then: "Done",
		},
		"another manager": {
			why:  "one of them has to drop its pass",
			then: "Done",
			move: func(ctx context.Context, b *bench) error {
				return errors.Join(b.anotherManager(ctx), b.annotate(ctx, "as its view does"))
			},
		},
		"end": {
			why:  "nothing can be done in the name of an object that is gone; its state tells what is left",
			then: "Working",
			move: func(ctx context.Context, b *bench) error { return b.remove(ctx) },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.edit("- {action: Work}", `- {action: Work, with: {say: '${self.metadata.?annotations[?"say"].orValue("")}'}}`)
			b.atWork()
			var cause error
			b.work = func(ctx context.Context, s *scope) (map[string]any, error) {
				if err := errors.Join(c.move(ctx, b), b.tick(ctx)); err != nil {
					return nil, err
				}
				<-ctx.Done()
				cause = context.Cause(ctx)
				s.Report(migrated(5))
				return map[string]any{"done": true}, nil // done all the same, and dropped
			}
			got := b.see()
			if len(got.Writes) > 0 || got.Result != now {
				t.Errorf("%s: writes %v, result %v, want none and an immediate next pass", c.why, got.Writes, got.Result)
			}
			if cause == nil || errors.Is(cause, context.Canceled) {
				t.Errorf("the action was told %v, want why it was stopped", cause)
			}
			b.work = answer(map[string]any{"done": true}, nil)
			if got := b.see().Phase; got != c.then {
				t.Errorf("the next pass leads to %q, want %q: %s", got, c.then, c.why)
			}
			if told := strings.Join(b.told(), "\n"); strings.Contains(told, "StepFailed") {
				t.Errorf("a pass that was dropped is told as a failure:\n%s", told)
			}
		})
	}
}

// What others write into the object, and however often, does not keep a long action from its end, and what it
// came to is stored. They are first at every write of the state, and at every other one of the status.
func TestForeignWritesDoNotEndALongAction(t *testing.T) {
	b := newBench(t)
	b.atWork()
	var tries atomic.Int32
	b.between(func(ctx context.Context, write string, send func() error) error {
		if n := tries.Add(1); write == "state" || n%2 == 1 {
			body := fmt.Sprintf(`{"metadata":{"annotations":{"somebody":"%d"},"labels":{"somebody":"%d"}}}`, n, n)
			if err := b.merge(ctx, body); err != nil {
				return err
			}
		}
		return send()
	})
	worked := 0
	b.work = func(ctx context.Context, s *scope) (map[string]any, error) {
		worked++
		for second := range int32(4) {
			s.Report(migrated(second + 1))
			if err := b.tick(ctx); err != nil {
				return nil, err
			}
		}
		return map[string]any{"done": true}, s.Save(ctx, "saved", "it")
	}
	type end struct {
		Phase, Shown, Result, Saved string
		StepIndex                   int32
		Progress                    *migrationv1.Progress
		Worked                      int
	}
	ended := func() end {
		st, shown := b.state().Status, b.shown()
		return end{st.Phase, shown.Status.Phase, st.Result, string(st.Saved["saved"]), st.StepIndex, shown.Status.Progress, worked}
	}
	if result, err := b.pass(); err != nil || result != now {
		t.Errorf("the pass: %+v, %v", result, err)
	}
	all := &migrationv1.Progress{Migrated: 4}
	if diff := cmp.Diff(end{"Working", "Working", `{"done":true}`, "it", 2, all, 1}, ended()); diff != "" {
		t.Errorf("it is done once, and stored (-want +got):\n%s", diff)
	}
	b.see()
	if diff := cmp.Diff(end{"Done", "Done", "", "it", 0, all, 1}, ended()); diff != "" {
		t.Errorf("the pass after it (-want +got):\n%s", diff)
	}
}

// Progress that is on its way when the action ends must arrive before the pass's
// own write is made: if its answer were dropped, that write would be lost to ours.
func TestActionEndsWhileProgressIsOnItsWay(t *testing.T) {
	b := newBench(t)
	b.atWork()
	sent, ended := make(chan struct{}), make(chan struct{})
	b.work = func(ctx context.Context, s *scope) (map[string]any, error) {
		context.AfterFunc(ctx, func() { close(ended) })
		s.Report(migrated(1))
		err := b.tick(ctx)
		<-sent
		return map[string]any{"done": true}, err
	}
	first := true
	b.between(func(ctx context.Context, _ string, send func() error) error {
		if !first {
			return send()
		}
		first = false
		err := send()
		close(sent)
		<-ended
		return errors.Join(err, ctx.Err()) // a client drops the answer when its context has ended
	})
	got := b.see()
	if got.Phase == "Working" && b.stored().Status.Machine.StepIndex != 2 {
		t.Errorf("the outcome was dropped: our own progress was taken for a write of somebody else (%+v)", got)
	}
}

// All workers of a copy report: one slow status write must not stop them all.
func TestReportDoesNotWaitForTheAPIServer(t *testing.T) {
	b := newBench(t)
	b.atWork()
	sent, reported := make(chan struct{}), make(chan struct{})
	b.work = func(ctx context.Context, s *scope) (map[string]any, error) {
		s.Report(migrated(1))
		err := b.tick(ctx)
		<-sent
		s.Report(migrated(2))
		close(reported)
		return map[string]any{"done": true}, err
	}
	first, waited := true, false
	b.between(func(_ context.Context, _ string, send func() error) error {
		if first {
			first = false
			close(sent)
			select {
			case <-reported:
			case <-time.After(harness.Patience):
				waited = true
			}
		}
		return send()
	})
	b.see()
	if waited {
		t.Error("the action waited for the progress to be written")
	}
	if got := b.stored().Status.Progress.Migrated; got != 2 {
		t.Errorf("progress %d is stored, want 2: what was reported during the write", got)
	}
}

// Everything that an action may do at once, with the publisher at work; it is the
// race detector that judges.
func TestScopeIsSafeForManyWorkers(t *testing.T) {
	b := newBench(t)
	b.atWork()
	b.work = func(ctx context.Context, s *scope) (map[string]any, error) {
		var group sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			group.Go(func() {
				for j := range 20 {
					s.Report(migrated(int32(j)))
					_ = len(s.Object.Status.Conditions) + len(s.Object.UID)
				}
				errs[i] = s.Save(ctx, fmt.Sprintf("worker-%d", i), "done")
			})
		}
		err := errors.Join(b.tick(ctx), b.tick(ctx))
		group.Wait()
		return map[string]any{"done": true}, errors.Join(append(errs, err)...)
	}
	if got := b.see(); got.Result != now {
		t.Errorf("the pass ended with %+v", got)
	}
	for i := range 4 {
		if got := b.state().Status.Saved[fmt.Sprintf("worker-%d", i)]; got != "done" {
			t.Errorf("worker %d has saved %q, want done", i, got)
		}
	}
}
