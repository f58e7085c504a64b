package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// forbid lets an admission policy refuse one object of v3, as nothing before the cutover can tell, and
// returns what lifts it. It is in force when this returns.
func (w *world) forbid(t *testing.T) (lift func()) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "e2e-forbid"}
	fail := admissionv1.Fail
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{
					APIGroups: []string{resources.V3Group, "policy"}, APIVersions: []string{"*"},
					Resources: []string{"globalnetworksets", "poddisruptionbudgets"},
				},
			},
		}}},
		Validations: []admissionv1.Validation{{Expression: `object.metadata.name != "blocklist-3"`, Message: "blocklist-3 is frozen by change control"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	for _, obj := range []client.Object{policy, binding} {
		if err := w.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		for _, obj := range []client.Object{binding, policy} {
			if err := client.IgnoreNotFound(w.Client.Delete(context.Background(), obj)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(remove)
	harness.Eventually(t, "the admission policy in force", func() error { return w.probe(true) })
	return func() {
		remove()
		harness.Eventually(t, "the admission policy lifted", func() error { return w.probe(false) })
	}
}

// A migration that fails releases everything by itself, says why, and can be tried again.
func TestRefusedUnderTheLock(t *testing.T) {
	w := pristine(t)
	lift := w.forbid(t)
	w.manager(t, "--phases-dir", gated(t, underTheLock))
	w.start(t, setup.MigrationName, "verified")
	dm := w.await(t, setup.MigrationName, "Failed")
	if diff := cmp.Diff([]string{"Pending", "Migrating", "RollingBack", "Failed"}, path(dm)); diff != "" {
		t.Errorf("the way it came (-want +got):\n%s", diff)
	}
	assertAtRest(t, dm, "Stalled")
	if len(dm.Status.Machine.HeldNames()) > 0 {
		t.Errorf("still holds %v", dm.Status.Machine.HeldNames())
	}
	for _, part := range []string{"GlobalNetworkSet blocklist-3", "frozen by change control", "then try again"} {
		w.awaitMessage(t, dm.Name, part)
	}
	w.assertUntouched(t)

	t.Run("retry", func(t *testing.T) {
		request := map[string]string{"phasegate.dev/retry": "first"}
		w.annotate(t, dm.Name, request)
		again := w.awaitStatus(t, dm.Name, "Failed again", failedTimes(2))
		w.annotate(t, dm.Name, map[string]string{"unrelated": "wakes the machine"})
		w.annotate(t, dm.Name, request) // the same token once more
		lift()
		w.annotate(t, dm.Name, map[string]string{"unrelated": "wakes it once more"})
		if diff := cmp.Diff(path(again), path(w.read(t, dm.Name))); diff != "" {
			t.Errorf("one request was acted on twice (-before +after):\n%s", diff)
		}
		w.annotate(t, dm.Name, map[string]string{"phasegate.dev/retry": "second"})
		dm := w.awaitGate(t, dm.Name, "verified")
		want := []string{"Pending", "Migrating", "RollingBack", "Failed", "Pending", "Migrating", "RollingBack", "Failed", "Pending", "Migrating"}
		if diff := cmp.Diff(want, path(dm)); diff != "" {
			t.Errorf("the way it came (-want +got): each request leads back to Pending once\n%s", diff)
		}
		if diff := cmp.Diff("second", dm.Status.Machine.Requests[0].Token); diff != "" {
			t.Errorf("the token on record (-want +got):\n%s", diff)
		}
	})
	w.remove(t, setup.MigrationName)
}

// A right that goes under the lock is no reason to keep the datastore locked. Nothing is left to do when the failed migration
// is deleted.
func TestRightsGoUnderTheLock(t *testing.T) {
	w := pristine(t)
	t.Cleanup(func() { w.restoreRights(t) })
	w.manager(t, "--phases-dir", gated(t, underTheLock))
	w.start(t, setup.MigrationName, "v3locked")
	w.awaitGate(t, setup.MigrationName, "v3locked")
	w.revoke(t, resources.V3Group, "*", "create")
	w.annotate(t, setup.MigrationName, map[string]string{openGates: gatesBefore("verified")})
	dm := w.await(t, setup.MigrationName, "Failed")
	for _, part := range []string{"cannot create resource", "in API group \"projectcalico.org\""} {
		w.awaitMessage(t, dm.Name, part)
	}
	w.assertUntouched(t)
	w.remove(t, setup.MigrationName)
}

// A second migration is told which one is in its way, and goes without a trace.
func TestSecondMigration(t *testing.T) {
	w := pristine(t)
	w.manager(t, "--phases-dir", gated(t))
	w.start(t, "the-first.one", "locked")
	w.awaitGate(t, "the-first.one", "locked")
	w.start(t, "the-second", nowhere)
	second := w.awaitStatus(t, "the-second", "rejected", func(dm *migrationv1.DatastoreMigration) bool { // also in its status, which follows
		return dm.Status.Machine.Phase == "Rejected" && dm.Status.Phase == "Failed"
	})
	assertAtRest(t, second, "Stalled")
	if !strings.Contains(second.Status.Message, "the-first.one") || len(second.Finalizers) > 0 || second.Status.Phase != "Failed" {
		t.Errorf("phase %s, finalizers %v: %s", second.Status.Phase, second.Finalizers, second.Status.Message)
	}
	w.remove(t, "the-second")
	first := w.read(t, "the-first.one")
	if diff := cmp.Diff(held("v1Lock"), first.Status.Machine.HeldNames()); diff != "" {
		t.Errorf("the first one was disturbed (-want +got):\n%s", diff)
	}
	w.remove(t, "the-first.one")
}

// probe is nil if the policy's state is the wanted one. It asks about a kind that has nothing to do with
// Calico, because v3 of this moment is v1 in disguise; the policy minds the name only.
func (w *world) probe(refused bool) error {
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "blocklist-3", Namespace: metav1.NamespaceDefault}}
	err := w.Client.Create(context.Background(), pdb, client.DryRunAll)
	if got := apierrs.IsInvalid(err) || apierrs.IsForbidden(err); got != refused {
		return errors.Join(fmt.Errorf("refused is %t", got), err)
	}
	return nil
}
