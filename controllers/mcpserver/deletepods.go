package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/fsm"
)

func deletePodsRights() []rbacv1.PolicyRule {
	return append(lookRights(), on("delete", corev1.GroupName, "pods"))
}

// observedAgain is how soon it is asked again whether controllers have seen a stamp.
const observedAgain = time.Second

// deletePods comes after StampPodTemplates: which pods are old is told by the
// token that they do not bear, not by a clock.
func (s *steps) deletePods(ctx context.Context, sc *scope) (outputs, error) {
	token, err := restartToken(sc.Object)
	if err != nil {
		return nil, err
	}
	w, err := s.lookAt(ctx, sc.Object)
	if err != nil {
		return nil, err
	}
	if unaware := unawareOf(w); unaware != "" {
		return nil, &fsm.WaitError{After: observedAgain, Message: "Waiting until the controller of " + unaware + " has seen the restart"}
	}
	if err := s.lookAtPods(ctx, &w); err != nil {
		return nil, err
	}
	for _, pod := range withoutToken(slices.Concat(w.proxies, w.backends), token) {
		uid := pod.UID
		err := s.client.Delete(ctx, &pod, client.Preconditions{UID: &uid})
		// A conflict is a new pod of the name.
		if err != nil && !apierrs.IsNotFound(err) && !apierrs.IsConflict(err) {
			return nil, fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil, nil
}

// unawareOf names what would replace a deleted pod by one of the older template.
func unawareOf(w workload) string {
	switch {
	case w.deployment != nil && w.deployment.Status.ObservedGeneration < w.deployment.Generation:
		return "Deployment " + w.deployment.Name
	case w.statefulSet != nil && w.statefulSet.Status.ObservedGeneration < w.statefulSet.Generation:
		return "StatefulSet " + w.statefulSet.Name
	}
	return ""
}

// withoutToken leaves out pods that are on their way out already.
func withoutToken(pods []corev1.Pod, token string) []corev1.Pod {
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || pod.Annotations[v1beta1.AnnotationRestartedAt] == token
	})
}
