package runner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// A write of the object by somebody else costs no step, and the view is written all the same: who writes more often
// than a pass takes would keep it old for ever.
func TestViewFollowsTheState(t *testing.T) {
	b := newBench(t)
	b.atWork()
	worked, wrote := 0, 0
	b.work = func(ctx context.Context, _ *scope) (map[string]any, error) {
		worked++
		return map[string]any{"done": true}, b.annotate(ctx, "hello")
	}
	b.between(func(ctx context.Context, write string, send func() error) error {
		if write == "status" && wrote < 2 {
			wrote++
			if err := b.annotate(ctx, fmt.Sprint(wrote)); err != nil {
				return err
			}
		}
		return send()
	})
	want := []seen{
		{Phase: "Done", Held: []string{"thing"}, Writes: []string{"state", "status", "status", "status"}, Result: now},
		{Phase: "Done", Held: []string{"thing"}},
	}
	if diff := cmp.Diff(want, []seen{b.see(), b.see()}); diff != "" || worked != 1 {
		t.Errorf("worked %d times; passes (-want +got):\n%s", worked, diff)
	}
	if got := b.shown(); got.Status.Phase != "Done" || got.Status.Machine.Phase != "Done" || got.Annotations["somebody"] != "2" {
		t.Errorf("the view shows %s and %s, want Done; annotations %v", got.Status.Phase, got.Status.Machine.Phase, got.Annotations)
	}
	if diff := cmp.Diff([]string{"Normal Worked Working → Done"}, b.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A view that lost a race is not written again where it is of an older state by now, or of another object: that
// would be older than what is there.
func TestOlderViewIsNotWrittenAgain(t *testing.T) {
	cases := map[string]struct {
		why       string
		meanwhile func(b *bench, ctx context.Context) error
		want      string
	}{
		"a newer state": {
			why: "another manager went on, and has shown so",
			meanwhile: func(b *bench, ctx context.Context) error {
				state := b.state()
				state.Status.Phase = "Leaving"
				shown := b.shown()
				shown.Status.Phase = "Leaving"
				return errors.Join(b.outside.Update(ctx, state), b.outside.Status().Update(ctx, shown))
			},
			want: "Leaving",
		},
		"another object": {
			why: "one of the same name was created",
			meanwhile: func(b *bench, ctx context.Context) error {
				again := &errand{}
				again.Name, again.Spec.Type = b.name, b.shown().Spec.Type
				return errors.Join(b.remove(ctx), b.outside.Create(ctx, again))
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.atWork()
			b.between(func(ctx context.Context, write string, send func() error) error {
				if write == "status" {
					if err := c.meanwhile(b, ctx); err != nil {
						return err
					}
				}
				return send()
			})
			if got, err := b.pass(); err != nil || got != now {
				t.Errorf("the pass: got %v, %v, want that another one follows", got, err)
			}
			if diff := cmp.Diff([]string{"state", "status"}, b.written()); diff != "" {
				t.Errorf("%s: writes (-want +got):\n%s", c.why, diff)
			}
			if got := b.shown().Status.Phase; got != c.want {
				t.Errorf("%s: the view shows %q, want %q", c.why, got, c.want)
			}
		})
	}
}

// Who may write the status of an object may not decide by it: it is a view, and repaired.
func TestForgedViewIsRepaired(t *testing.T) {
	b := newBench(t)
	b.passTo("Done")
	b.see()
	right := b.shown().Status
	forged := b.shown()
	forged.Status.Machine.Phase, forged.Status.Machine.Held = "Deleted", nil
	forged.Status.DatastoreLockedAt = &metav1.Time{Time: noon}
	if err := b.outside.Status().Update(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(seen{Phase: "Done", Held: []string{"thing"}, Writes: []string{"status"}}, b.see()); diff != "" {
		t.Errorf("the pass (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(right, b.shown().Status); diff != "" {
		t.Errorf("the view (-want +got):\n%s", diff)
	}
}

// What only the next pass needs is no line more for who reads the object.
func TestPhaseRevisionIsNotShown(t *testing.T) {
	b := newBench(t)
	b.passTo("Done")
	b.see()
	if state, shown := b.state().Status.PhaseRevision, b.shown().Status.Machine.PhaseRevision; state == "" || shown != "" {
		t.Errorf("the state has %q, want one; the view shows %q, want none", state, shown)
	}
	older := b.shown()
	older.Status.Machine.PhaseRevision = "of an older manager"
	if err := b.outside.Status().Update(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	want := []seen{{Phase: "Done", Held: []string{"thing"}, Writes: []string{"status"}}, {Phase: "Done", Held: []string{"thing"}}}
	if diff := cmp.Diff(want, []seen{b.see(), b.see()}); diff != "" {
		t.Errorf("the passes (-want +got):\n%s", diff)
	}
	if got := b.shown().Status.Machine.PhaseRevision; got != "" {
		t.Errorf("the view still shows %q", got)
	}
}

// A timeout says what the phase had been waiting for: what failed last, also by a manager that was just started.
func TestTimeoutSaysWhatFailed(t *testing.T) {
	cases := map[string]struct {
		why    string
		before func(b *bench)
		want   string
	}{
		"shown":   {"the status has what failed", func(*bench) {}, "no luck (attempt 1, next in 2s)"},
		"restart": {"nothing is in memory", func(b *bench) { b.restart() }, "no luck (attempt 1, next in 2s)"},
		"not shown": {"the status was lost, and the state has how often it failed", func(b *bench) {
			shown := b.shown()
			shown.Status = migrationv1.DatastoreMigrationStatus{}
			if err := b.outside.Status().Update(t.Context(), shown); err != nil {
				t.Fatal(err)
			}
		}, "step Work has failed 1 times in a row"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			utilruntime.Must(migrationv1.AddToScheme(scheme))
			utilruntime.Must(v1alpha1.AddToScheme(scheme))
			b := newBenchOn(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&errand{}).Build())
			b.atWork()
			b.work = answer(nil, errors.New("no luck"))
			timed := []string{"    - {is: Terminal, to: Leaving}\n", "    - {is: Terminal, to: Leaving}\n    timeout: {after: 1m, to: Leaving, reason: TooLate}\n"}
			b.edit(timed...)
			b.see()
			c.before(b)
			b.edit(timed...)
			b.clock.Step(time.Minute)
			b.see()
			if said := fmt.Sprint(b.told()); !strings.Contains(said, "Working lasted longer than 1m: "+c.want) {
				t.Errorf("%s: told %s, want %q", c.why, said, c.want)
			}
		})
	}
}
