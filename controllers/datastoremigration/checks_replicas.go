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
func (s *preflight) managerIsLeft() check.Check {
	return check.Check{ID: "manager-replicas", Title: "a manager is left where one is lost", Waivable: true, Run: func(ctx context.Context) ([]check.Finding, error) {
		list := &corev1.PodList{}
		if err := s.client.List(ctx, list, client.InNamespace(s.settings.Pod.Namespace)); err != nil {
			if apierrs.IsForbidden(err) {
				return []check.Finding{{Level: check.Warning,
					Message: fmt.Sprintf("whether a manager is left where one is lost cannot be seen: %v", err),
					Remedy:  "grant it (the chart does), or see that two managers are ready on different nodes"}}, nil
			}
			return nil, fmt.Errorf("list the pods of namespace %s: %w", s.settings.Pod.Namespace, err)
		}
		return judgeManagers(list.Items, s.settings.Pod), nil
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
		Message: fmt.Sprintf("managers are ready on one node only (%s), or not at all: if it is lost while v1 is locked, Calico gives a new manager no address, and v1 stays locked", pods[i].Spec.NodeName),
		Remedy:  "run two on different nodes (Helm: controllers.datastoremigration.replicas=2), or on the network of the node (Helm: hostNetwork=true)"}}
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// What the manager needs without any object, and for each: somewhat more than was measured (docs/scale.md).
const (
	memoryFixed = 128 << 20
	memoryEach  = 1536

	mebibyte = 1 << 20
)

// hasMemory finds a manager that would be killed for its memory in the middle of a migration, again
// and again, perhaps under the lock.
func (s *preflight) hasMemory(dm *migration) check.Check {
	return check.Check{ID: "memory", Title: "the manager may use as much memory as the objects need", Waivable: true, Run: func(ctx context.Context) ([]check.Finding, error) {
		objects, err := s.copier(dm).Objects(ctx)
		if err != nil {
			return nil, err
		}
		return tooLittleMemory(objects, s.settings.MemoryLimit), nil
	}}
}

func tooLittleMemory(objects, limit int64) []check.Finding {
	needed := memoryFixed + memoryEach*objects
	if needed <= limit {
		return nil
	}
	return []check.Finding{{Level: check.Failure,
		Message: fmt.Sprintf("%d objects need some %d MiB of the manager's memory, and it may use %d MiB (GOMEMLIMIT): it would be killed in the middle, again and again", objects, needed/mebibyte, limit/mebibyte),
		Remedy:  fmt.Sprintf("give it more (Helm: controllers.datastoremigration.resources.limits.memory=%dMi)", needed/mebibyte+1)}}
}
