package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// inConflict is the phase in which a migration waits for a person; here nothing in it is hurried.
const inConflict = "WaitingForConflictResolution"

// migrate applies the migration, and waits until it stands before the obstacle.
func (w *world) migrate(t *testing.T) *migrationv1.DatastoreMigration {
	t.Helper()
	w.kubectl(t, "apply", "-f", "testdata/migration.yaml")
	w.goOnAlone(t)
	return w.awaitMigration(t, "before the obstacle, saying so", func(dm *migrationv1.DatastoreMigration) bool {
		return dm.Status.Machine.Phase == inConflict && strings.Contains(dm.Status.Message, obstacle)
	})
}

// goOnAlone decides that a migration may begin though no second manager is left where the one of the story is lost.
func (w *world) goOnAlone(t *testing.T) {
	t.Helper()
	dm := w.awaitMigration(t, "asking for a second manager", func(dm *migrationv1.DatastoreMigration) bool {
		return strings.Contains(dm.Status.Message, "managers are ready on one node only")
	})
	w.kubectl(t, "annotate", "datastoremigration", dm.Name, migrationv1.WaiverAnnotation("manager-replicas", dm.UID))
}

func (w *world) awaitMigration(t *testing.T, what string, met func(*migrationv1.DatastoreMigration) bool) *migrationv1.DatastoreMigration {
	t.Helper()
	var dm *migrationv1.DatastoreMigration
	harness.Eventually(t, "the migration "+what, func() (err error) {
		if dm, err = w.Migration(t.Context(), setup.MigrationName); err != nil {
			return err
		}
		if !met(dm) {
			return fmt.Errorf("phase %q, step %q: %s", dm.Status.Phase, dm.Status.Machine.Step, dm.Status.Message)
		}
		return nil
	})
	return dm
}

func (w *world) awaitMessage(t *testing.T, parts ...string) {
	t.Helper()
	w.awaitMigration(t, fmt.Sprintf("saying %q", parts), func(dm *migrationv1.DatastoreMigration) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(dm.Status.Message, part) })
	})
}

func (w *world) awaitPhase(t *testing.T, phase string) *migrationv1.DatastoreMigration {
	t.Helper()
	return w.awaitMigration(t, "in phase "+phase, func(dm *migrationv1.DatastoreMigration) bool { return dm.Status.Machine.Phase == phase })
}

// drivenAnew says that another revision of the machine drives a migration than before.
func drivenAnew(before *migrationv1.DatastoreMigration) func(*migrationv1.DatastoreMigration) bool {
	return func(dm *migrationv1.DatastoreMigration) bool {
		return dm.Status.Phase == before.Status.Phase && dm.Status.Machine.Revision != before.Status.Machine.Revision
	}
}

// mistakes: a value that is wrong changes nothing, and the objects on their way say why, as often as it comes.
func mistakes(t *testing.T, w *world) {
	before := w.migrate(t)
	w.kubectl(t, "apply", "-f", "testdata/lost.yaml")
	w.kubectl(t, "wait", "-n", "tools", "mcpserver", "lost", "--for=jsonpath={.status.phase}=Failed", "--timeout=3m")
	for _, said := range []string{"MachineRefused", "(x2 over"} {
		w.pollEvery(t, "sometimes")
		for _, object := range [][]string{{"datastoremigration/" + setup.MigrationName}, {"mcpserver/lost", "-n", "tools"}} {
			harness.Eventually(t, "an Event of "+object[0], func() error {
				events := w.kubectl(t, append([]string{"events", "--types=Warning", "--for"}, object...)...)
				if strings.Contains(events, `"sometimes" is not a positive duration`) && strings.Contains(events, said) {
					return nil
				}
				return errors.New(events)
			})
		}
		w.pollEvery(t, "10m")
		for _, controller := range []string{migrating, serving} {
			pod := w.awaitReady(t, controller, 1)[0]
			harness.Eventually(t, "no file to be refused by "+controller, func() error {
				if _, text, err := w.metrics(t, pod, w.scraper(t, "prometheus")); err != nil || strings.Contains(text, "phasegate_machine_refused{") {
					return fmt.Errorf("phasegate_machine_refused is there, or: %w", err)
				}
				return nil
			})
		}
	}
	if now := w.awaitPhase(t, inConflict); now.Status.Machine.Revision != before.Status.Machine.Revision {
		t.Errorf("revision %s, was %s: a wrong machine has been in force", now.Status.Machine.Revision, before.Status.Machine.Revision)
	}
}

// pollEvery gives a phase of each machine another poll interval.
func (w *world) pollEvery(t *testing.T, interval string) {
	t.Helper()
	w.upgradeTo(t, w.chart(t, firstVersion), "--set", pollOfConflict+"="+interval, "--set", "machines.override.mcpserver.phases.Failed.poll="+interval)
}

