package mcpserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver"
	"github.com/phasegate/phasegate/test/faults"
	"github.com/phasegate/phasegate/test/faults/report"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

// The others on the cluster: a GitOps tool that applies ToolHive's CRD over ours, people who
// remove finalizers and delete what they do not know.

const (
	// toolHive names the environment variable with the directory of ToolHive's CRDs.
	toolHive = "TOOLHIVE_CRDS"
	// lifeWrites is what a start, a restart and a deletion have at least.
	lifeWrites = 25
	// cleanUp is how long what is left may stay after the next look.
	cleanUp = 10 * time.Second
	// firstToken is that of the first restart.
	firstToken = "2026-03-04T12:00:00Z"
)

// bothCRDs are ours, and ToolHive's own.
func bothCRDs(t *testing.T) (ours, theirs *unstructured.Unstructured) {
	t.Helper()
	if os.Getenv(toolHive) == "" {
		t.Skipf("not run: %s names no directory", toolHive)
	}
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	of := func(dir string) *unstructured.Unstructured {
		all, err := crds.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(crd *unstructured.Unstructured) bool { return crd.GetName() == v1beta1.CRDName })
		if i < 0 {
			t.Fatalf("no CRD %s in %s", v1beta1.CRDName, dir)
		}
		return all[i]
	}
	return of(filepath.Join(root, "charts", "phasegate", "files", "crds")), of(os.Getenv(toolHive))
}

// flipper applies ToolHive's CRD before each often-th write, and ours after it.
type flipper struct {
	w            *world
	ours, theirs *unstructured.Unstructured
	often        int

	mu sync.Mutex
	// writes were seen; flips were made; pruned is how often status.machine was missing then.
	writes, flips, pruned int
}

func (f *flipper) transport(name string) *faults.Transport {
	return faults.New(&faults.Rule{When: faults.Write, Times: faults.Always, Do: func(_ *faults.Transport, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.writes++; f.writes%f.often != 0 {
			return next.RoundTrip(req)
		}
		f.replace(f.theirs)
		defer f.replace(f.ours)
		f.flips += 2
		defer f.look(name)
		return next.RoundTrip(req)
	}})
}

func (f *flipper) replace(crd *unstructured.Unstructured) {
	if err := crds.Replace(context.Background(), f.w.Config, crd); err != nil {
		f.w.t.Errorf("put CRD %s in the place of the other: %v", crd.GetName(), err)
	}
}

// look tells whether the view was pruned.
func (f *flipper) look(name string) {
	srv := &server{}
	err := f.w.Client.Get(context.Background(), client.ObjectKey{Namespace: f.w.namespace, Name: name}, srv)
	if err == nil && srv.Status.Phase != "" && srv.Status.Machine.Phase == "" {
		f.pruned++
	}
}

// Somebody applies ToolHive's CRD over ours before each write, and somebody else ours after
// it: during a start, a restart, a change of the spec and the deletion. A view that was pruned
// decides nothing.
func TestCRDFlips(t *testing.T) {
	t.Parallel()
	ours, theirs := bothCRDs(t)
	cluster, err := startCluster() // others look at a CRD that stays
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := worldIn(t, cluster)
	f := &flipper{w: w, ours: ours, theirs: theirs, often: 2}
	if everything {
		f.often = 1
	}
	f.replace(ours)
	begun, name := time.Now(), "srv"
	w.create(name)
	w.drive(f.transport(name), name, ready)
	if diff := cmp.Diff(allChildren(name), w.children(name)); diff != "" {
		t.Errorf("what was made (-want +got):\n%s", diff)
	}

	before := w.workload(name)
	w.askRestart(name, firstToken, v1beta1.StrategyRolling)
	w.drive(f.transport(name), name, restarted(firstToken))
	if diff := cmp.Diff(before.once(firstToken), w.workload(name)); diff != "" {
		t.Errorf("after the restart (-want +got):\n%s", diff)
	}

	before = w.workload(name)
	w.changeImage(name, "server:other")
	w.drive(f.transport(name), name, current)
	if diff := cmp.Diff(before.once(firstToken), w.workload(name)); diff != "" {
		t.Errorf("after the change of the spec (-want +got):\n%s", diff)
	}
	w.drive(faults.New(), name, ready)
	w.quiet(name)

	w.goesLast(f.transport(name), name)
	of := report.Of("ToolHive's CRD over ours, and back, at each write")
	of.Writes(f.flips)
	of.Ran(!t.Failed(), time.Since(begun))
	if f.flips < 2*lifeWrites/f.often || f.pruned == 0 {
		t.Errorf("the CRD was exchanged %d times, and status.machine pruned %d times: the test tries too little", f.flips, f.pruned)
	}
}

