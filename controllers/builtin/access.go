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

// toPatched: a subresource has rights of its own. The object is read in any case, for its resourceVersion.
func toPatched(with fsm.Params) []rbac.Access {
	return patchedAs(named(with), with.String("subresource", ""))
}

func patchedAs(obj *unstructured.Unstructured, subresource string) []rbac.Access {
	switch subresource {
	case subStatus:
		return append(toObject(obj, "get"), part(obj, subStatus, "patch")...)
	case subScale:
		return append(toObject(obj, "get"), part(obj, subScale, patchVerbs...)...)
	}
	return toObject(obj, patchVerbs...)
}

// part is an access to a subresource.
func part(obj *unstructured.Unstructured, subresource string, verbs ...string) []rbac.Access {
	all := toObject(obj, verbs...)
	all[0].Subresource = subresource
	return all
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
