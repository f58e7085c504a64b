package runner_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
)

// driver is whose the state says that its object is.
func (b *bench) driver() string {
	b.t.Helper()
	states := &v1alpha1.MachineStateList{}
	if err := b.outside.List(b.t.Context(), states); err != nil || len(states.Items) != 1 {
		b.t.Fatalf("%d states: %v", len(states.Items), err)
	}
	return states.Items[0].Status.Manager
}

// passOf is a pass by one of several managers.
func (b *bench) passOf(r *runner.Reconciler[*errand]) (writes int, again time.Duration, said string) {
	b.t.Helper()
	before := len(b.writes)
	result, err := r.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: b.name}})
	if err != nil {
		b.t.Fatal(err)
	}
	for events := r.Recorder.(*events.FakeRecorder).Events; len(events) > 0; {
		said += <-events + "\n"
	}
	return len(b.writes) - before, result.RequeueAfter, said
}

// Of two installations one drives an object, and both say so. One under another name goes on where the last one
// stopped.
func TestTwoInstallations(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(migrationv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	b := newBenchOn(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&errand{}).Build())
	b.welcome = true
	manager := func(name string) *runner.Reconciler[*errand] {
		return &runner.Reconciler[*errand]{Client: b.Client, Machine: b.Machine, Program: b.Program, Clock: b.Clock, Random: b.Random, Metrics: b.Metrics,
			Busy: &runner.Busy{Manager: name}, Recorder: events.NewFakeRecorder(100)}
	}
	one, other := manager("ns-a/one"), manager("ns-b/other")
	b.passOf(one)
	if got := b.driver(); got != "ns-a/one" {
		t.Fatalf("driven by %q: who makes a state claims it", got)
	}
	b.passOf(one)
	if _, _, said := b.passOf(other); b.driver() != "ns-b/other" || !strings.Contains(said, "takes the object over from that of another installation, ns-a/one") {
		t.Fatalf("driven by %q, told %q: the newest takes over", b.driver(), said)
	}
	for i := range 3 {
		writes, again, said := b.passOf(one)
		if writes != 0 || again <= 0 || strings.Contains(said, "another installation, ns-b/other") != (i == 0) {
			t.Errorf("the first one writes %d times, comes again after %s, and says %q: it stands aside, and says so once", writes, again, said)
		}
	}
	b.passOf(other)
	if got := b.driver(); got != "ns-b/other" {
		t.Errorf("driven by %q", got)
	}
	b.clock.Step(6 * time.Minute) // the other one was uninstalled meanwhile
	b.passOf(one)
	if got := b.driver(); got != "ns-a/one" {
		t.Errorf("driven by %q: nobody else does it", got)
	}
	if _, _, said := b.passOf(manager("")); strings.Contains(said, "installation") || b.driver() != "ns-a/one" {
		t.Errorf("one without a lease says %q: it claims nothing", said)
	}
}