// pollInterval: a value of the chart reaches the running process, and the object that waits.
func pollInterval(t *testing.T, w *world) {
	before := w.awaitPhase(t, inConflict)
	process := w.process(t, migrating)
	for _, poll := range []string{"40s", "20s"} {
		w.upgradeTo(t, w.chart(t, firstVersion), "--set", pollOfConflict+"="+poll)
		before = w.awaitMigration(t, "looked at every "+poll, drivenAnew(before))
	}
	if now := w.process(t, migrating); now.PID() != process.PID() {
		t.Errorf("the process was replaced (%d, now %d): an edit of a machine needs no restart", process.PID(), now.PID())
	}
}

// abort: the way back, from before the lock, and from under it where nothing may be copied ahead.
func abort(t *testing.T, w *world) {
	const ahead = "controllers.datastoremigration.copyAhead.enabled"
	w.abort(t)
	w.taken = append(w.taken, rbac.Flatten("", *grantOf(w.role(t, account(migrating)+"-copyahead")).rules...)...)
	w.upgradeTo(t, w.chart(t, firstVersion), "--set", ahead+"=false")
	if dm := w.migrate(t); dm.Status.DatastoreLockedAt == nil {
		t.Errorf("it met the obstacle before the lock: %s", dm.Status.Message)
	}
	w.abort(t)
	w.upgradeTo(t, w.chart(t, firstVersion), "--set", ahead+"=true")
}

func (w *world) abort(t *testing.T) {
	t.Helper()
	w.kubectl(t, "delete", "datastoremigration", setup.MigrationName, "--timeout=3m")
	if ready := w.kubectl(t, "get", "clusterinformations.v1.crd.projectcalico.org", "default", "-o", "jsonpath={.spec.datastoreReady}"); ready != "true" {
		t.Errorf("v1 is not released: datastoreReady is %q", ready)
	}
	if service := w.kubectl(t, "get", "apiservice", "v3.projectcalico.org", "-o", "jsonpath={.spec.service.name}"); service == "" {
		t.Error("v3 is not served by the API server of Calico again")
	}
}

// complete: the obstacle goes, and the migration goes on to its end by itself.
func complete(t *testing.T, w *world) {
	w.kubectl(t, "delete", "globalnetworksets."+migrationv1.SideDoorVersion+".projectcalico.org", obstacle)
	w.awaitPhase(t, "Converged")
	if err := fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace); err != nil {
		t.Fatal(err)
	}
	w.awaitPhase(t, "Complete")
	w.kubectl(t, "wait", "--for=condition=Ready", "datastoremigration", setup.MigrationName, "--timeout=3m")
}

// cleanUp: without the rights to keep v1 and to delete it a deletion waits and says so; a value of the chart grants them.
func cleanUp(t *testing.T, w *world) {
	const enabled = "controllers.datastoremigration.cleanup.enabled"
	w.upgradeTo(t, w.chart(t, secondVersion), "--set", enabled+"=false")
	w.kubectl(t, "delete", "datastoremigration", setup.MigrationName, "--wait=false")
	w.awaitMessage(t, "no v1 CRD is deleted", "get secrets in namespace "+setup.CalicoNamespace, enabled)
	w.kubectl(t, "get", "clusterinformations.v1.crd.projectcalico.org", "default") // nothing has been deleted
	w.upgradeTo(t, w.chart(t, secondVersion), "--set", enabled+"=true")
	harness.Eventually(t, "the migration and the v1 CRDs to be gone", func() error {
		dm, err := w.Migration(t.Context(), setup.MigrationName)
		if err == nil {
			return fmt.Errorf("phase %q, step %q: %s", dm.Status.Phase, dm.Status.Machine.Step, dm.Status.Message)
		}
		if !apierrs.IsNotFound(err) {
			return err
		}
		return w.v1CRDsGone(t)
	})
}

func (w *world) v1CRDsGone(t *testing.T) error {
	there := &metav1.PartialObjectMetadataList{}
	there.SetGroupVersionKind(crdKind)
	if err := w.Client.List(t.Context(), there); err != nil {
		return err
	}
	for _, kind := range w.Registry.All() {
		for _, crd := range there.Items {
			if crd.Name == kind.V1Plural()+".crd.projectcalico.org" {
				return fmt.Errorf("%s is there", crd.Name)
			}
		}
	}
	return nil
}

// crd reads one; nil if there is none.
func (w *world) crd(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(crdKind)
	err := w.Client.Get(t.Context(), types.NamespacedName{Name: name}, crd)
	if apierrs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return crd
}

// changed is a copy of the chart, to be packaged, in which one machine says something else.
func (w *world) changed(t *testing.T, machine, old, text string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "phasegate")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(w.root, "charts", "phasegate"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "files", "machines", machine+".yaml")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	after := strings.Replace(string(before), old, text, 1)
	if after == string(before) {
		t.Fatal(errors.New(path + " does not say " + old))
	}
	if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
