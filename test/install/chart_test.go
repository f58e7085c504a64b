package install

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// Versions of the chart. There is no published one yet: the first is the chart of this checkout under
// an older number, the second has another machine besides.
const (
	firstVersion  = "0.0.1"
	secondVersion = "0.0.2"
)

const (
	pollOfConflict = "machines.override.datastore-migration.phases." + inConflict + ".poll"
	migrationCRD   = "datastoremigrations.migration.projectcalico.org"
)

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// chart is the archive of a version.
func (w *world) chart(t *testing.T, version string) string {
	t.Helper()
	archive := filepath.Join(w.helmHome, "phasegate-"+version+".tgz")
	if found, err := filepath.Glob(archive); err != nil || len(found) > 0 {
		return archive
	}
	source := filepath.Join(w.root, "charts", "phasegate")
	if version == secondVersion {
		source = w.changed(t, "datastore-migration", "timeout: {after: 4h, stalled: RolloutStalled}", "timeout: {after: 5h, stalled: RolloutStalled}")
	}
	w.helm(t, "package", source, "--version", version, "--destination", w.helmHome)
	return archive
}

// upgradeTo changes the release, and keeps the values that it has.
func (w *world) upgradeTo(t *testing.T, chart string, args ...string) {
	t.Helper()
	w.helm(t, append([]string{"upgrade", release, chart, "--reuse-values"}, args...)...)
}

// install: one command, and what it says next.
func install(t *testing.T, w *world) {
	said := w.helm(t, "install", release, w.chart(t, firstVersion), "--create-namespace", "--values", "testdata/values.yaml", "--values", "testdata/older.yaml", "--wait", "--timeout", "3m")
	if !strings.Contains(said, "STATUS: deployed") || !strings.Contains(said, "kubectl") {
		t.Errorf("helm does not say that it is done, and what to do next:\n%s", said)
	}
	for _, controller := range []string{migrating, serving} {
		w.awaitReady(t, controller, 1)
	}
	w.createDependents(t)
}

// createDependents gives an object of Calico what is none of Calico's, as users see the owner before a migration.
func (w *world) createDependents(t *testing.T) {
	t.Helper()
	owner := &unstructured.Unstructured{}
	owner.SetAPIVersion("projectcalico.org/v3")
	owner.SetKind("Tier")
	w.read(t, types.NamespacedName{Name: fixture.OwnerTier}, owner)
	meta := metav1.ObjectMeta{Name: "owned-by-a-tier", Namespace: metav1.NamespaceDefault, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}}}
	for _, obj := range []client.Object{&corev1.ConfigMap{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}} {
		if err := w.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}

// upgrade: another version of the chart replaces the manager while a migration waits.
func upgrade(t *testing.T, w *world) {
	before := w.migrate(t)
	process := w.process(t, migrating)
	w.upgradeTo(t, w.chart(t, secondVersion), "--set", "controllers.datastoremigration.replicas=2", "--wait")
	w.awaitReady(t, migrating, 2)
	if process.Alive() == nil {
		t.Errorf("the process of the old version still runs")
	}
	w.awaitMigration(t, "driven by the new machine", func(dm *migrationv1.DatastoreMigration) bool {
		return dm.Status.Machine.Revision != before.Status.Machine.Revision && dm.Status.Phase == inConflict
	})
}

// leaderGoes: of two managers one works; it is lost without a word, and the other goes on.
func leaderGoes(t *testing.T, w *world) {
	pods := w.awaitReady(t, migrating, 2)
	leader := w.leaderOf(t, pods)
	if err := w.pods.Lose(leader); err != nil {
		t.Fatal(err)
	}
	other := slices.DeleteFunc(slices.Clone(pods), func(pod types.NamespacedName) bool { return pod == leader })
	harness.Eventually(t, "the other manager to lead", func() error { return w.leads(t, other[0]) })
	before := w.awaitPhase(t, inConflict)
	w.upgradeTo(t, w.chart(t, secondVersion), "--set", pollOfConflict+"=10s")
	w.awaitMigration(t, "driven by the other manager", drivenAnew(before))
	w.upgradeTo(t, w.chart(t, secondVersion), "--set", "controllers.datastoremigration.replicas=1")
}

// uninstall: the program goes; what users have made, and the locks that are held for it, stay.
func uninstall(t *testing.T, w *world) {
	before := w.awaitPhase(t, inConflict)
	said := w.uninstall(t)
	if !strings.Contains(said, "kept due to the resource policy") || !strings.Contains(said, migrationCRD) {
		t.Errorf("helm does not say that the CRDs stay:\n%s", said)
	}
	if w.crd(t, migrationCRD) == nil {
		t.Fatal("the CRD is gone, and with it the migration")
	}
	if said, err := w.try(t, filepath.Join("tools", "kubectl"), "delete", "crd", migrationCRD, "--wait=false"); err == nil || !strings.Contains(said, setup.MigrationName+" exists and would be deleted with its CRD") {
		t.Fatalf("the CRD can be deleted, and the migration with it (%v): %s", err, said)
	}
	if now := w.awaitPhase(t, inConflict); now.UID != before.UID || now.DeletionTimestamp != nil {
		t.Fatalf("the migration is not the same (uid %s, was %s; deleted at %v)", now.UID, before.UID, now.DeletionTimestamp)
	}
	w.helm(t, "install", release, w.chart(t, secondVersion), "--values", "testdata/values.yaml", "--set", pollOfConflict+"=1s", "--wait", "--timeout", "3m")
	w.awaitReady(t, migrating, 1)
}

// uninstallForGood: nothing complains, and nothing is left but the CRDs.
func uninstallForGood(t *testing.T, w *world) {
	w.uninstall(t)
	kinds := "clusterroles,clusterrolebindings" // the guard of the CRD stays with it
	if left := w.kubectl(t, "get", kinds, "-o", "name", "-l", "app.kubernetes.io/instance="+release); left != "" {
		t.Errorf("these are left in the cluster:\n%s", left)
	}
	if left := w.kubectl(t, "get", "deployments,configmaps,roles,rolebindings,services,serviceaccounts", "-n", system, "-o", "name", "-l", "app.kubernetes.io/instance="+release); left != "" {
		t.Errorf("these are left in the namespace:\n%s", left)
	}
	if crashed := w.pods.Crashed(); len(crashed) > 0 {
		t.Errorf("processes of these pods ended by themselves: %v", crashed)
	}
	w.assertNoComplaints(t)
}
