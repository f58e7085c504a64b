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

// installations are managers that share a cluster and not a lease.
type installations struct {
	*bench
	leases map[string]*coordinationv1.Lease
	// unread is why no lease can be read; nil: they can be.
	unread error
}

func newInstallations(t *testing.T) *installations {
	scheme := runtime.NewScheme()
	utilruntime.Must(migrationv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	b := newBenchOn(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&errand{}).Build())
	b.welcome = true
	return &installations{bench: b, leases: map[string]*coordinationv1.Lease{}}
}

func (i *installations) manager(name string) *runner.Reconciler[*errand] {
	return &runner.Reconciler[*errand]{Client: i.Client, Machine: i.Machine, Program: i.Program, Clock: i.Clock, Random: i.Random, Metrics: i.Metrics,
		Manager: name, Recorder: events.NewFakeRecorder(100), Lease: func(_ context.Context, manager string) (*coordinationv1.Lease, error) {
			switch lease := i.leases[manager]; {
			case i.unread != nil:
				return nil, i.unread
			case lease != nil:
				return lease, nil
			}
			return nil, apierrs.NewNotFound(coordinationv1.Resource("leases"), manager)
		}}
}

func (i *installations) renew(names ...string) {
	for _, name := range names {
		lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("pod"), LeaseDurationSeconds: ptr.To[int32](15)}}
		lease.ResourceVersion = i.clock.Now().String()
		i.leases[name] = lease
	}
}

func (i *installations) assertDriver(want, why string) {
	i.t.Helper()
	if got := i.driver(); got != want {
		i.t.Fatalf("driven by %q, want %q: %s", got, want, why)
	}
}

// Of two installations one drives an object for as long as it holds its lease, and both say so. One under another name
// goes on where the last one stopped.
func TestTwoInstallations(t *testing.T) {
	b := newInstallations(t)
	one, other := b.manager("ns-a/one"), b.manager("ns-b/other")
	b.passOf(one)
	b.assertDriver("ns-a/one", "who makes a state claims it")
	for i := range 20 {
		b.renew("ns-a/one", "ns-b/other")
		b.passOf(one)
		writes, again, said := b.passOf(other)
		b.assertDriver("ns-a/one", "its holder is there")
		if writes != 0 || again <= 0 || strings.Contains(said, "another installation, ns-a/one, drives this object") != (i == 0) {
			t.Errorf("the other one writes %d times, comes again after %s, and says %q: it stands aside, and says so once", writes, again, said)
		}
		b.clock.Step(6 * time.Minute)
	}
	b.leases["ns-a/one"].Spec.HolderIdentity = ptr.To("") // as a leader leaves it that ends
	if _, _, said := b.passOf(other); !strings.Contains(said, "takes the object over from that of another installation, ns-a/one") {
		t.Errorf("it says %q", said)
	}
	b.assertDriver("ns-b/other", "the first one was uninstalled")
	b.renew("ns-a/one", "ns-b/other")
	b.passOf(one)
	b.clock.Step(time.Hour)
	b.renew("ns-a/one", "ns-b/other")
	b.passOf(one)
	b.assertDriver("ns-b/other", "one that comes back takes nothing away")
	for range 2 { // the other one was killed, with its node
		b.clock.Step(time.Minute)
		b.passOf(one)
	}
	b.assertDriver("ns-a/one", "nobody renews the lease")
	delete(b.leases, "ns-a/one")
	b.clock.Step(time.Minute)
	b.passOf(other)
	b.assertDriver("ns-b/other", "somebody has deleted the lease")
	if _, _, said := b.passOf(b.manager("")); strings.Contains(said, "installation") || b.driver() != "ns-b/other" {
		t.Errorf("one without a lease says %q: it claims nothing", said)
	}
}

// Where the lease of another installation cannot be read, somebody may hold it.
func TestALeaseThatCannotBeRead(t *testing.T) {
	b := newInstallations(t)
	b.passOf(b.manager("ns-a/one"))
	b.unread = apierrs.NewForbidden(coordinationv1.Resource("leases"), "one", nil)
	other := b.manager("ns-b/other")
	for i := range 3 {
		writes, _, said := b.passOf(other)
		b.assertDriver("ns-a/one", "it has claimed the object")
		if writes != 0 || strings.Contains(said, "cannot tell whether it is still there: read its lease: ") != (i == 0) {
			t.Errorf("it writes %d times, and says %q: it stands aside, and says why once", writes, said)
		}
		b.clock.Step(time.Hour)
	}
}
