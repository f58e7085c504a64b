package runner_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
)

// Of two installations one drives an object, and both say so. One under another name goes on where the last one
// stopped.
func TestTwoInstallations(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{migrationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := newBenchOn(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&errand{}).Build())
	b.welcome = true
	manager := func(name string) *runner.Reconciler[*errand] {
		r := *b.Reconciler
		r.Busy, r.Recorder = &runner.Busy{Manager: name}, events.NewFakeRecorder(100)
		return &r
	}
	driver := func() string {
		states := &v1alpha1.MachineStateList{}
		if err := b.outside.List(t.Context(), states); err != nil || len(states.Items) != 1 {
			t.Fatalf("%d states: %v", len(states.Items), err)
		}
		return states.Items[0].Status.Manager
	}
	pass := func(r *runner.Reconciler[*errand]) (writes int, again time.Duration, said string) {
		t.Helper()
		before := len(b.writes)
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: b.name}})
		if err != nil {
			t.Fatal(err)
		}
		for {
			select {
			case event := <-r.Recorder.(*events.FakeRecorder).Events:
				said += event + "\n"
				continue
			default:
			}
			return len(b.writes) - before, result.RequeueAfter, said
		}
	}
	one, other := manager("ns-a/one"), manager("ns-b/other")
	pass(one)
	if got := driver(); got != "ns-a/one" {
		t.Fatalf("driven by %q: who makes a state claims it", got)
	}
	pass(one)
	if _, _, said := pass(other); driver() != "ns-b/other" || !strings.Contains(said, "takes the object over from that of another installation, ns-a/one") {
		t.Fatalf("driven by %q, told %q: the newest takes over", driver(), said)
	}
	for i := range 3 {
		writes, again, said := pass(one)
		if writes != 0 || again <= 0 || strings.Contains(said, "another installation, ns-b/other") != (i == 0) {
			t.Errorf("the first one writes %d times, comes again after %s, and says %q: it stands aside, and says so once", writes, again, said)
		}
	}
	pass(other)
	if got := driver(); got != "ns-b/other" {
		t.Errorf("driven by %q", got)
	}
	b.clock.Step(6 * time.Minute) // the other one was uninstalled meanwhile
	pass(one)
	if got := driver(); got != "ns-a/one" {
		t.Errorf("driven by %q: nobody else does it", got)
	}
	if _, _, said := pass(manager("")); strings.Contains(said, "installation") || driver() != "ns-a/one" {
		t.Errorf("one without a lease says %q: it claims nothing", said)
	}
}
