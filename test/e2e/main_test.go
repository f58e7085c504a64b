// Package e2e runs bin/manager on a real control plane, as its users do: kubectl's
// API on one side, a process on the other. It knows nothing of how the manager
// works inside; what it compares are the objects before and after.
//
// Tests that end where they began share one cluster; see pristine. Those whose names begin with TestReal run programs of a
// Calico release, where CALICO_BIN names some: docs/operate/real-programs.md.
package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// objects is how many v1 objects a cluster has, where their number is not the point.
const objects = 240

// shared are the clusters of the tests that leave no trace.
var shared = harness.Pool[*world]{
	New: func(t testing.TB) *world {
		w := newWorld(t, setup.Options{Objects: fixture.Demo(1, objects)})
		w.dressAPIService(t)
		w.before = w.snapshot(t)
		return w
	},
	End: func(w *world) error { return w.Close() },
}

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	code := m.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "end the shared clusters:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// pristine lends a shared cluster to a test, which must leave it as it was: v1
// objects, lock, APIService and the storage of v3 are compared at the end. The test runs beside others.
func pristine(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := *shared.Lend(t)
	t.Cleanup(func() {
		if !t.Failed() {
			w.assertUntouched(t)
		}
	})
	return &w
}

// assertUntouched compares the cluster with what it was before the first migration.
func (w *world) assertUntouched(t *testing.T) {
	t.Helper()
	if diff := cmp.Diff(w.before, w.snapshot(t)); diff != "" {
		t.Errorf("the cluster is not as it was before (-before +after):\n%s", diff)
	}
}

// own gives a test a cluster of its own, to be changed for good. The test runs beside others.
func own(t *testing.T, o setup.Options) *world {
	t.Helper()
	t.Parallel()
	o.Cluster.Test = t.Name()
	w := newWorld(t, o)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("end the cluster: %v", err)
		}
	})
	return w
}

func newWorld(t testing.TB, o setup.Options) *world {
	t.Helper()
	o.Cluster.Own = true
	s, err := setup.New(context.Background(), o) // it may outlive this test
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Setup: s}
	if err := w.Grant(t.Context(), managerAccount, managerRules(t)); err != nil {
		t.Fatal(err)
	}
	return w
}
