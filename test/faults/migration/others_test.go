package migration_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/faults"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/faults/report"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// The others on the cluster: a GitOps tool that applies Calico's own CRD over ours, people
// who remove finalizers and delete what they do not know.

// shape is what the CRD of the moment keeps.
func (w *world) shape() (*runner.Shape, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := w.Client.Get(context.Background(), types.NamespacedName{Name: migrationv1.CRDName}, crd); err != nil {
		return nil, err
	}
	return runner.ShapeOf(crd, "v1")
}

// bothCRDs are ours, and Calico's own, which is not in this repository.
func bothCRDs(t *testing.T) (ours, theirs *unstructured.Unstructured) {
	t.Helper()
	if os.Getenv(crds.EnvDir) == "" {
		t.Skipf("not run: %s names no directory with Calico's CRDs", crds.EnvDir)
	}
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	for dir, into := range map[string]**unstructured.Unstructured{
		filepath.Join(root, "charts", "phasegate", "files", "crds"): &ours, filepath.Join(os.Getenv(crds.EnvDir), "migration"): &theirs,
	} {
		all, err := crds.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, crd := range all {
			if crd.GetName() == migrationv1.CRDName {
				*into = crd
			}
		}
	}
	return ours, theirs
}

// replace puts another CRD in the place of the one that is there, as kubectl replace does.
func (w *world) replace(crd *unstructured.Unstructured) {
	for {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(crd.GroupVersionKind())
		err := w.Client.Get(context.Background(), types.NamespacedName{Name: crd.GetName()}, live)
		if err == nil {
			live.Object["spec"] = runtime.DeepCopyJSON(crd.Object)["spec"]
			err = w.Client.Update(context.Background(), live)
		}
		if err == nil {
			return
		}
		if !apierrs.IsConflict(err) {
			w.t.Error(err)
			return
		}
	}
}

// Somebody applies Calico's CRD over ours before each write, and somebody else ours after it.
// What is held is released, what is to be kept is kept, and nobody's view decides.
func TestCRDFlips(t *testing.T) {
	ours, theirs := bothCRDs(t)
	beside(t)
	w := shared.Lend(t)
	t.Cleanup(func() { w.replace(ours) })
	earlier := w.states(t) // left by tests whose processes ended with the object
	flipping, flips := w.flipping(ours, theirs)
	j := w.begin(t)
	j.recorder.MayGap()
	_, there := j.survive(flipping, atGate)
	j.check(invariants.AtGate)
	_, back := j.back(flipping)
	report.Of("Calico's CRD over ours, and back, at each write").Writes(*flips)
	report.Of("Calico's CRD over ours, and back, at each write").Ran(!t.Failed(), max(there, back))
	if *flips < 2*minWrites/often() {
		t.Errorf("the CRD was exchanged %d times: the test tries too little", *flips)
	}
	w.noStates(t, earlier...)
}

// often is of how many writes one has the CRD exchanged around it.
func often() int {
	if everything {
		return 1
	}
	return 5
}

// flipping are processes around whose writes the CRD is exchanged, and counts how often.
func (w *world) flipping(ours, theirs *unstructured.Unstructured) (all lives, flips *int) {
	var one sync.Mutex
	writes := 0
	flips = new(int)
	return func(int) *faults.Transport {
		return faults.New(&faults.Rule{When: faults.Write, Times: faults.Always, Do: func(_ *faults.Transport, req *http.Request, next http.RoundTripper) (*http.Response, error) {
			one.Lock()
			defer one.Unlock()
			if writes++; writes%often() != 0 {
				return next.RoundTrip(req)
			}
			w.replace(theirs)
			defer w.replace(ours)
			*flips += 2
			return next.RoundTrip(req)
		}})
	}, flips
}

// The same past the point of no return: v3 is opened, the components are waited for, and the
// clean-up deletes v1.
func TestCRDFlipsOpen(t *testing.T) {
	ours, theirs := bothCRDs(t)
	machine, err := quick(false)
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(setup.Options{Objects: fixture.Demo(1, 0)}, machine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	flipping, flips := w.flipping(ours, theirs)
	j := w.begin(t)
	j.recorder.MayGap()
	_, there := j.survive(flipping, atRest)
	j.check(invariants.Open)
	if err := fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace); err != nil {
		t.Fatal(err)
	}
	j.survive(flipping, inPhase("Complete"))
	j.check(invariants.Open)
	if err := w.askRemoval(); err != nil {
		t.Fatal(err)
	}
	_, away := j.survive(flipping, gone)
	j.check(invariants.CleanedUp)
	report.Of("Calico's CRD over ours, and back, to the clean-up").Writes(*flips)
	report.Of("Calico's CRD over ours, and back, to the clean-up").Ran(!t.Failed(), max(there, away))
	w.noStates(t)
}

