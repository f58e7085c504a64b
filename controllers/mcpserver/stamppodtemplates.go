package mcpserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/apply"
	"github.com/phasegate/phasegate/fsm"
)

// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get;patch

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
		mine, err := apply.Owned(w.deployment, restartManager)
		if err != nil {
			return nil, err
		}
		if err := s.stamp(ctx, w.deployment, &mine.Spec.Template, token); err != nil {
			return nil, err
		}
	}
	if w.statefulSet != nil {
		mine, err := apply.Owned(w.statefulSet, restartManager)
		if err != nil {
			return nil, err
		}
		if err := s.stamp(ctx, w.statefulSet, &mine.Spec.Template, token); err != nil {
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

// stamp applies one annotation to the pod template of live, of which mine is the
// part that was applied before. The UID keeps it from a new object of the name: the
// API server refuses that as invalid, and the next look finds the new one.
func (s *steps) stamp(ctx context.Context, live client.Object, mine *corev1.PodTemplateSpec, token string) error {
	if mine.Annotations[v1beta1.AnnotationRestartedAt] == token || live.GetDeletionTimestamp() != nil {
		return nil
	}
	gvk, err := s.client.GroupVersionKindFor(live)
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
	err = s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), client.FieldOwner(restartManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("stamp the pod template of %s %s/%s: %w", gvk.Kind, live.GetNamespace(), live.GetName(), err)
	}
	return nil
}
