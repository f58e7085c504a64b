package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// peersConditions are about what this proxy does not do. After a change from the
// peer's operator nobody else would take away what they said last.
var peersConditions = []string{
	conditionCABundle, "OIDCConfigRefValidated", "AuthzConfigRefValidated", "TelemetryConfigRefValidated", "WebhookConfigValidated",
}

// makeRoom takes away from a live object of ours what the peer set and an apply, to
// which it stays the peer's field, leaves beside what is wanted. room makes the change;
// where it makes none, nothing is written.
func makeRoom[T client.Object](ctx context.Context, c client.Client, srv *server, live T, found bool, room func(T)) error {
	if !found || !controlled(srv, live) || live.GetDeletionTimestamp() != nil {
		return nil
	}
	before := live.DeepCopyObject().(T)
	room(live)
	if equality.Semantic.DeepEqual(before, live) {
		return nil
	}
	if err := c.Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("take what does not fit the spec out of %T %s/%s: %w", live, live.GetNamespace(), live.GetName(), err)
	}
	return nil
}

// forgetStamp takes the generation off a StatefulSet that another MCPServer of the name has left: proxies of this one would
// take it for a newer proxy's.
func forgetStamp(ctx context.Context, c client.Client, srv *server, live *appsv1.StatefulSet) error {
	if live == nil || live.DeletionTimestamp != nil || !isOfAnother(srv, live) {
		return nil
	}
	before := live.DeepCopy()
	delete(live.Annotations, v1beta1.AnnotationGeneration)
	delete(live.Spec.Template.Annotations, v1beta1.AnnotationGeneration)
	if err := c.Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("take the generation of another MCPServer off StatefulSet %s/%s: %w", live.Namespace, live.Name, err)
	}
	return nil
}

// isOfAnother tells that of a StatefulSet to which the peer's proxy gave no owner, by a generation that the server has not
// reached.
func isOfAnother(srv *server, live *appsv1.StatefulSet) bool {
	free := ours(srv, live) && metav1.GetControllerOf(live) == nil
	return free && generationOn(live.Annotations, live.Spec.Template.Annotations) > srv.Generation
}

// roomInDeployment is about spec.strategy.rollingUpdate, which the API server filled
// in for the peer and refuses beside Recreate, and about the proxy's port.
func roomInDeployment(live, desired *appsv1.Deployment) {
	if live.Spec.Strategy.RollingUpdate != nil && desired.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		live.Spec.Strategy = desired.Spec.Strategy
	}
	want := desired.Spec.Template.Spec.Containers[0]
	for i := range live.Spec.Template.Spec.Containers {
		if c := &live.Spec.Template.Spec.Containers[i]; c.Name == want.Name {
			c.Ports = roomForPort(live, c.Ports, want.Ports[0], func(p corev1.ContainerPort) (name, key string) {
				return p.Name, portKey("containerPort", p.ContainerPort, p.Protocol)
			})
		}
	}
}

func roomInService(live, desired *corev1.Service) {
	live.Spec.Ports = roomForPort(live, live.Spec.Ports, desired.Spec.Ports[0], func(p corev1.ServicePort) (name, key string) {
		return p.Name, portKey("port", p.Port, p.Protocol)
	})
}

// roomForPort puts want in the place of a port of its name that somebody else has set.
// Ports are told apart by number: an apply would leave that one there, and two of one
// name are refused. A port that is ours alone goes with the apply.
func roomForPort[P any](live client.Object, ports []P, want P, is func(P) (name, key string)) []P {
	wantName, wantKey := is(want)
	there := func(p P) bool { _, key := is(p); return key == wantKey }
	left := slices.DeleteFunc(slices.Clone(ports), func(p P) bool {
		name, key := is(p)
		return name == wantName && key != wantKey && setByOthers(live, key)
	})
	if len(left) < len(ports) && !slices.ContainsFunc(left, there) {
		left = append(left, want)
	}
	return left
}

// portKey is how managedFields name a port of a list.
func portKey(field string, number int32, protocol corev1.Protocol) string {
	return strconv.Quote(fmt.Sprintf(`k:{"%s":%d,"protocol":"%s"}`, field, number, protocol))
}

// setByOthers tells whether somebody else than EnsureWorkload has set the item of a
// list, by its key in managedFields.
func setByOthers(live client.Object, key string) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		applied := e.Manager == fieldManager && e.Operation == metav1.ManagedFieldsOperationApply
		return !applied && e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), key)
	})
}