// vanish removes a migration as a person does who has no patience: deleted, and its finalizer
// removed by hand.
func (w *world) vanish() error {
	if err := w.askRemoval(); err != nil {
		return err
	}
	dm := &migration{}
	dm.Name = setup.MigrationName
	return client.IgnoreNotFound(w.Client.Patch(context.Background(), dm, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

// A migration that vanishes right before any write has everything released in its name.
func TestFinalizerRemoved(t *testing.T) {
	each(t, "finalizer removed, and deleted, before a write", 3, 1, func(t *testing.T, w *world, write int) (bool, time.Duration) {
		j := w.begin(t)
		vanished := faults.Before(func() {
			if err := w.vanish(); err != nil {
				t.Error(err)
			}
		})
		came, _ := j.survive(once(vanished, write), func(dm *migration) bool { return gone(dm) || atGate(dm) })
		if !came {
			j.back(healthy)
			return false, 0
		}
		recovery := w.giveBack(t)
		j.check(invariants.GivenBack)
		return true, recovery
	})
}

// giveBack lets a process work on the states of objects that are gone, until there is none.
func (w *world) giveBack(t *testing.T) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	p := w.process(ctx, faults.New())
	begun := time.Now()
	for {
		states := w.states(t)
		if len(states) == 0 {
			return time.Since(begun)
		}
		result, err := p.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: setup.MigrationName}})
		if ctx.Err() != nil {
			t.Fatalf("not within %s: %v", harness.Patience, err)
		}
		time.Sleep(min(max(result.RequeueAfter, 0), patience/4))
	}
}

// states are the names of those of this machine.
func (w *world) states(t *testing.T) (names []string) {
	t.Helper()
	list := &v1alpha1.MachineStateList{}
	if err := w.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, state := range list.Items {
		names = append(names, state.Name)
	}
	return names
}

func (w *world) noStates(t *testing.T, but ...string) {
	t.Helper()
	left := slices.DeleteFunc(w.states(t), func(name string) bool { return slices.Contains(but, name) })
	if len(left) > 0 {
		t.Errorf("states are left of migrations that are gone: %v", left)
	}
}

// loseState deletes the state of the migration, whatever keeps it.
func (w *world) loseState(t *testing.T) {
	t.Helper()
	for _, name := range w.states(t) {
		state := &v1alpha1.MachineState{}
		state.Name = name
		for _, err := range []error{
			w.Client.Patch(context.Background(), state, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))),
			w.Client.Delete(context.Background(), state),
		} {
			if client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	}
}

// A migration whose state is deleted by force right before any write is recovered by what
// bears its UID, or stands and says so; then, as the message says, its finalizer is removed.
func TestStateDeleted(t *testing.T) {
	each(t, "state deleted by force before a write", 3, 1, func(t *testing.T, w *world, write int) (bool, time.Duration) {
		j := w.begin(t)
		begun := time.Now()
		lost := faults.Before(func() { w.loseState(t) })
		stands := func(dm *migration) bool {
			if dm == nil {
				return true
			}
			for _, c := range dm.Status.Conditions {
				if c.Type == fsm.ConditionStalled && c.Reason == "StateLost" {
					return true
				}
			}
			return atGate(dm) || inPhase("Failed")(dm)
		}
		came, _ := j.survive(once(lost, write), stands)
		dm := w.read()
		if dm != nil && dm.Status.Machine.Phase == "" { // nothing bears its name: it is let go by hand
			if err := w.vanish(); err != nil {
				t.Fatal(err)
			}
		} else if dm != nil {
			if err := j.askRemoval(); err != nil {
				t.Fatal(err)
			}
			j.survive(healthy, gone)
		}
		w.giveBack(t)
		j.check(invariants.GivenBack)
		return came, time.Since(begun)
	})
}
