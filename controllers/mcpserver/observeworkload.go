package mcpserver

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/apply"
)

// lookRights are those of lookAt and lookAtPods.
func lookRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{on("get", appsv1.GroupName, "deployments", "statefulsets"), on("list", corev1.GroupName, "pods")}
}

// observeWorkload reads pods only where something is missing: they say why. What must
// not run as it is is never called ready, whichever step the look began with.
func (s *steps) observeWorkload(ctx context.Context, sc *scope) (outputs, error) {
	if err := unusable(s.Proxy, sc.Object); err != nil {
		return nil, err
	}
	w, err := s.lookAt(ctx, sc.Object)
	if err != nil {
		return nil, err
	}
	seen := judge(w)
	if seen.wanted > 0 && !seen.ready {
		if err := s.lookAtPods(ctx, &w); err != nil {
			return nil, err
		}
		seen = judge(w)
	}
	sc.Report(func(srv *server) { srv.Status.ReadyReplicas = seen.readyReplicas })
	return outputs{
		"wanted": int64(seen.wanted), "readyReplicas": int64(seen.readyReplicas),
		"current": seen.current, "ready": seen.ready, "failing": seen.failing, "missing": seen.missing, "waitingFor": seen.waitingFor,
	}, nil
}

// workload is what there is of a server; nil is what is not there, or not ours.
type workload struct {
	server      *server
	deployment  *appsv1.Deployment
	statefulSet *appsv1.StatefulSet
	// taken: a StatefulSet of somebody else has the name; proxyTaken: a Deployment.
	taken, proxyTaken bool
	// proxies and backends are their pods, those included that are on their way out.
	proxies, backends []corev1.Pod
}

// lookAt reads all but the pods.
func (s *steps) lookAt(ctx context.Context, srv *server) (workload, error) {
	w := workload{server: srv}
	name := metav1.ObjectMeta{Namespace: srv.Namespace, Name: srv.Name}
	deployment, found, err := apply.Read(ctx, s.client, &appsv1.Deployment{ObjectMeta: name})
	if err != nil {
		return w, err
	}
	if w.proxyTaken = found && !controlled(srv, deployment); found && !w.proxyTaken {
		w.deployment = deployment
	}
	statefulSet, found, err := apply.Read(ctx, s.client, &appsv1.StatefulSet{ObjectMeta: name})
	if w.taken = found && !ours(srv, statefulSet); found && !w.taken {
		w.statefulSet = statefulSet
	}
	return w, err
}

// lookAtPods reads those of what is there.
func (s *steps) lookAtPods(ctx context.Context, w *workload) (err error) {
	if w.deployment != nil {
		if w.proxies, err = s.pods(ctx, w.server, v1beta1.ProxyLabels(w.server.Name), proxyPod); err != nil {
			return err
		}
	}
	if w.statefulSet != nil {
		w.backends, err = s.pods(ctx, w.server, v1beta1.BackendSelector(w.server.Name), backendPod)
	}
	return err
}

// pods lists the pods with the labels that belong to the server.
func (s *steps) pods(ctx context.Context, srv *server, labels client.MatchingLabels, belongs func(*server, *corev1.Pod) bool) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := s.client.List(ctx, list, client.InNamespace(srv.Namespace), labels); err != nil {
		return nil, fmt.Errorf("list the pods of %s/%s: %w", srv.Namespace, srv.Name, err)
	}
	var pods []corev1.Pod
	for _, pod := range list.Items {
		if belongs(srv, &pod) {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}
