package mcpserver

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/apply"
	"github.com/phasegate/phasegate/fsm"
)

func stampPodTemplatesRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{on("get patch", appsv1.GroupName, "deployments", "statefulsets")}
}

// restartManager is the field manager of the stamp alone: neither EnsureWorkload
// nor a proxy, which apply under other names, takes it away again.
const restartManager = "phasegate-restart"

// restartRequest is the name of the request in the machine file.
const restartRequest = "restart"

// stampPodTemplates is a no-op for a template that bears the token: a template
// changes, and its pods are replaced, once per token.
func (s *steps) stampPodTemplates(ctx context.Context, sc *scope) (outputs, error) {
	token, err := restartToken(sc.Object)
	if err != nil {
		return nil, err
	}
	w, err := s.lookAt(ctx, sc.Object)
	if err != nil {
		return nil, err
	}
	if w.deployment != nil {
		err := stampOne(ctx, s.client, w.deployment, token, func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template })
		if err != nil {
			return nil, err
		}
	}
	if w.statefulSet != nil {
		err := stampOne(ctx, s.client, w.statefulSet, token, func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template })
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// restartToken is that of the restart that is being carried out. The annotation
// may ask for the next one by now.
func restartToken(srv *server) (string, error) {
	for _, r := range srv.Status.Machine.Requests {
		if r.Name == restartRequest && r.Token != "" {
			return r.Token, nil
		}
	}
	return "", fsm.Terminal("NoRestartRequested", "no token of a request named %q is recorded: let the phase be entered by `when: 'request.%s.pending'`",
		restartRequest, restartRequest)
}

// stampOne applies one annotation to the pod template of live, unless it was
// applied before. The UID keeps it from a new object of the name.
func stampOne[T client.Object](ctx context.Context, c client.Client, live T, token string, template func(T) *corev1.PodTemplateSpec) error {
	mine, err := apply.Owned(live, restartManager)
	if err != nil {
		return err
	}
	if template(mine).Annotations[v1beta1.AnnotationRestartedAt] == token || live.GetDeletionTimestamp() != nil {
		return nil
	}
	gvk, err := c.GroupVersionKindFor(live)
	if err != nil {
		return err
	}
	body := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{v1beta1.AnnotationRestartedAt: token}}}},
	}}
	body.SetGroupVersionKind(gvk)
	body.SetNamespace(live.GetNamespace())
	body.SetName(live.GetName())
	body.SetUID(live.GetUID())
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), client.FieldOwner(restartManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("stamp the pod template of %s %s/%s: %w", gvk.Kind, live.GetNamespace(), live.GetName(), err)
	}
	return nil
}
