package datastoremigration

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/check"
)

// replicaLabels tell which pods of a namespace are managers beside this one.
var replicaLabels = []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"}

// managerIsLeft finds that nobody would open a locked datastore. While v1 is locked Calico gives new pods no address: of a
// manager on the pod network that is lost with its node, no other can start. Calico's own controller met it (issue
// 13871 of projectcalico/calico).
func (s *steps) managerIsLeft() check.Check {
	return check.Check{ID: "manager-replicas", Title: "a manager is left where one is lost", Waivable: true, Run: func(ctx context.Context) ([]check.Finding, error) {
		list := &corev1.PodList{}
		if err := s.client.List(ctx, list, client.InNamespace(s.Pod.Namespace)); err != nil {
			if apierrs.IsForbidden(err) {
				return []check.Finding{{Level: check.Warning,
					Message: fmt.Sprintf("whether a manager is left where one is lost cannot be seen: %v", err),
					Remedy:  "grant it (the chart does), or see that two managers are ready on different nodes"}}, nil
			}
			return nil, fmt.Errorf("list the pods of namespace %s: %w", s.Pod.Namespace, err)
		}
		return judgeManagers(list.Items, s.Pod), nil
	}}
}

// judgeManagers is about the pods of the manager's namespace, of which own is one.
func judgeManagers(pods []corev1.Pod, own types.NamespacedName) []check.Finding {
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == own.Name })
	if i < 0 || pods[i].Spec.HostNetwork {
		return nil // it is being replaced, and nothing is known of it; or its successor needs no address
	}
	nodes := map[string]bool{}
	for _, p := range pods {
		same := !slices.ContainsFunc(replicaLabels, func(label string) bool { return p.Labels[label] != pods[i].Labels[label] })
		if same && p.DeletionTimestamp.IsZero() && isPodReady(&p) {
			nodes[p.Spec.NodeName] = true
		}
	}
	if len(nodes) > 1 {
		return nil
	}
	return []check.Finding{{Level: check.Failure,
		Message: fmt.Sprintf("managers are ready on one node only (%s), or not at all: if it is lost while v1 is locked, Calico gives a new manager no address, and nobody opens v1", pods[i].Spec.NodeName),
		Remedy:  "run two on different nodes (Helm: controllers.datastoremigration.replicas=2), or on the network of the node (Helm: hostNetwork=true)"}}
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
