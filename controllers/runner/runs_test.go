package runner_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newBenchOfRuns is a bench whose passes go on after a commit, as those of a manager.
func newBenchOfRuns(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.MaxRuns = 0
	return b
}

// What a life costs where each commit is followed by a run: each phase is on the view before anything is done in its
// name, and otherwise the view waits for the end.
func TestAPassGoesOnAfterACommit(t *testing.T) {
	b := newBenchOfRuns(t)
	held := []string{"thing"}
	life := []seen{b.see(), b.see()}
	if err := b.outside.Delete(t.Context(), b.stored()); err != nil {
		t.Fatal(err)
	}
	life = append(life, b.see(), b.see())
	want := []seen{
		{Phase: "Done", Held: held, Writes: []string{
			"state", "object", // New, and the finalizer
			"state", "status", // Working
			"state",           // the ledger
			"state", "status", // Done
		}},
		{Phase: "Done", Held: held},
		{Writes: []string{
			"state", "status", // Leaving
			"state", // released
			"state", // Gone
			"object", "drop",
		}, Result: now},
		{},
	}
	if diff := cmp.Diff(want, life); diff != "" {
		t.Errorf("passes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wholeLife, b.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Whatever others do to the object between a commit and the deed that follows it is seen before the deed.
func TestNothingIsDoneForAnObjectThatHasChanged(t *testing.T) {
	cases := map[string]struct {
		why       string
		meanwhile func(ctx context.Context, b *bench) error
		first     seen
		then      string
	}{
		"deletion": {
			why:       "what is on record and was never taken need not be taken any more",
			meanwhile: func(ctx context.Context, b *bench) error { return b.outside.Delete(ctx, b.stored()) },
			first:     seen{Phase: "Working", Held: []string{"thing"}, Writes: []string{"state", "object", "state", "status", "state"}, Result: now},
			then:      "Deleted",
		},
		"annotation": {
			why:       "a guard may read it",
			meanwhile: func(ctx context.Context, b *bench) error { return b.annotate(ctx, "hello") },
			first:     seen{Phase: "Working", Held: []string{"thing"}, Writes: []string{"state", "object", "state", "status", "state"}, Result: now},
			then:      "Done",
		},
		"another object": {
			why:       "one of the same name was created",
			meanwhile: func(ctx context.Context, b *bench) error { return b.remove(ctx) },
			first:     seen{Phase: "Working", Held: []string{"thing"}, Writes: []string{"state", "object", "state", "status", "state"}, Result: now},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBenchOfRuns(t)
			taken, ledgers := 0, 0
			b.take = func(context.Context, *scope) (map[string]any, error) {
				taken++
				return nil, nil
			}
			b.between(func(ctx context.Context, write string, send func() error) error {
				err := send()
				if ledgers++; write == "state" && ledgers == 5 { // the ledger of thing
					err = errors.Join(err, c.meanwhile(ctx, b))
				}
				return err
			})
			if diff := cmp.Diff(c.first, b.see()); diff != "" || taken != 0 {
				t.Errorf("%s: taken %d times; the pass (-want +got):\n%s", c.why, taken, diff)
			}
			b.between(nil)
			if c.then == "" {
				return
			}
			b.see()
			if state := b.state(); c.then == "Deleted" && state != nil || c.then != "Deleted" && state.Status.Phase != c.then {
				t.Errorf("%s: the next pass leaves %+v, want %s", c.why, state, c.then)
			}
		})
	}
}

// A pass that cannot go on has shown what it stored: nobody would know where the object is, or why.
func TestTheViewCatchesUp(t *testing.T) {
	refused := errors.New("a webhook says no")
	b := newBenchOfRuns(t)
	b.between(func(_ context.Context, write string, send func() error) error {
		if write == "object" {
			return refused
		}
		return send()
	})
	if _, err := b.pass(); !errors.Is(err, refused) {
		t.Errorf("the pass: %v", err)
	}
	if diff := cmp.Diff([]string{"state", "object", "status"}, b.written()); diff != "" || b.shown().Status.Phase != "New" {
		t.Errorf("the view shows %q; writes (-want +got):\n%s", b.shown().Status.Phase, diff)
	}
	b.between(nil)
	b.MaxRuns = 2 // as if 32 were over
	want := []seen{
		{Phase: "Working", Writes: []string{"object", "state", "status"}, Result: now},
		{Phase: "Done", Held: []string{"thing"}, Writes: []string{"state", "state", "status"}, Result: now},
		{Phase: "Done", Held: []string{"thing"}},
	}
	if diff := cmp.Diff(want, []seen{b.see(), b.see(), b.see()}); diff != "" {
		t.Errorf("passes (-want +got):\n%s", diff)
	}
}

// What an action reports is shown when it is old, not at each commit; what it has saved is kept for the next one.
func TestReportsWaitForTheEndOfThePass(t *testing.T) {
	b := newBenchOfRuns(t)
	b.take = func(ctx context.Context, s *scope) (map[string]any, error) {
		s.Report(migrated(7))
		return nil, s.Save(ctx, "note", "taken")
	}
	saved := ""
	b.work = func(_ context.Context, s *scope) (map[string]any, error) {
		saved = s.Saved("note")
		return map[string]any{"done": true}, nil
	}
	b.see()
	if p := b.shown().Status.Progress; p == nil || p.Migrated != 7 || saved != "taken" || string(b.state().Status.Saved["note"]) != "taken" {
		t.Errorf("the view shows progress %v; saved %q, on record %q", p, saved, b.state().Status.Saved["note"])
	}
}

// An object that somebody else keeps shows its end: nobody drives it any more.
func TestTheEndIsShownOnAnObjectThatStays(t *testing.T) {
	b := newBenchOfRuns(t)
	b.see()
	if err := b.merge(t.Context(), `{"metadata":{"finalizers":["`+finalizer+`","somebody.example/else"]}}`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.merge(context.Background(), `{"metadata":{"finalizers":null}}`); err != nil {
			t.Error(err)
		}
	})
	if err := b.outside.Delete(t.Context(), b.stored()); err != nil {
		t.Fatal(err)
	}
	want := []string{"state", "status", "state", "state", "status", "object", "drop"}
	if diff := cmp.Diff(want, b.see().Writes); diff != "" || b.shown().Status.Phase != "Deleted" {
		t.Errorf("the view shows %q; writes (-want +got):\n%s", b.shown().Status.Phase, diff)
	}
}
