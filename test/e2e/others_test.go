package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// What others on the cluster do while a migration holds the lock, with a real manager.

// crdFile is a CRD of migrations: ours, or Calico's own.
func crdFile(t *testing.T, theirs bool) string {
	t.Helper()
	const name = "migration.projectcalico.org_datastoremigrations.yaml"
	if !theirs {
		return filepath.Join(root(t), "charts", "phasegate", "files", "crds", name)
	}
	if os.Getenv(crds.EnvDir) == "" {
		t.Skipf("not run: %s names no directory with Calico's CRDs", crds.EnvDir)
	}
	return filepath.Join(os.Getenv(crds.EnvDir), "migration", name)
}

// A GitOps tool applies Calico's own CRD over ours while v1 is locked. The status loses the
// machine; the migration loses nothing: people see where it is, and a deletion releases all.
func TestForeignCRDUnderTheLock(t *testing.T) {
	theirs := crdFile(t, true)
	w := pristine(t)
	w.manager(t, "--phases-dir", gated(t))
	w.start(t, setup.MigrationName, "locked")
	w.awaitGate(t, setup.MigrationName, "locked")
	w.kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", theirs)
	t.Cleanup(func() {
		if !onPeersCRDs {
			w.kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", crdFile(t, false))
		}
	})
	shown := &migrationv1.DatastoreMigration{}
	harness.Eventually(t, "the view to be of Calico's CRD", func() error {
		if err := w.Client.Get(t.Context(), types.NamespacedName{Name: setup.MigrationName}, shown); err != nil {
			return err
		}
		if shown.Status.Machine.Phase != "" || shown.Status.Phase != "Migrating" {
			return fmt.Errorf("phase %q, machine %q", shown.Status.Phase, shown.Status.Machine.Phase)
		}
		return nil
	})
	dm := w.read(t, setup.MigrationName)
	if !dm.Status.Machine.IsHeld("v1Lock") || dm.Status.Lock == nil || dm.Status.Lock.Deadline == nil {
		t.Errorf("the state lost what is held: %v, lock %+v", dm.Status.Machine.HeldNames(), dm.Status.Lock)
	}
	if out := w.phasegate(t, "status", setup.MigrationName); !strings.Contains(out, "v1Lock") {
		t.Errorf("the command line does not show what is held:\n%s", out)
	}
	if described := w.assertStateReadable(t, setup.MigrationName); !strings.Contains(described, "v1Lock → UnlockV1") {
		t.Errorf("kubectl describe of the state does not show the lock:\n%s", described)
	}
	w.remove(t, setup.MigrationName)
	w.assertNoStates(t, "DatastoreMigration")
}

// The finalizer is removed by hand and the CRD deleted under the lock: the manager gives
// everything back in the name of a migration that is gone, without its CRD.
func TestCRDDeletedUnderTheLock(t *testing.T) {
	w := pristine(t)
	w.manager(t, "--phases-dir", gated(t))
	w.start(t, setup.MigrationName, "copied")
	w.awaitGate(t, setup.MigrationName, "copied")
	w.kubectl(t, "delete", "crd", migrationv1.CRDName, "--wait=false")
	w.kubectl(t, "patch", "datastoremigration", setup.MigrationName, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	w.assertNoStates(t, "DatastoreMigration")
	if events := w.kubectl(t, "get", "events.events.k8s.io", "-A", "-o", "custom-columns=REASON:.reason"); !strings.Contains(events, "ObjectGone") {
		t.Errorf("no Event says that the migration is gone:\n%s", events)
	}
	harness.Eventually(t, "the CRD to be gone", func() error { return w.noCRD(t, migrationv1.CRDName) })
	w.installCRDs(t)
}

// installCRDs puts back what the test took away.
func (w *world) installCRDs(t *testing.T) {
	t.Helper()
	driven, err := crds.Driven(root(t))
	if err == nil {
		err = crds.Install(t.Context(), w.Config, driven)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) noCRD(t *testing.T, name string) error {
	t.Helper()
	err := w.Client.Get(t.Context(), types.NamespacedName{Name: name}, &apiextensionsv1.CustomResourceDefinition{})
	if apierrs.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("it is there: %w", err)
}

// The CRD of states is deleted under the lock: the state stays, since it holds something, and
// a deletion releases everything. What is left is a finalizer, and the way out is told.
func TestStatesCRDDeletedUnderTheLock(t *testing.T) {
	w := pristine(t)
	w.manager(t, "--phases-dir", gated(t))
	w.start(t, setup.MigrationName, "locked")
	w.awaitGate(t, setup.MigrationName, "locked")
	w.kubectl(t, "delete", "crd", v1alpha1.MachineStateCRD, "--wait=false")
	w.askRemoval(t, setup.MigrationName)
	harness.Eventually(t, "the CRD of states to be gone", func() error { return w.noCRD(t, v1alpha1.MachineStateCRD) })
	w.installCRDs(t)
	harness.Eventually(t, "the way out to be told", func() error {
		dm, err := w.Migration(t.Context(), setup.MigrationName)
		if apierrs.IsNotFound(err) {
			return nil // its last write came before the CRD went
		}
		if err == nil && !strings.Contains(dm.Status.Message, "then remove the finalizer") {
			err = fmt.Errorf("it says %q", dm.Status.Message)
		}
		return err
	})
	dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: setup.MigrationName}}
	none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := client.IgnoreNotFound(w.Client.Patch(t.Context(), dm, none)); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(t, setup.MigrationName)
}

// assertNoStates waits until objects of the kinds have left no state. A state of another
// kind is another test's, whose manager may have been stopped before it dropped it.
func (w *world) assertNoStates(t *testing.T, kinds ...string) {
	t.Helper()
	harness.Eventually(t, "no state to be left", func() error {
		list := &v1alpha1.MachineStateList{}
		if err := w.Client.List(t.Context(), list); err != nil {
			return err
		}
		for i := range list.Items {
			if !slices.Contains(kinds, list.Items[i].Spec.Object.Kind) {
				continue
			}
			return fmt.Errorf("%s is in %s and holds %v", list.Items[i].Name, list.Items[i].Status.Phase, list.Items[i].Status.HeldNames())
		}
		return nil
	})
}
