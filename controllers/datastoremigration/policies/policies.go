package policies

import (
	"fmt"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

type migration = migrationv1.DatastoreMigration

// The resources of a fence.
const (
	PolicyResource  = "validatingadmissionpolicies"
	BindingResource = "validatingadmissionpolicybindings"
)

// Kubernetes itself deletes what belongs to something that was deleted. It would try for
// ever, and namespaces would not end.
const deletedByKubernetes = `request.operation == "DELETE" && request.userInfo.username in [` +
	`"system:serviceaccount:kube-system:generic-garbage-collector", "system:serviceaccount:kube-system:namespace-controller", "system:kube-controller-manager"]`

// Names are those of both fences, around v1 and v3.
var Names = []string{migrationv1.FenceName, migrationv1.V3FenceName}

// Fence is both fences, each a policy and its binding, in the order in which they are made: they let an account pass, and
// their parameter is the lock of v1, which has that name.
func Fence(dm *migration, lock *resources.Kind, lockName, account string, whileUnknown admissionregistrationv1.FailurePolicyType) [4]client.Object {
	return [4]client.Object{fencePolicy(dm, lock.V1GVK(), account, whileUnknown), fenceBinding(dm, migrationv1.FenceName, lockName),
		v3FencePolicy(dm, lock, account), fenceBinding(dm, migrationv1.V3FenceName, lockName)}
}

// Named are the policy and the binding of one fence, without what they say.
func Named(dm *migration, name string) (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: fenceMeta(dm, name)}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: fenceMeta(dm, name)}
}

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
	policy := policyAround(dm, migrationv1.FenceName, resources.V1Group, lock, whileUnknown)
	policy.Spec.MatchConditions = exempt(fmt.Sprintf("request.userInfo.username != %s || request.dryRun", strconv.Quote(user)))
	policy.Spec.Validations = []admissionregistrationv1.Validation{
		{Expression: fmt.Sprintf(`!(request.dryRun && request.operation == "UPDATE" && object.metadata.?annotations[?%q].orValue("") == %q)`, migrationv1.AnnotationFenceProbe, dm.UID),
			Message: ProbeMessage(dm), Reason: new(metav1.StatusReasonForbidden)},
		{Expression: unlocked(dm), Message: LockMessage(dm), Reason: new(metav1.StatusReasonForbidden)},
	}
	return policy
}

// v3FencePolicy refuses, while this migration has v1 locked and v3 is not open, what an abort
// would lose: new objects of v3, changes of our copies, and deletions of those that are in no namespace. What was
// in v3 before stays there, so that a conflict can be resolved; and so can be written the lock of v3, which a person
// has to take away who breaks the glass; a dry run loses nothing, and tells a person what differs. Its parameter is
// the lock of v1, like the other's: that of v3 is out of sight while the aggregated API server serves v3. An API
// server that does not know it lets everybody pass, because nobody is to be refused v3 once it is open.
//
// An API server answers each request in a namespace that is gone, and that a policy is about, with NotFound, before it
// asks whose request it is. Nobody could delete a copy there, not even we: the policy is not about such deletions.
func v3FencePolicy(dm *migration, lock *resources.Kind, user string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	policy := policyAround(dm, migrationv1.V3FenceName, resources.V3Group, lock.V1GVK(), admissionregistrationv1.Ignore)
	policy.Spec.MatchConditions = append(exempt(fmt.Sprintf("request.userInfo.username != %s && !request.dryRun", strconv.Quote(user))),
		admissionregistrationv1.MatchCondition{Name: "not-the-lock", Expression: "request.resource.resource != " + strconv.Quote(lock.V3Plural())})
	anywhere := policy.Spec.MatchConstraints.ResourceRules[0]
	inNone := *anywhere.DeepCopy()
	anywhere.Operations, inNone.Operations, inNone.Scope = []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
		[]admissionregistrationv1.OperationType{"DELETE"}, new(admissionregistrationv1.ClusterScope)
	policy.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{anywhere, inNone}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{
		Expression: fmt.Sprintf(`%s || params.metadata.?annotations[?%q].orValue("") == %q || oldObject != null && oldObject.metadata.?annotations[?%q].orValue("") != %q`,
			unlocked(dm), migrationv1.AnnotationV3Open, dm.UID, migrationv1.AnnotationMigratedBy, dm.UID),
		Message: v3Message(dm), Reason: new(metav1.StatusReasonForbidden),
	}}
	return policy
}

