package runner_test

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
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

// Of two installations one drives an object for as long as it holds its lease, and both say so. One under another name
// goes on where the last one stopped.
func TestTwoInstallations(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(migrationv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	b := newBenchOn(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&errand{}).Build())
	b.welcome = true
	leases := map[string]*coordinationv1.Lease{}
	var unread error // nil: leases can be read
	renews := func(names ...string) {
		for _, name := range names {
			lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("pod"), LeaseDurationSeconds: ptr.To[int32](15)}}
			lease.ResourceVersion = b.clock.Now().String()
			leases[name] = lease
		}
	}
	manager := func(name string) *runner.Reconciler[*errand] {
		return &runner.Reconciler[*errand]{Client: b.Client, Machine: b.Machine, Program: b.Program, Clock: b.Clock, Random: b.Random, Metrics: b.Metrics,
			Busy: &runner.Busy{Manager: name}, Recorder: events.NewFakeRecorder(100), Lease: func(_ context.Context, manager string) (*coordinationv1.Lease, error) {
				switch lease := leases[manager]; {
				case unread != nil:
					return nil, unread
				case lease != nil:
					return lease, nil
				}
				return nil, apierrs.NewNotFound(coordinationv1.Resource("leases"), manager)
			}}
	}
	drives := func(want, why string) {
		t.Helper()
		if got := b.driver(); got != want {
			t.Fatalf("driven by %q, want %q: %s", got, want, why)
		}
	}
	one, other := manager("ns-a/one"), manager("ns-b/other")
	b.passOf(one)
	drives("ns-a/one", "who makes a state claims it")
	for i := range 20 {
		renews("ns-a/one", "ns-b/other")
		b.passOf(one)
		writes, again, said := b.passOf(other)
		drives("ns-a/one", "its holder is there")
		if writes != 0 || again <= 0 || strings.Contains(said, "another installation, ns-a/one, drives this object") != (i == 0) {
			t.Errorf("the other one writes %d times, comes again after %s, and says %q: it stands aside, and says so once", writes, again, said)
		}
		b.clock.Step(6 * time.Minute)
	}
	unread = apierrs.NewForbidden(coordinationv1.Resource("leases"), "one", nil)
	for range 3 {
		_, _, said := b.passOf(other)
		drives("ns-a/one", "somebody may hold a lease that cannot be read")
		if said != "" && !strings.Contains(said, "cannot tell whether it is still there: read its lease: ") {
			t.Errorf("it says %q", said)
		}
		b.clock.Step(time.Hour)
	}
	unread = nil
	renews("ns-a/one", "ns-b/other")
	leases["ns-a/one"].Spec.HolderIdentity = ptr.To("") // as a leader leaves it that ends
	if _, _, said := b.passOf(other); !strings.Contains(said, "takes the object over from that of another installation, ns-a/one") {
		t.Errorf("it says %q", said)
	}
	drives("ns-b/other", "the first one was uninstalled")
	renews("ns-a/one", "ns-b/other")
	b.passOf(one)
	b.clock.Step(time.Hour)
	renews("ns-a/one", "ns-b/other")
	b.passOf(one)
	drives("ns-b/other", "one that comes back takes nothing away")
	for range 2 { // the other one was killed, with its node
		b.clock.Step(time.Minute)
		b.passOf(one)
	}
	drives("ns-a/one", "nobody renews the lease")
	delete(leases, "ns-a/one")
	b.clock.Step(time.Minute)
	b.passOf(other)
	drives("ns-b/other", "somebody has deleted the lease")
	if _, _, said := b.passOf(manager("")); strings.Contains(said, "installation") || b.driver() != "ns-b/other" {
		t.Errorf("one without a lease says %q: it claims nothing", said)
	}
}
