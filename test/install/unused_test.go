package install

import (
	"strings"

	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/resources"
)

// exceptions are rights that nothing in the story needs, and why they are there all the same.
var exceptions = map[string]string{
	"create apiservices.apiregistration.k8s.io": "RestoreAPIService, where somebody has removed the v3 CRDs meanwhile: as long as there is " +
		"one of them kube-apiserver makes the APIService itself, before anybody else can",
	"delete configmaps phasegate-collector-canary": "AttachDependents and AttachV1Owners, where the garbage collector has not deleted it in the time that it was given: " +
		"that of the story works",
	"patch validatingadmissionpolicies.admissionregistration.k8s.io v3-fence.migration.projectcalico.org": "BlockV1Writes under the lock, " +
		"where the manager has been installed anew under another name",
	"get configmaps cni-config":               "Preflight and ObserveRollout, where the Tigera operator runs Calico",
	"patch machinedefinitions.phasegate.dev":  "the machine in force, where its file changes while the manager runs, or where somebody has edited what shows it",
	"delete machinedefinitions.phasegate.dev": "the machine in force, where it does not run any more",
	"get leases.coordination.k8s.io":          "every pass, where the state of the object names another installation",
	"update mcpservers/finalizers.toolhive.stacklok.dev": "EnsureWorkload, where the admission plugin OwnerReferencesPermissionEnforcement runs: it asks for " +
		"this right, and no request uses it",
	"delete secrets": "BackUpV1, where a part of an earlier try holds something else: clean-ups of the story are not disturbed",
}

// reads are exceptions, too: a v3 object is read alone where it is found with other content than v1 has, or came while
// it was copied. In the story that is the obstacle, which must have been read.
func reads(n rbac.Need) bool {
	return n.Group == resources.V3Group && n.Verb == "get" && n.Name == "" && n.Resource != "globalnetworksets"
}

// nudges are rights that DeleteV1CRDs needs where kube-apiserver has failed to delete the objects of a CRD of v1.
func nudges(n rbac.Need) bool {
	return n.Resource == "customresourcedefinitions" && n.Verb == "patch" && strings.HasSuffix(n.Name, "."+resources.V1Group)
}

// inTier are rights that nobody uses: Calico's webhooks, where there are any, ask for them in the name of whoever writes.
func inTier(n rbac.Need) bool {
	return n.Group == resources.V3Group && strings.HasPrefix(n.Resource, "tier.")
}

// inFinalizers are rights that nobody uses: the admission plugin OwnerReferencesPermissionEnforcement, where it runs,
// refuses references with blockOwnerDeletion without them.
func inFinalizers(n rbac.Need) bool {
	return (n.Group == resources.V1Group || n.Group == resources.V3Group) && n.Verb == "update" && strings.HasSuffix(n.Resource, "/finalizers")
}