// unlocked is true unless this migration has locked v1.
func unlocked(dm *migration) string {
	return fmt.Sprintf(`params.?spec.?datastoreReady.orValue(true) != false || params.metadata.?annotations[?%q].orValue("") != %q`, migrationv1.AnnotationLockedBy, dm.UID)
}

func exempt(us string) []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{
		{Name: "not-the-migration", Expression: us},
		{Name: "not-kubernetes-itself", Expression: fmt.Sprintf("!(%s)", deletedByKubernetes)},
	}
}

func policyAround(dm *migration, name, group string, lock schema.GroupVersionKind, whileUnknown admissionregistrationv1.FailurePolicyType) *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: fenceMeta(dm, name),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind:     &admissionregistrationv1.ParamKind{APIVersion: lock.GroupVersion().String(), Kind: lock.Kind},
			FailurePolicy: &whileUnknown,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: new(admissionregistrationv1.Equivalent),
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{"*/*"}, Scope: new(admissionregistrationv1.AllScopes)},
				}}},
			},
		},
	}
}

// fenceBinding binds the policy of that name to the lock. Where there is no lock, nobody is refused.
func fenceBinding(dm *migration, name, lockName string) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: fenceMeta(dm, name),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ParamRef:          &admissionregistrationv1.ParamRef{Name: lockName, ParameterNotFoundAction: new(admissionregistrationv1.AllowAction)},
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
}

func fenceMeta(dm *migration, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Annotations: map[string]string{migrationv1.AnnotationLockedBy: string(dm.UID)}}
}

// LockMessage is what people read whose write was refused.
func LockMessage(dm *migration) string {
	return fmt.Sprintf("DatastoreMigration %[1]s moves Calico's objects from crd.projectcalico.org/v1 to projectcalico.org/v3, so that v1 is closed: "+
		"see `kubectl get datastoremigration %[1]s`. Once it has converged, write projectcalico.org/v3; until then, deleting it opens v1 again. "+
		"If no manager runs, break glass: delete ValidatingAdmissionPolicyBinding %[2]s", dm.Name, migrationv1.FenceName)
}

// v3Message is what people read whose write of v3 was refused.
func v3Message(dm *migration) string {
	return fmt.Sprintf("DatastoreMigration %[1]s moves Calico's objects to projectcalico.org/v3 and has not opened it yet: what is written now would be lost if it gave up. "+
		"Try again when it has converged: see `kubectl get datastoremigration %[1]s`. What was in v3 before can be edited and deleted, to resolve a conflict", dm.Name)
}

// ProbeMessage is the answer to a dry run that tries whether the fence works.
func ProbeMessage(dm *migration) string {
	return fmt.Sprintf("the fence of DatastoreMigration %s (%s) works", dm.Name, dm.UID)
}

// Of tells that a part is of this migration.
func Of(part client.Object, dm *migration) bool {
	return part.GetAnnotations()[migrationv1.AnnotationLockedBy] == string(dm.UID)
}

// Same compares what decides: whose it is, and what it says. open leaves out what the
// lock changes.
func Same(have, want client.Object, open bool) bool {
	if !have.GetDeletionTimestamp().IsZero() || have.GetAnnotations()[migrationv1.AnnotationLockedBy] != want.GetAnnotations()[migrationv1.AnnotationLockedBy] {
		return false
	}
	switch want := want.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		spec := have.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec
		if open {
			spec.FailurePolicy = want.Spec.FailurePolicy
		}
		return equality.Semantic.DeepEqual(spec, want.Spec)
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return equality.Semantic.DeepEqual(have.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding).Spec, want.Spec)
	}
	return false
}
