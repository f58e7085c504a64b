package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/dynamic"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/fixture"
	"github.com/phasegate/phasegate/test/scene"
	"github.com/phasegate/phasegate/test/sides"
)

// Calico without its API server, as most manifests install it: v3 is served from its CRDs all the time. Objects are
// copied before the lock there, too, and an abort leaves nothing.
func TestCopiedAheadWithoutAPIServer(t *testing.T) {
	w := own(t, scene.Options{Objects: fixture.Demo(1, objects), NoStandIn: true})
	w.before = w.snapshot(t)
	w.said(t, "kubectl phasegate plan", 0, "clients of projectcalico.org/v3 see the copies", "let no controller act on projectcalico.org/v3")
	w.manager(t, "--phases-dir", gated(t))

	for _, gate := range []string{"compared", "ahead", "locked", "verified"} {
		t.Run("abort "+gate, func(t *testing.T) {
			w.start(t, scene.MigrationName, gate)
			w.awaitGate(t, scene.MigrationName, gate)
			w.remove(t, scene.MigrationName)
			w.assertUntouched(t)
		})
	}

	for _, name := range []string{"ahead-goes", "ahead-changes"} {
		w.do(t, w.Client.Create(t.Context(), feed(name)))
	}
	w.start(t, scene.MigrationName, "ahead")
	dm := w.awaitGate(t, scene.MigrationName, "ahead")
	w.assertNothingLocked(t, dm)
	if ahead := dm.Status.CopyAhead; ahead == nil || ahead.State != migrationv1.CopyAheadOpen || ahead.Round < 1 {
		t.Errorf("status.copyAhead %+v", ahead)
	}
	if diff := cmp.Diff(w.before.V3CRDs, w.v3CRDs(t)); diff != "" {
		t.Errorf("the v3 CRDs were changed, though v3 can be reached without (-before +now):\n%s", diff)
	}
	if w.ready(t, v3) {
		t.Error("v3 is open while it is being filled")
	}
	w.do(t, w.Client.Delete(t.Context(), feed("ahead-goes")))
	w.do(t, w.Client.Create(t.Context(), feed("ahead-comes")))
	w.setNets(t, "ahead-changes", "198.51.100.0/24")
	w.goOn(t, "locked")
	w.awaitGate(t, scene.MigrationName, "locked")
	total := 0
	for _, copies := range w.copies(t) {
		total += len(copies)
	}
	if want := int(dm.Status.Progress.Migrated); total < want-1 {
		t.Errorf("%d copies are there when v1 is locked, want about %d", total, want)
	}
	w.goOn(t, "verified")
	w.awaitGate(t, scene.MigrationName, "verified")
	w.assertSidesAreEqual(t)
	w.assertOwners(t)
	w.goOn(t, nowhere)
	w.await(t, scene.MigrationName, "Converged")
	w.awaitMessage(t, scene.MigrationName, "calico-node")
	w.assertV3Open(t)
	w.assertSidesAreEqual(t)
}

// assertSidesAreEqual compares v1 and v3, read apart from the product.
func (w *world) assertSidesAreEqual(t *testing.T) {
	t.Helper()
	dynamic, err := dynamic.NewForConfig(w.Config)
	w.do(t, err)
	r := sides.Reader{Client: dynamic, Registry: w.Registry}
	inV1, err := r.V1(t.Context())
	w.do(t, err)
	inV3, err := r.V3(t.Context())
	w.do(t, err)
	if c := sides.Compare(inV1, inV3); !c.Equal() {
		t.Errorf("v1 and v3 differ: missing %v, extra %v, different %v", c.Missing, c.Extra, c.Different)
	}
}
