package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// What changes while no manager runs is seen by the next one.
func TestKilledWhileWaiting(t *testing.T) {
	cases := map[string]struct {
		why     string
		block   func(t *testing.T, w *world)
		says    string
		unblock func(t *testing.T, w *world)
	}{
		"Pending": {why: "a blocker goes while nobody looks", says: "CRD ippools.projectcalico.org is not installed",
			block:   func(t *testing.T, w *world) { w.dropCRD(t, "ippools.projectcalico.org") },
			unblock: func(t *testing.T, w *world) { w.restoreCRDs(t) }},
		waiting: {why: "a conflict is resolved while nobody looks", says: "Datastore is locked: ",
			block: func(t *testing.T, w *world) { w.obstruct(t) }, unblock: removeV3},
	}
	w := pristine(t)
	// A lease tells who asks for the status that nobody writes it.
	leases := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}}
	w.do(t, w.Grant(t.Context(), managerAccount, append(managerRules(t), leases)))
	t.Cleanup(func() { w.restoreRights(t) })
	for name, tc := range cases {
		inTurn(t, name, func(t *testing.T) {
			tc.block(t, w)
			args := []string{"--phases-dir", gated(t, underTheLock), "--leader-elect", "--leader-elect-namespace=default", "--leader-elect-lease-name=killed",
				"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=300ms"}
			p := w.manager(t, args...)
			w.start(t, setup.MigrationName, "verified")
			dm := w.awaitMessage(t, setup.MigrationName, tc.says)
			if dm.Status.Machine.Phase != name {
				t.Errorf("phase %s: %s", dm.Status.Machine.Phase, tc.why)
			}
			w.said(t, "kubectl phasegate status -o jsonpath='fresh{.stale.why}.'", 0, "fresh.")
			p.Kill()
			tc.unblock(t, w)
			harness.Eventually(t, "the status to be called stale", func() error {
				out, _, _ := w.typed(t, "kubectl phasegate status -o jsonpath='{.stale.since} {.stale.why}'")
				if !strings.HasPrefix(out, "20") || !strings.Contains(out, "does not renew lease default/killed") || !strings.Contains(out, "there is no pod of a manager in namespace default") {
					return errors.New(out)
				}
				return nil
			})
			w.said(t, "kubectl phasegate status", 0, "‼ This status is stale since ", "kubectl get pods --namespace default ")
			p = w.manager(t, args...)
			w.awaitGate(t, setup.MigrationName, "verified")
			w.said(t, "kubectl phasegate status -o jsonpath='fresh{.stale.why}.'", 0, "fresh.")
			w.remove(t, setup.MigrationName)
			w.assertUntouched(t)
			if err := p.Stop(harness.Patience); err != nil {
				t.Error(err)
			}
		})
	}
}

// After the point of no return a killed manager only ever goes forward.
func TestKilledAfterConverged(t *testing.T) {
	w := own(t, setup.Options{Objects: fixture.Demo(5, objects)})
	foreign := w.installForeignCRD(t)
	before := w.content(t)
	p := w.manager(t)
	if err := w.Migrate(t.Context(), setup.MigrationName); err != nil {
		t.Fatal(err)
	}
	w.await(t, setup.MigrationName, "Converged")
	p.Kill()
	if err := fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace); err != nil {
		t.Fatal(err)
	}
	p = w.manager(t)
	assertAtRest(t, w.await(t, setup.MigrationName, "Complete"), "Ready")
	p.Kill()
	w.restoreMigration(t, setup.MigrationName)
	p = w.manager(t)
	if dm := w.await(t, setup.MigrationName, "Complete"); !slices.Equal(path(dm), []string{"Converged", "Complete"}) {
		t.Errorf("a migrated cluster that was restored went through %v", path(dm))
	}
	w.askRemoval(t, setup.MigrationName)
	w.awaitMessage(t, setup.MigrationName, "of which 0 were verified") // by this one
	p.Kill()
	w.waive(t, setup.MigrationName, "v1-changed")
	for range 3 {
		p = w.manager(t)
		w.awaitMessage(t, setup.MigrationName, "Deleting CRD")
		p.Kill()
	}
	w.manager(t)
	w.awaitGone(t, setup.MigrationName)
	w.assertV1Gone(t, foreign)
	assertSameContent(t, before, w.content(t))
	if err := w.Migrate(t.Context(), setup.MigrationName); err != nil { // as GitOps does
		t.Fatal(err)
	}
	assertAtRest(t, w.await(t, setup.MigrationName, "Complete"), "Ready")
	w.remove(t, setup.MigrationName)
}

