package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// breakGlass is what the page says: without the binding nobody is refused.
func (w *world) breakGlass(t *testing.T) {
	t.Helper()
	w.kubectl(t, "delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", migrationv1.FenceName, migrationv1.V3FenceName)
	harness.Eventually(t, "the fence to be gone", func() error {
		return w.Client.Patch(t.Context(), w.lock(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"e2e":"x"}}}`)), client.DryRunAll)
	})
}

func (w *world) lock() *unstructured.Unstructured {
	info := &unstructured.Unstructured{}
	info.SetGroupVersionKind(w.Registry.Lock().V1GVK())
	info.SetName("default")
	return info
}

// Whoever opens v1 in the middle ends the migration, which says so: it does not copy on from an open datastore.
func TestLockBroken(t *testing.T) {
	cases := map[string]struct {
		why, gate string
		do        func(*testing.T, *world)
		says      string
	}{
		"v1 opened before the copy": {why: "somebody needed pods", gate: "drained", says: "another client has opened v1, ClusterInformation.crd.projectcalico.org default",
			do: func(t *testing.T, w *world) {
				w.breakGlass(t)
				w.kubectl(t, "patch", "clusterinformations.crd.projectcalico.org", "default", "--type=merge", "-p", `{"spec":{"datastoreReady":true}}`)
			}},
		"the fence removed before the copy": {why: "the lock alone is only a request", gate: "drained", says: "changed the fence around v1, ValidatingAdmissionPolicy " + migrationv1.FenceName,
			do: func(t *testing.T, w *world) { w.breakGlass(t) }},
		"the fence changed before the comparison": {why: "it lets others in that way, too", gate: "remapped", says: "changed the fence around v1, ValidatingAdmissionPolicyBinding " + migrationv1.FenceName,
			do: func(t *testing.T, w *world) {
				w.kubectl(t, "patch", "validatingadmissionpolicybinding", migrationv1.FenceName, "--type=merge", "-p", `{"spec":{"validationActions":["Warn"]}}`)
			}},
	}
	w := pristine(t)
	w.manager(t, "--phases-dir", gated(t))
	for name, tc := range cases {
		inTurn(t, name, func(t *testing.T) {
			w.start(t, setup.MigrationName, tc.gate)
			w.awaitGate(t, setup.MigrationName, tc.gate)
			tc.do(t, w)
			w.goOn(t, nowhere)
			dm := w.await(t, setup.MigrationName, "Failed")
			failed := meta.FindStatusCondition(dm.Status.Conditions, migrationv1.ConditionFailed)
			if failed == nil || !strings.Contains(failed.Message, tc.says) {
				t.Errorf("%s: it says %+v", tc.why, failed)
			}
			w.remove(t, setup.MigrationName)
			w.assertUntouched(t)
		})
	}
}

// shortLock makes the time short in which v1 may be closed.
var shortLock = inStep("Migrating", "LockV1", func(s *v1alpha1.Step) { s.With = map[string]any{"deadline": "25s"} })

// The time that v1 may be closed is counted once: conflicts that wait for a person use it up, too. The Tigera operator does not
// take v3 from the rollback, which reaches the copies through it.
func TestLockDeadline(t *testing.T) {
	w := pristine(t)
	w.obstruct(t)
	end := w.besideOperator(t)
	w.manager(t, "--phases-dir", machine(t, quickly, fastConflicts, shortLock, underTheLock))
	w.start(t, setup.MigrationName, nowhere)
	first := w.await(t, setup.MigrationName, waiting)
	dm := w.await(t, setup.MigrationName, "Failed")
	if failed := meta.FindStatusCondition(dm.Status.Conditions, migrationv1.ConditionFailed); failed == nil || !strings.HasPrefix(failed.Message, "LockDeadline: ") {
		t.Errorf("it says %+v", failed)
	}
	if took := dm.Status.Machine.EnteredAt.Time.Sub(first.Status.DatastoreLockedAt.Time); took < 25*time.Second {
		t.Errorf("it gave up after %s", took)
	}
	if dm.Status.Lock != nil || dm.Status.DatastoreLockedAt != nil {
		t.Errorf("nothing is locked, the status says %+v since %v", dm.Status.Lock, dm.Status.DatastoreLockedAt)
	}
	w.remove(t, setup.MigrationName)
	end()
	w.clear(t)
}

// A manager that comes back as another account cannot write through the fence of the one before: it lifts it,
// and releases everything.
func TestFenceOfAnotherAccount(t *testing.T) {
	w := pristine(t)
	dir := gated(t)
	w.start(t, setup.MigrationName, "copied")
	p := w.manager(t, "--phases-dir", dir)
	w.awaitGate(t, setup.MigrationName, "copied")
	if err := p.Stop(harness.Patience); err != nil {
		t.Fatal(err)
	}
	if err := w.Grant(t.Context(), "renamed", managerRules(t)); err != nil {
		t.Fatal(err)
	}
	w.managerAs(t, "renamed", "--phases-dir", dir)
	w.remove(t, setup.MigrationName)
}

// Where the API server has no such policies, the lock is a request, which status and Events say; the migration
// works all the same.
func TestCooperativeLock(t *testing.T) {
	w := own(t, setup.Options{Objects: fixture.Demo(1, objects), Cluster: harness.Options{NoPolicies: []string{harness.ValidatingPolicies, harness.MutatingPolicies}}})
	w.manager(t, "--phases-dir", gated(t))
	w.start(t, setup.MigrationName, "drained")
	dm := w.awaitGate(t, setup.MigrationName, "drained")
	if dm.Status.Lock == nil || dm.Status.Lock.Mode != migrationv1.LockCooperative {
		t.Errorf("status.lock is %+v", dm.Status.Lock)
	}
	if text := w.awaitEvent(t, "ChecksWarn"); !strings.Contains(text, "fence: the lock of v1 is cooperative only") {
		t.Errorf("what is worth knowing is told as %q", text)
	}
	w.remove(t, setup.MigrationName)
	if ready := w.ready(t, v1); !ready {
		t.Error("v1 is locked after an abort")
	}
	before := w.content(t)
	w.start(t, setup.MigrationName, nowhere)
	w.await(t, setup.MigrationName, "Converged")
	assertSameContent(t, before, w.content(t))
}

// The commands of docs/operate/break-glass.md, while no manager runs.
func TestBreakGlass(t *testing.T) {
	w := pristine(t)
	dir := gated(t)
	p := w.manager(t, "--phases-dir", dir)
	w.start(t, setup.MigrationName, "copied")
	w.awaitGate(t, setup.MigrationName, "copied")
	p.Kill()
	w.kubectl(t, "delete", "datastoremigration", setup.MigrationName, "--wait=false")
	saved := w.kubectl(t, "get", "machinestates", "-l", "phasegate.dev/machine=datastore-migration", "-o", `jsonpath={.items[0].status.saved.apiService}`)
	file := filepath.Join(t.TempDir(), "saved-apiservice.json")
	if err := os.WriteFile(file, []byte(saved), 0o600); err != nil {
		t.Fatal(err)
	}
	w.kubectl(t, "replace", "-f", file)
	w.breakGlass(t)
	w.kubectl(t, "patch", "clusterinformations.crd.projectcalico.org", "default", "--type=merge", "-p",
		`{"metadata":{"annotations":{"migration.projectcalico.org/locked-by":null}},"spec":{"datastoreReady":true}}`)
	w.lend(t, guarded(v1, "GlobalNetworkSet", "guarded"), guarded(v1, "CalicoNodeStatus", "guarded"))
	harness.Eventually(t, "the aggregated API to write v1", func() error {
		for _, write := range w.writes("guarded-new") {
			if err := write.try(t.Context()); client.IgnoreAlreadyExists(err) != nil {
				return errors.Join(errors.New(write.name), err)
			}
		}
		return nil
	})
	w.manager(t, "--phases-dir", dir)
	w.awaitGone(t, setup.MigrationName)
	if diff := cmp.Diff([]string{}, w.fences(t)); diff != "" {
		t.Errorf("fences (-want +got):\n%s", diff)
	}
}
