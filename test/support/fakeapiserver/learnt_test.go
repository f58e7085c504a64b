package fakeapiserver_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// testLearnt checks what TestRealAPIServer of test/e2e showed of Calico's own API server.
func testLearnt(t *testing.T) {
	t.Run("managers of fields", testManagers)
	t.Run("refused by v1", testRefusedByV1)
}

// Calico's API server hides the managedFields of its clients in v1's annotation, too.
func testManagers(t *testing.T) {
	kind, v1, v3 := both(t, "IPReservation", "")
	want := object(kind.Name(), "managed", map[string]any{"reservedCIDRs": []any{"10.10.0.0/24"}})
	want.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "gitops", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "projectcalico.org/v3", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:reservedCIDRs":{}}}`),
	}})
	created, err := v3.Create(t.Context(), want, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := v1.Get(t.Context(), "managed", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.GetManagedFields(), created.GetManagedFields()); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.GetManagedFields(), resources.V1FieldOwners(stored)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// Calico's API server answers a refusal of v1 as an internal error.
func testRefusedByV1(t *testing.T) {
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	policy, binding := closed()
	for _, obj := range []client.Object{policy, binding} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Delete(context.Background(), obj) })
	}
	_, _, tiers := both(t, "Tier", "")
	deadline := time.Now().Add(30 * time.Second) // an API server uses a new policy after its next reload, within seconds
	for {
		_, err = tiers.Create(t.Context(), object("Tier", "refused", map[string]any{"defaultAction": "Pass"}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil || time.Now().After(deadline) {
			break
		}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusInternalServerError || !strings.Contains(err.Error(), "connection is unauthorized: ") || !strings.Contains(err.Error(), "closed for a test") {
		t.Errorf("create: %v, want code 500 with what the policy says", err)
	}
}

// closed refuses the tier named refused in v1, and no other: the API server uses the policy for a while after its deletion.
func closed() (*registrationv1.ValidatingAdmissionPolicy, *registrationv1.ValidatingAdmissionPolicyBinding) {
	meta, forbidden := metav1.ObjectMeta{Name: "closed-for-a-test"}, metav1.StatusReasonForbidden
	return &registrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: registrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &registrationv1.MatchResources{ResourceRules: []registrationv1.NamedRuleWithOperations{{RuleWithOperations: registrationv1.RuleWithOperations{
				Operations: []registrationv1.OperationType{registrationv1.Create},
				Rule:       registrationv1.Rule{APIGroups: []string{resources.V1Group}, APIVersions: []string{"*"}, Resources: []string{"tiers"}},
			}}}},
			Validations: []registrationv1.Validation{{Expression: "object.metadata.name != 'refused'", Message: "closed for a test", Reason: &forbidden}},
		}}, &registrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: registrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: meta.Name, ValidationActions: []registrationv1.ValidationAction{registrationv1.Deny},
		}}
}