// restoreMigration leaves a migration as a backup brings it back: with another UID, with its finalizers, without
// a status.
func (w *world) restoreMigration(t *testing.T, name string) {
	t.Helper()
	dm := w.read(t, name)
	restored := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: dm.Annotations, Finalizers: dm.Finalizers}, Spec: dm.Spec}
	w.kubectl(t, "patch", "datastoremigration", name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	w.askRemoval(t, name)
	w.awaitGone(t, name)
	if err := w.Client.Create(t.Context(), restored); err != nil {
		t.Fatal(err)
	}
}

// An API server that does not answer for a while is waited for.
func TestAPIServerHangs(t *testing.T) {
	w := pristine(t)
	before := w.content(t)
	w.manager(t, "--phases-dir", gated(t))
	w.start(t, setup.MigrationName, "v3locked")
	w.awaitGate(t, setup.MigrationName, "v3locked")
	w.annotate(t, setup.MigrationName, map[string]string{openGates: gatesBefore("verified")})
	w.awaitStatus(t, setup.MigrationName, "copying", holds("v3Copies"))
	w.freezeAPIServer(t, 3*time.Second)
	w.awaitGate(t, setup.MigrationName, "verified")
	assertSameContent(t, before, w.content(t))
	w.remove(t, setup.MigrationName)
}

// A list that fails is an error to be retried, never "there is nothing".
func TestErrorsInTheMiddle(t *testing.T) {
	cases := map[string]struct {
		why, stopAt string
		spoil, mend func(t *testing.T, w *world)
		says        []string
	}{
		"v1 may not be listed any more": {why: "an empty answer would lose every object", stopAt: "v3locked",
			spoil: func(t *testing.T, w *world) { w.revoke(t, "crd.projectcalico.org", "*", "list") },
			mend:  func(t *testing.T, w *world) { w.restoreRights(t) },
			says:  []string{"forbidden", "crd.projectcalico.org"}},
		"a v3 CRD goes": {why: "it is named, and the copy goes on when it is back", stopAt: "v3locked",
			// Its copies go with it: they have no finalizer, as pools have.
			spoil: func(t *testing.T, w *world) { w.dropCRD(t, "globalnetworksets.projectcalico.org") },
			mend:  func(t *testing.T, w *world) { w.restoreCRDs(t) },
			says:  []string{"globalnetworksets.projectcalico.org"}},
	}
	w := pristine(t)
	before := w.content(t)
	w.manager(t, "--phases-dir", gated(t))
	for name, tc := range cases {
		inTurn(t, name, func(t *testing.T) {
			t.Cleanup(func() { tc.mend(t, w) })
			w.start(t, setup.MigrationName, tc.stopAt)
			w.awaitGate(t, setup.MigrationName, tc.stopAt)
			tc.spoil(t, w)
			w.annotate(t, setup.MigrationName, map[string]string{openGates: gatesBefore("verified")})
			for _, part := range tc.says {
				if dm := w.awaitMessage(t, setup.MigrationName, part); dm.Status.Phase != "Migrating" {
					t.Fatalf("phase %s: %s", dm.Status.Phase, tc.why)
				}
			}
			tc.mend(t, w)
			w.awaitGate(t, setup.MigrationName, "verified")
			assertSameContent(t, before, w.content(t))
			w.remove(t, setup.MigrationName)
			w.assertUntouched(t)
		})
	}
}

// revoke takes a right of the manager away, until restoreRights.
func (w *world) revoke(t *testing.T, group, resource string, verbs ...string) {
	t.Helper()
	if err := w.Grant(t.Context(), managerAccount, w.without(t, managerRules(t), group, resource, verbs...)); err != nil {
		t.Fatal(err)
	}
}

func (w *world) restoreRights(t *testing.T) {
	t.Helper()
	if err := w.Grant(context.WithoutCancel(t.Context()), managerAccount, managerRules(t)); err != nil {
		t.Fatal(err)
	}
}