// goesLast deletes a server, which is not gone before its children and leaves no state.
func (w *world) goesLast(faulty *faults.Transport, name string) {
	w.t.Helper()
	srv := w.get(name)
	if err := w.Client.Delete(w.t.Context(), srv); err != nil {
		w.t.Fatal(err)
	}
	w.drive(faulty, name, func(srv *server) error {
		if left := w.children(name); srv == nil && len(left) > 0 {
			w.t.Errorf("the server is gone before %q", left)
		}
		return gone(srv)
	})
	w.awaitNoPods(name)
	if state := w.state(srv.UID); state != nil {
		w.t.Errorf("the state is left: %+v", state.Status)
	}
}

func (w *world) changeImage(name, image string) {
	w.t.Helper()
	srv := w.get(name)
	base := srv.DeepCopy()
	srv.Spec.Image = image
	if err := w.Client.Patch(w.t.Context(), srv, client.MergeFrom(base)); err != nil {
		w.t.Fatal(err)
	}
}

// current is ready, of the spec as it is.
func current(srv *server) error {
	if err := ready(srv); err != nil {
		return err
	}
	if srv.Status.ObservedGeneration != srv.Generation {
		return fmt.Errorf("generation %d is observed, not %d", srv.Status.ObservedGeneration, srv.Generation)
	}
	return nil
}

// someWrites are those that are tried: all of them, up to one that says that it did not come,
// or a sample that moves on from day to day. The recovery is 0 where it was not measured.
func someWrites(t *testing.T, experiment string, attempt func(w *world, write int) (came bool, recovery time.Duration)) {
	t.Helper()
	const strands, few = 4, 3
	of := report.Of(experiment)
	for strand := range strands {
		t.Run(fmt.Sprintf("%d of %d", strand+1, strands), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for write, tried := strand+1, 0; !t.Failed(); write, tried = write+strands, tried+1 {
				if !everything {
					if tried == 1 || strand >= few {
						return
					}
					write = 1 + (time.Now().YearDay()*few+strand)%lifeWrites
				}
				came, recovery := attempt(w, write)
				if t.Failed() {
					t.Fatalf("failed at write %d", write)
				}
				if !came {
					if write <= lifeWrites {
						t.Errorf("there is no write %d: too little is tried", write)
					}
					return
				}
				of.Ran(!t.Failed(), recovery)
				of.Writes(write)
			}
		})
	}
}

// orGone lets a server be gone instead.
func orGone(where func(*server) error) func(*server) error {
	return func(srv *server) error {
		if srv == nil {
			return nil
		}
		return where(srv)
	}
}

// live drives a server through its start, a restart and its deletion, in one process. It
// ends early where the server vanishes.
func (w *world) live(faulty *faults.Transport, name string) {
	w.t.Helper()
	w.drive(faulty, name, orGone(ready))
	if w.get(name) != nil {
		w.askRestart(name, firstToken, v1beta1.StrategyRolling)
		w.drive(faulty, name, orGone(restarted(firstToken)))
	}
	if srv := w.get(name); srv != nil {
		if err := client.IgnoreNotFound(w.Client.Delete(w.t.Context(), srv)); err != nil {
			w.t.Fatal(err)
		}
		w.drive(faulty, name, gone)
	}
}

