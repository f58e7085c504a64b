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
	"github.com/phasegate/phasegate/test/support/setup"
)

// objects is how many v1 objects a cluster has, where their number is not the point.
const objects = 240

// shared is the cluster of the tests that leave no trace; nil when there is none yet.
var shared *world

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "end the shared cluster:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func closeShared() error {
	if shared == nil {
		return nil
	}
	s := shared.Setup
	shared = nil
	return s.Close()
}

// pristine lends the shared cluster to a test, which must leave it as it was: v1
// objects, lock, APIService and the storage of v3 are compared at the end. A test
// that fails takes the cluster with it.
func pristine(t *testing.T) *world {
	t.Helper()
	if shared == nil {
		shared = newWorld(t, setup.Options{Objects: fixture.Demo(1, objects)})
		shared.dressAPIService(t)
		shared.before = shared.snapshot(t)
	}
	w := *shared
	t.Cleanup(func() {
		if !t.Failed() {
			w.assertUntouched(t)
		}
		if t.Failed() {
			if err := closeShared(); err != nil {
				t.Log(err)
			}
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

// own gives a test a cluster of its own, to be changed for good.
func own(t *testing.T, o setup.Options) *world {
	t.Helper()
	w := newWorld(t, o)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("end the cluster: %v", err)
		}
	})
	return w
}

func newWorld(t *testing.T, o setup.Options) *world {
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
