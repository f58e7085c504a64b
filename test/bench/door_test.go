package bench

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// refuseDoor makes the API server refuse the version through which a migration copies
// ahead, and returns once it does: it is for clusters whose CRDs somebody keeps as they are.
func refuseDoor(ctx context.Context, s *setup.Setup) error {
	forbidden, fail := metav1.StatusReasonForbidden, admissionv1.Fail
	meta := metav1.ObjectMeta{Name: "no-side-door"}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta}
	policy.Spec.FailurePolicy = &fail
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule: admissionv1.Rule{
				APIGroups: []string{apiextensionsv1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"customresourcedefinitions"},
			},
		},
	}}}
	policy.Spec.Validations = []admissionv1.Validation{{
		Expression: fmt.Sprintf("!object.spec.versions.exists(v, v.name == %q)", migrationv1.SideDoorVersion),
		Message:    "the versions of CRDs are not to be changed", Reason: &forbidden,
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta}
	binding.Spec.PolicyName = meta.Name
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
	for _, obj := range []client.Object{policy, binding} {
		if err := s.Client.Create(ctx, obj); err != nil {
			return fmt.Errorf("refuse the side door: %w", err)
		}
	}
	opens := client.RawPatch(types.JSONPatchType, fmt.Appendf(nil,
		`[{"op":"copy","from":"/spec/versions/0","path":"/spec/versions/-"},{"op":"replace","path":"/spec/versions/1/name","value":%q},{"op":"replace","path":"/spec/versions/1/storage","value":false}]`, migrationv1.SideDoorVersion))
	return harness.Await(ctx, "the side door to be refused", patience, func(ctx context.Context) error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		crd.Name = s.Registry.Lock().V3CRDName()
		err := s.Client.Patch(ctx, crd, opens, client.DryRunAll)
		if err == nil {
			return errors.New("a dry run of opening it is accepted")
		}
		if !apierrs.IsForbidden(err) {
			return harness.Permanent(err)
		}
		return nil
	})
}
