package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/fsm"
)

func deleteChildrenRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		on("get delete", appsv1.GroupName, "deployments", "statefulsets"),
		on("get delete", corev1.GroupName, "services", "configmaps", "serviceaccounts"),
		on("get delete", rbacv1.GroupName, "roles", "rolebindings"),
		on("list", corev1.GroupName, "pods"),
	}
}

// The values of the parameter part.
const (
	partProxy   = "proxy"
	partBackend = "backend"
	partRest    = "rest"
)

// podsShown is how many pods an entry names.
const podsShown = 3

// child is the name of an object that may have been made for a server.
type child struct {
	schema.GroupVersionKind
	name string
	// ours tells whether it was.
	ours  func(*server, metav1.Object) bool
	after metav1.DeletionPropagation
}

// children are in the order in which they are deleted; nil for a part that does
// not exist. A Deployment and a StatefulSet go after their pods: once the
// Deployment is not there, there is no proxy that could make the backend again.
func children(name, part string) []child {
	const pods, nothing = metav1.DeletePropagationForeground, metav1.DeletePropagationBackground
	service, account := corev1.SchemeGroupVersion.WithKind("Service"), corev1.SchemeGroupVersion.WithKind("ServiceAccount")
	return map[string][]child{
		partProxy: {{appsv1.SchemeGroupVersion.WithKind("Deployment"), name, controlled, pods}},
		partBackend: {
			{appsv1.SchemeGroupVersion.WithKind("StatefulSet"), name, ours, pods},
			{service, v1beta1.BackendServiceName(name), ours, nothing},
			{service, v1beta1.HeadlessServiceName(name), ours, nothing},
		},
		partRest: {
			{service, v1beta1.ProxyServiceName(name), controlled, nothing},
			{corev1.SchemeGroupVersion.WithKind("ConfigMap"), v1beta1.RunConfigName(name), controlled, nothing},
			{corev1.SchemeGroupVersion.WithKind("ConfigMap"), v1beta1.PoliciesName(name), controlled, nothing},
			{rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), v1beta1.ProxyRBACName(name), controlled, nothing},
			{rbacv1.SchemeGroupVersion.WithKind("Role"), v1beta1.ProxyRBACName(name), controlled, nothing},
			{account, v1beta1.ProxyRBACName(name), controlled, nothing},
			{account, v1beta1.BackendServiceAccountName(name), controlled, nothing},
		},
	}[part]
}

// deleteChildren deletes what is ours of one part, and lists what is left of it:
// the next look goes on. What is not ours is neither deleted nor waited for.
func (s *steps) deleteChildren(ctx context.Context, sc *scope) (outputs, error) {
	part := sc.With.String("part", "")
	all := children(sc.Object.Name, part)
	if all == nil {
		return nil, fsm.Terminal("BadPart", "there is no part %q: write %s, %s or %s", part, partProxy, partBackend, partRest)
	}
	remaining := []string{}
	for _, c := range all {
		left, err := s.remove(ctx, sc.Object, c)
		if err != nil {
			return nil, err
		}
		if left != nil {
			remaining = append(remaining, c.Kind+"/"+c.name+because(left.Finalizers))
		}
	}
	pods, err := s.podsOfPart(ctx, sc.Object, part)
	if err != nil {
		return nil, err
	}
	if len(pods) > 0 {
		remaining = append(remaining, "Pod/"+somePods(pods))
	}
	return outputs{"remaining": remaining}, nil
}

// remove answers what is left of a child after its deletion was asked for; nil if
// nothing of ours is.
func (s *steps) remove(ctx context.Context, srv *server, c child) (*metav1.PartialObjectMetadata, error) {
	left, err := s.childOf(ctx, srv, c)
	if left == nil || err != nil || left.DeletionTimestamp != nil {
		return left, err
	}
	uid := left.UID
	err = s.client.Delete(ctx, left, client.Preconditions{UID: &uid}, client.PropagationPolicy(c.after))
	// A conflict is a new object of the name, which is looked at like the first.
	if err != nil && !apierrs.IsNotFound(err) && !apierrs.IsConflict(err) {
		return nil, fmt.Errorf("delete %s %s/%s: %w", c.Kind, srv.Namespace, c.name, err)
	}
	return s.childOf(ctx, srv, c)
}

// childOf reads a child; nil if there is none that is ours.
func (s *steps) childOf(ctx context.Context, srv *server, c child) (*metav1.PartialObjectMetadata, error) {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(c.GroupVersionKind)
	err := s.client.Get(ctx, client.ObjectKey{Namespace: srv.Namespace, Name: c.name}, obj)
	switch {
	case apierrs.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %s/%s: %w", c.Kind, srv.Namespace, c.name, err)
	case !c.ours(srv, obj):
		return nil, nil
	}
	return obj, nil
}

// podsOfPart are those that are left, also of an owner that somebody else deleted
// before its pods. Where the owner is somebody else's they are its pods, whatever
// their labels and the name of their controller say.
func (s *steps) podsOfPart(ctx context.Context, srv *server, part string) ([]corev1.Pod, error) {
	if part == partRest {
		return nil, nil
	}
	w, err := s.lookAt(ctx, srv)
	switch {
	case err != nil:
		return nil, err
	case part == partProxy && !w.proxyTaken:
		return s.pods(ctx, srv, v1beta1.ProxyLabels(srv.Name), proxyPod)
	case part == partBackend && !w.taken:
		return s.pods(ctx, srv, v1beta1.BackendSelector(srv.Name), backendPod)
	}
	return nil, nil
}

// because tells the finalizers of others; that of a deletion in the foreground
// goes with the pods.
func because(finalizers []string) string {
	others := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
	if len(others) == 0 {
		return ""
	}
	return " (finalizers " + strings.Join(others, " ") + ")"
}

// somePods names pods, the nodes that they are on, and what keeps them.
func somePods(pods []corev1.Pod) string {
	var names []string
	for _, pod := range pods[:min(podsShown, len(pods))] {
		names = append(names, pod.Name+onNode(&pod)+because(pod.Finalizers))
	}
	text := strings.Join(names, " and ")
	if more := len(pods) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
