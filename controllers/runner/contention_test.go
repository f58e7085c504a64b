package runner_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

// Another controller that answers each of our writes with its own would be answered for ever.
func TestAnotherControllerIsLeftAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		why       string
		contended bool
		// holds: it has acquired an effect.
		holds bool
		// every is at which of our looks the other one writes, and calls how many there are, pace apart; 0: a second.
		every, calls int
		pace         time.Duration
		// atLeast and atMost are our writes.
		atLeast, atMost int
		told            string
	}{
		"it answers each write":   {why: "three answers, and one after each pause", contended: true, every: 1, calls: 600, atLeast: 4, atMost: 6, told: "drives this object as well"},
		"one write":               {why: "a person who tries what happens is corrected at once", contended: true, every: 1000, calls: 10, atLeast: 1, atMost: 1},
		"now and then":            {why: "what others write every quarter of an hour is corrected each time", contended: true, every: 90, calls: 900, pace: 10 * time.Second, atLeast: 10, atMost: 10},
		"it holds something":      {why: "a lock must not wait for anybody", contended: true, holds: true, every: 1, calls: 100, atLeast: 100, atMost: 110},
		"a kind that has no peer": {why: "no other project has a controller for it", every: 1, calls: 100, atLeast: 100, atMost: 110},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			utilruntime.Must(migrationv1.AddToScheme(scheme))
			utilruntime.Must(v1alpha1.AddToScheme(scheme))
			b := newBenchOn(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&errand{}).WithReturnManagedFields().Build())
			b.welcome = tc.holds
			program := *b.Program
			program.Contended = tc.contended
			r := &runner.Reconciler[*errand]{Client: b.Client, Machine: b.Machine, Program: &program, Clock: b.Clock, Random: b.Random, Metrics: b.Metrics,
				Recorder: events.NewFakeRecorder(10000)}
			for range 6 { // until it has nothing more to do
				b.passOf(r)
			}
			var ours int
			var said string
			for i := range tc.calls {
				if i%tc.every == 0 {
					obj := &errand{}
					obj.Name = b.name
					status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed","message":"theirs"}}`))
					if err := b.outside.Status().Patch(t.Context(), obj, status, client.FieldOwner("other")); err != nil {
						t.Fatal(err)
					}
				}
				b.clock.Step(max(tc.pace, time.Second))
				writes, _, more := b.passOf(r)
				ours, said = ours+writes, said+more
			}
			if ours < tc.atLeast || ours > tc.atMost || !strings.Contains(said, tc.told) {
				t.Errorf("%d writes, %d to %d are wanted (%s); events:\n%s", ours, tc.atLeast, tc.atMost, tc.why, said)
			}
		})
	}
}

// contendedBench is an object of a program whose objects other controllers may drive, too.
func contendedBench(t *testing.T) (*bench, *runner.Reconciler[*errand]) {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(migrationv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	b := newBenchOn(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&errand{}).WithReturnManagedFields().Build())
	b.edit("  effects:\n  - {name: thing, acquire: Take, release: Give}\n", "", "    - {action: Take}\n", "") // what is held is never left alone
	program := *b.Program
	program.Contended = true
	return b, &runner.Reconciler[*errand]{Client: b.Client, Machine: b.Machine, Program: &program, Clock: b.Clock, Random: b.Random, Metrics: b.Metrics,
		Recorder: events.NewFakeRecorder(10000)}
}

// forge is a status of somebody who may write statuses.
func (b *bench) forge(message string) {
	b.t.Helper()
	obj := &errand{}
	obj.Name = b.name
	status := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":"Failed","message":%q}}`, message))
	if err := b.outside.Status().Patch(b.t.Context(), obj, status, client.FieldOwner("kubectl-edit")); err != nil {
		b.t.Fatal(err)
	}
}

// A write that arrives, and whose answer does not, is ours.
func TestLostAnswersAreNoOtherController(t *testing.T) {
	b, r := contendedBench(t)
	tries := 0
	b.work = func(context.Context, *scope) (map[string]any, error) {
		tries++
		return nil, fsm.Wait("try %d", tries)
	}
	b.passes(r, 6)
	b.between(func(_ context.Context, write string, send func() error) error {
		if err := send(); err != nil || write != "status" {
			return err
		}
		return apierrs.NewTimeoutError("the answer is lost", 0)
	})
	for range 10 {
		b.clock.Step(8 * time.Second)
		_, _ = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: b.name}}) // it fails, and is asked again
	}
	b.between(nil)
	before := tries
	b.clock.Step(8 * time.Second)
	if _, again, said := b.passOf(r); tries != before+1 || strings.Contains(said, "drives this object as well") {
		t.Errorf("after an outage the object is left alone for %s; events:\n%s", again, said)
	}
}

// passes makes n passes of a reconciler.
func (b *bench) passes(r *runner.Reconciler[*errand], n int) {
	for range n {
		b.passOf(r)
	}
}

// Who may write statuses, and no more, switches nothing off.
func TestForgedStatusSwitchesNothingOff(t *testing.T) {
	b, r := contendedBench(t)
	calls := 0
	b.work = func(context.Context, *scope) (map[string]any, error) {
		calls++
		return nil, fsm.Wait("for work")
	}
	b.passes(r, 6)
	right := b.shown().Status.Message
	// forged writes until nothing is corrected at once any more.
	forged := func() {
		t.Helper()
		for range 20 {
			b.forge("forged")
			b.clock.Step(time.Second)
			if b.passOf(r); b.shown().Status.Message == "forged" {
				return
			}
		}
		t.Fatal("each of 20 writes within 20 s is answered: two controllers would write for ever")
	}
	looked := func(what string) {
		t.Helper()
		if b.passOf(r); b.shown().Status.Message != right {
			t.Errorf("%s: the message is still %q", what, b.shown().Status.Message)
		}
	}
	for _, change := range []struct{ what, patch string }{
		{"a request is served at once", `{"metadata":{"annotations":{"somebody":"asks"}}}`},
		{"a new spec is served at once", `{"metadata":{"generation":7}}`},
	} {
		forged()
		if err := b.merge(t.Context(), change.patch); err != nil {
			t.Fatal(err)
		}
		looked(change.what)
	}
	for range 30 { // as long as somebody has the patience
		forged()
		before := calls
		b.clock.Step(10 * time.Minute)
		if b.passOf(r); calls == before || b.shown().Status.Message != right {
			t.Fatalf("drift is corrected, and the status, after ten minutes at the latest: %d calls, %q", calls-before, b.shown().Status.Message)
		}
	}
	forged()
	if err := b.outside.Delete(t.Context(), b.shown()); err != nil {
		t.Fatal(err)
	}
	b.passes(r, 10)
	if b.state() != nil {
		t.Error("a deletion is served at once")
	}
}
