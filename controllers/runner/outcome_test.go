package runner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/fsm"
)

// answered is what an object, its Events and the metrics tell of one answer of Work.
type answered struct {
	Phase    string
	Attempts int32
	After    time.Duration
	Events   []string
	Errors   map[string]float64
}

func TestOutcomeOfAnAction(t *testing.T) {
	resource := schema.GroupResource{Resource: "things"}
	none := map[string]float64{}
	cases := map[string]struct {
		why  string
		err  error
		want answered
	}{
		"plain error": {
			why: "one that nobody foresaw is worth another try", err: errors.New("sand in the gears"),
			want: answered{Phase: "Working", Attempts: 1, After: 2 * time.Second,
				Events: []string{"Warning StepFailed Work: sand in the gears"}, Errors: map[string]float64{"Work Unavailable": 1}},
		},
		"not yet": {
			why: "nothing is wrong: the poll interval, no event, no attempt", err: fsm.Wait("the paint is wet"),
			want: answered{Phase: "Working", After: 7 * time.Second, Errors: none},
		},
		"not yet, wrapped": {
			why: "context added on the way does not make a wait a failure", err: fmt.Errorf("paint: %w", fsm.Wait("it is wet")),
			want: answered{Phase: "Working", After: 7 * time.Second, Errors: none},
		},
		"terminal": {
			why: "the action knows that no try can help; the file says where to go", err: fsm.Terminal("Broken", "it is broken"),
			want: answered{Phase: "Leaving", After: time.Nanosecond,
				Events: []string{"Warning Broken Working → Leaving: it is broken"},
				Errors: map[string]float64{"Work Terminal": 1}},
		},
		"refusal of the server": {
			why: "rights can be given while we wait", err: apierrors.NewForbidden(resource, "a", errors.New("no")),
			want: answered{Phase: "Working", Attempts: 1, After: 2 * time.Second,
				Events: []string{`Warning StepFailed Work: things "a" is forbidden: no`}, Errors: map[string]float64{"Work Forbidden": 1}},
		},
		"patience asked for": {
			why: "Retry-After is longer than the backoff", err: apierrors.NewTooManyRequests("busy", 9),
			want: answered{Phase: "Working", Attempts: 1, After: 9 * time.Second,
				Events: []string{"Warning StepFailed Work: busy"}, Errors: map[string]float64{"Work Throttled": 1}},
		},
		"conflict on another object": {
			why: "only a conflict on the object itself means that the pass is void", err: apierrors.NewConflict(resource, "a", errors.New("old")),
			want: answered{Phase: "Working", Attempts: 1, After: 2 * time.Second,
				Events: []string{`Warning StepFailed Work: Operation cannot be fulfilled on things "a": old`}, Errors: map[string]float64{"Work Conflict": 1}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.atWork()
			b.work = answer(nil, c.err)
			result, err := b.pass()
			if err != nil {
				t.Fatal(err)
			}
			machine := b.stored().Status.Machine
			got := answered{machine.Phase, machine.Attempts, exact(result.RequeueAfter), b.told(), b.metrics("phasegate_step_errors_total")}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// exact takes the jitter away, of which the machine here has next to none. A
// pass that follows at once keeps its nanosecond.
func exact(d time.Duration) time.Duration {
	if d < time.Second {
		return d
	}
	return d.Round(100 * time.Millisecond)
}

func TestRepeatedFailureIsToldOnceAndBacksOff(t *testing.T) {
	b := newBench(t)
	b.atWork()
	b.work = answer(nil, errors.New("sand"))
	var delays []time.Duration
	for range 8 {
		delay := b.see().Result.RequeueAfter
		delays = append(delays, exact(delay))
		b.clock.Step(delay)
	}
	want := []time.Duration{2e9, 4e9, 8e9, 16e9, 32e9, 60e9, 60e9, 60e9}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Warning StepFailed Work: sand"}, b.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{"Work": 8}, b.metrics("phasegate_step_retries_total")); diff != "" {
		t.Errorf("retries (-want +got):\n%s", diff)
	}
}

// A manager that is told to stop leaves everything to its successor.
func TestShutdownWritesNothing(t *testing.T) {
	b := newBench(t)
	b.atWork()
	ctx, stop := context.WithCancel(t.Context())
	b.work = func(ctx context.Context, s *scope) (map[string]any, error) {
		s.Report(migrated(3))
		stop()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	before := b.stored()
	_, err := b.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: b.name}})
	if err != nil {
		t.Errorf("got %v, which would be logged as an error at each shutdown", err)
	}
	if diff := cmp.Diff(before, b.stored()); diff != "" {
		t.Errorf("the object was written (-before +after):\n%s", diff)
	}
	if got := append(b.told(), b.written()...); len(got) > 0 {
		t.Errorf("told or written at a shutdown: %v", got)
	}
}

// The API server refuses an event whose note is longer than 1,024 bytes, and
// nobody would learn of the very failure that has the most to tell.
func TestNotesOfEventsAreBounded(t *testing.T) {
	b := newBench(t)
	b.atWork()
	b.work = answer(nil, errors.New(strings.Repeat("€", 2000)))
	b.see()
	told := b.told()
	if len(told) != 1 {
		t.Fatalf("events %v, want one", told)
	}
	note := strings.TrimPrefix(told[0], "Warning StepFailed ")
	if len(note) > 1024 || len(note) < 1000 || !strings.HasPrefix(note, "Work: €€") || strings.ContainsRune(note, '\uFFFD') {
		t.Errorf("a note of %d bytes: %.40s…", len(note), note)
	}
}