// vanish removes a server as a person does who has no patience: deleted, and its finalizer
// removed by hand.
func (w *world) vanish(name string) error {
	srv := &server{}
	srv.Namespace, srv.Name = w.namespace, name
	ctx := context.Background()
	return errors.Join(client.IgnoreNotFound(w.Client.Delete(ctx, srv)),
		client.IgnoreNotFound(w.Client.Patch(ctx, srv, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
}

// A server that vanishes right before any write leaves nothing: the garbage collector takes
// its children, and the manager the state.
func TestFinalizerRemoved(t *testing.T) {
	t.Parallel()
	someWrites(t, "MCPServer: finalizer removed, and deleted, before a write", func(w *world, write int) (bool, time.Duration) {
		name := fmt.Sprintf("srv-%d", write)
		uid := w.create(name)
		faulty := faults.New(&faults.Rule{When: faults.Write, Nth: write, Do: faults.Before(func() {
			if err := w.vanish(name); err != nil {
				w.t.Error(err)
			}
		})})
		w.live(faulty, name)
		if len(faulty.Met()) == 0 {
			return false, 0
		}
		recovery := w.clearState(name, uid)
		if recovery > cleanUp {
			w.t.Errorf("the state went after %s, want %s at most", recovery, cleanUp)
		}
		harness.Eventually(w.t, "the children of "+name+" to go", func() error {
			if left := w.children(name); len(left) > 0 {
				return fmt.Errorf("left: %q", left)
			}
			return nil
		})
		w.awaitNoPods(name)
		return true, recovery
	})
}

// clearState lets a new process look at a state until it is gone, and tells how long that took.
func (w *world) clearState(name string, uid types.UID) time.Duration {
	w.t.Helper()
	p, begun := w.process(faults.New()), time.Now()
	req := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: name}}
	harness.Eventually(w.t, "the state to go", func() error {
		_, err := p.Reconcile(w.t.Context(), req)
		if w.state(uid) != nil {
			return errors.Join(err, errors.New("it is still there"))
		}
		return nil
	})
	return time.Since(begun)
}

// loseState deletes a state, whatever keeps it.
func (w *world) loseState(uid types.UID) error {
	state := &v1alpha1.MachineState{}
	state.Name = v1alpha1.MachineStateName(mcpserver.MachineName, uid)
	ctx := context.Background()
	return errors.Join(
		client.IgnoreNotFound(w.Client.Patch(ctx, state, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))),
		client.IgnoreNotFound(w.Client.Delete(ctx, state)))
}

// shownReady is ready as people see it, whatever the state says.
func shownReady(srv *server) error {
	if srv == nil || srv.Status.Phase != "Ready" {
		return ready(srv)
	}
	return nil
}

// shownRestarted is restarted as people see it.
func shownRestarted(srv *server) error {
	if srv == nil || srv.Annotations[v1beta1.AnnotationLastProcessedRestart] != firstToken {
		return restarted(firstToken)(srv)
	}
	return shownReady(srv)
}

// A server whose state is deleted right before any write begins anew: it holds nothing, so
// nothing can be lost. What was made stays, each once, and a restart that was carried out is
// not repeated.
func TestStateDeleted(t *testing.T) {
	t.Parallel()
	someWrites(t, "MCPServer: state deleted before a write", func(w *world, write int) (bool, time.Duration) {
		name := fmt.Sprintf("srv-%d", write)
		uid := w.create(name)
		faulty := faults.New(&faults.Rule{When: faults.Write, Nth: write, Do: faults.Before(func() {
			if err := w.loseState(uid); err != nil {
				w.t.Error(err)
			}
		})})
		w.drive(faulty, name, shownReady)
		w.drive(faults.New(), name, ready) // the next look: a state that is deleted wakes nobody
		want := workload{1, 1, 1, 1, "", ""}
		if diff := cmp.Diff(want, w.workload(name)); diff != "" {
			w.t.Errorf("made, and changed again (-want +got):\n%s", diff)
		}
		w.askRestart(name, firstToken, v1beta1.StrategyRolling)
		w.drive(faulty, name, shownRestarted)
		w.drive(faults.New(), name, restarted(firstToken))
		if diff := cmp.Diff(want.once(firstToken), w.workload(name)); diff != "" {
			w.t.Errorf("after one restart (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(allChildren(name), w.children(name)); diff != "" {
			w.t.Errorf("what is there (-want +got):\n%s", diff)
		}
		w.quiet(name)
		if state := w.state(uid); state == nil || !strings.HasSuffix(state.Status.Phase, "Ready") {
			w.t.Errorf("the state is %+v, want one in phase Ready", state)
		}
		if err := w.Client.Delete(w.t.Context(), w.get(name)); err != nil {
			w.t.Fatal(err)
		}
		w.drive(faulty, name, gone)
		if left := w.children(name); len(left) > 0 {
			w.t.Errorf("left behind: %q, want nothing", left)
		}
		if state := w.state(uid); state != nil {
			w.t.Errorf("the state is left in phase %s", state.Status.Phase)
		}
		w.awaitNoPods(name)
		return len(faulty.Met()) > 0, 0
	})
}
