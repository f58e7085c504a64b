package attach

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

func find(ctx context.Context, core typedcorev1.CoreV1Interface, namespace, server string) (string, error) {
	list, err := core.Pods(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(v1beta1.BackendSelector(server)).String(),
	})
	if err != nil {
		return "", fmt.Errorf("list the pods of StatefulSet %s/%s: %w", namespace, server, err)
	}
	pod, err := choose(list.Items, server)
	if err != nil {
		return "", fmt.Errorf("StatefulSet %s/%s: %w", namespace, server, err)
	}
	return pod, nil
}

// choose takes the first pod, by name, that can serve, or says of each why not.
func choose(pods []corev1.Pod, server string) (string, error) {
	pods = slices.SortedFunc(slices.Values(pods), func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	var no []string
	for _, pod := range pods {
		why := unfit(&pod, server)
		if why == "" {
			return pod.Name, nil
		}
		no = append(no, pod.Name+" "+why)
	}
	if len(no) == 0 {
		return "", fmt.Errorf("it has no pod yet")
	}
	return "", fmt.Errorf("no pod can serve: %s", strings.Join(no, ", "))
}

func unfit(pod *corev1.Pod, server string) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil || owner.Kind != "StatefulSet" || owner.Name != server:
		return "is not one of the StatefulSet's"
	case pod.DeletionTimestamp != nil:
		return "is terminating"
	case pod.Status.Phase != corev1.PodRunning:
		return "is " + string(pod.Status.Phase)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return ""
		}
	}
	return "is not ready"
}
