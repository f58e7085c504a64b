package mcpserver

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

func makeWayRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		on("get patch delete", appsv1.GroupName, "statefulsets"),
		on("get delete", corev1.GroupName, "services"),
	}
}

// makeWay brings the backend to where ToolHive's proxyrunner can work with it, which makes
// it: the StatefulSet that it has made gets an owner, which it gives none. What our own
// proxy has made goes: of a StatefulSet the program would change what cannot be changed,
// and of a Service the owner, of which there can be one. It makes them again, with the
// pods that are replaced anyway. The StatefulSet that is left is answered.
func (s *steps) makeWay(ctx context.Context, srv *server, live *appsv1.StatefulSet) (*appsv1.StatefulSet, error) {
	service := corev1.SchemeGroupVersion.WithKind("Service")
	for _, name := range []string{v1beta1.BackendServiceName(srv.Name), v1beta1.HeadlessServiceName(srv.Name)} {
		if _, err := s.remove(ctx, srv, child{service, name, controlled, metav1.DeletePropagationBackground}); err != nil {
			return nil, err
		}
	}
	switch {
	case live == nil || live.DeletionTimestamp != nil || !ours(srv, live):
		return live, nil
	case live.Spec.ServiceName != srv.Name:
		return nil, s.removeStatefulSet(ctx, live)
	case metav1.GetControllerOf(live) != nil:
		return live, nil
	}
	owned := live.DeepCopy()
	owned.OwnerReferences = append(owned.OwnerReferences, ownerReference(srv))
	if err := s.client.Patch(ctx, owned, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("give StatefulSet %s/%s its owner: %w", live.Namespace, live.Name, err)
	}
	return owned, nil
}

// removeStatefulSet deletes the one that was looked at, after its pods. Any other of the
// name is looked at like the first.
func (s *steps) removeStatefulSet(ctx context.Context, live *appsv1.StatefulSet) error {
	err := s.client.Delete(ctx, live, client.Preconditions{UID: &live.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err != nil && !apierrs.IsNotFound(err) && !apierrs.IsConflict(err) {
		return fmt.Errorf("delete StatefulSet %s/%s, which another proxy made: %w", live.Namespace, live.Name, err)
	}
	return nil
}
