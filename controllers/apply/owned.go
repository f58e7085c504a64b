package apply

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Owned is the part of live that manager has applied, with the values that are
// there now: what was applied and is not in it has been taken over by somebody
// else. It knows Deployments, StatefulSets, Services, ConfigMaps,
// ServiceAccounts, Roles and RoleBindings.
func Owned[T client.Object](live T, manager string) (T, error) {
	var none T
	part, err := extract(live, manager)
	if err != nil {
		return none, fmt.Errorf("tell what %s applied to %T %s: %w", manager, live, client.ObjectKeyFromObject(live), err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(part)
	if err != nil {
		return none, fmt.Errorf("encode what %s applied to %T %s: %w", manager, live, client.ObjectKeyFromObject(live), err)
	}
	return typedLike(live, fields)
}

func extract(live client.Object, manager string) (any, error) {
	switch o := live.(type) {
	case *appsv1.Deployment:
		return appsapply.ExtractDeployment(o, manager)
	case *appsv1.StatefulSet:
		return appsapply.ExtractStatefulSet(o, manager)
	case *corev1.Service:
		return coreapply.ExtractService(o, manager)
	case *corev1.ConfigMap:
		return coreapply.ExtractConfigMap(o, manager)
	case *corev1.ServiceAccount:
		return coreapply.ExtractServiceAccount(o, manager)
	case *rbacv1.Role:
		return rbacapply.ExtractRole(o, manager)
	case *rbacv1.RoleBinding:
		return rbacapply.ExtractRoleBinding(o, manager)
	}
	return nil, fmt.Errorf("%T is not a kind that this package applies: add it to extract", live)
}
