package builtin

import (
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

// What each action must be allowed to do, by the parameters of a call as the file has them.
// A text with ${…} is not known before the action is called.

// Access is what a call of a built-in action must be allowed to do; a kind that an expression says is left out of it.
func Access(action string, with fsm.Params) []rbac.Access {
	if access := table()[action].access; access != nil {
		return access(with)
	}
	return nil
}

func known(text string) string {
	if strings.Contains(text, "${") {
		return ""
	}
	return text
}

func toObject(obj *unstructured.Unstructured, verbs ...string) []rbac.Access {
	a := rbac.Access{Name: known(obj.GetName()), Namespace: known(obj.GetNamespace()), Verbs: verbs}
	if known(obj.GetAPIVersion()) != "" && known(obj.GetKind()) != "" {
		a.APIVersion, a.Kind = obj.GetAPIVersion(), obj.GetKind()
	}
	return []rbac.Access{a}
}

// toTarget is for actions with the parameters of withTarget.
func toTarget(verbs ...string) func(with fsm.Params) []rbac.Access {
	return func(with fsm.Params) []rbac.Access { return toObject(named(with), verbs...) }
}

func toManifest(verbs ...string) func(with fsm.Params) []rbac.Access {
	return func(with fsm.Params) []rbac.Access {
		return toObject(&unstructured.Unstructured{Object: with.Object("manifest")}, verbs...)
	}
}

func toDeleted(with fsm.Params) []rbac.Access {
	if with["name"] == nil {
		return toObject(named(with), deleteVerbs...)
	}
	return toObject(named(with), deleteNamedVerbs...)
}

// toJob is without a name: that of the Job gets a suffix. Pods say why a Job failed.
func toJob(fsm.Params) []rbac.Access {
	return []rbac.Access{
		{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Verbs: runJobVerbs},
		{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Verbs: []string{"list"}},
	}
}

// toEndedJob is without a name, too. Pods say whether a Job still runs.
func toEndedJob(fsm.Params) []rbac.Access {
	return []rbac.Access{
		{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Verbs: endJobVerbs},
		{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Verbs: podVerbs},
	}
}
