package datastoremigration

import (
	"fmt"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

const (
	fencePolicies = "validatingadmissionpolicies"
	fenceBindings = "validatingadmissionpolicybindings"
)

// Kubernetes itself deletes what belongs to something that was deleted. It would try for
// ever, and namespaces would not end.
const deletedByKubernetes = `request.operation == "DELETE" && request.userInfo.username in [` +
	`"system:serviceaccount:kube-system:generic-garbage-collector", "system:serviceaccount:kube-system:namespace-controller", "system:kube-controller-manager"]`

// fencePolicy refuses writes of v1 while this migration has it locked; a lock of anybody
// else is not its business, however long it stands there. The lock is its parameter,
// because parameters reach an API server at once, and policies within a second. user is
// the account that migrates: it writes freely, and is refused as all are in a dry run,
// which is how it finds out whether the fence works.
//
// whileUnknown is what an API server does that does not know the parameter yet.
//
// Everything is written out that the API server would fill in, so that what is stored can
// be compared.
func fencePolicy(dm *migration, lock schema.GroupVersionKind, user string, whileUnknown admissionregistrationv1.FailurePolicyType) *admissionregistrationv1.ValidatingAdmissionPolicy {
	equivalent, all, forbidden := admissionregistrationv1.Equivalent, admissionregistrationv1.AllScopes, metav1.StatusReasonForbidden
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: fenceMeta(dm),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind:     &admissionregistrationv1.ParamKind{APIVersion: lock.GroupVersion().String(), Kind: lock.Kind},
			FailurePolicy: &whileUnknown,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: &equivalent,
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{resources.V1Group}, APIVersions: []string{"*"}, Resources: []string{"*/*"}, Scope: &all},
				}}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "not-the-migration", Expression: fmt.Sprintf("request.userInfo.username != %s || request.dryRun", strconv.Quote(user))},
				{Name: "not-kubernetes-itself", Expression: fmt.Sprintf("!(%s)", deletedByKubernetes)},
			},
			Validations: []admissionregistrationv1.Validation{
				{Expression: fmt.Sprintf(`!(request.dryRun && request.operation == "UPDATE" && object.metadata.?annotations[?%q].orValue("") == %q)`, migrationv1.AnnotationFenceProbe, dm.UID),
					Message: probeMessage(dm), Reason: &forbidden},
				{Expression: fmt.Sprintf(`params.?spec.?datastoreReady.orValue(true) != false || params.metadata.?annotations[?%q].orValue("") != %q`, migrationv1.AnnotationLockedBy, dm.UID),
					Message: lockMessage(dm), Reason: &forbidden},
			},
		},
	}
}

// fenceBinding binds the policy to the lock. Where there is no lock, nobody is refused.
func fenceBinding(dm *migration) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	allow := admissionregistrationv1.AllowAction
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: fenceMeta(dm),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        migrationv1.FenceName,
			ParamRef:          &admissionregistrationv1.ParamRef{Name: clusterInformationName, ParameterNotFoundAction: &allow},
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
}

func fenceMeta(dm *migration) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: migrationv1.FenceName, Annotations: map[string]string{migrationv1.AnnotationLockedBy: string(dm.UID)}}
}

// lockMessage is what people read whose write was refused.
func lockMessage(dm *migration) string {
	return fmt.Sprintf("DatastoreMigration %[1]s moves Calico's objects from crd.projectcalico.org/v1 to projectcalico.org/v3, so that v1 is closed: "+
		"see `kubectl get datastoremigration %[1]s`. Once it has converged, write projectcalico.org/v3; until then, deleting it opens v1 again. "+
		"If no manager runs, break glass: delete ValidatingAdmissionPolicyBinding %[2]s", dm.Name, migrationv1.FenceName)
}

func probeMessage(dm *migration) string {
	return fmt.Sprintf("the fence of DatastoreMigration %s (%s) works", dm.Name, dm.UID)
}
