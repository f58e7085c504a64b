package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// lookEvery is how soon a pod that became ready is noticed.
const lookEvery = 500 * time.Millisecond

// Await returns when every pod of the backend is of the newest template and ready;
// at once for a backend of no pods. The error says what is missing when ctx is
// done, or what the API server said.
func Await(ctx context.Context, c client.Client, namespace, name string) error {
	var live appsv1.StatefulSet
	missing := ""
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &live); err != nil {
			return false, err
		}
		missing = pending(&live)
		return missing == "", nil
	})
	switch {
	case err == nil:
		return nil
	case missing != "" && ctx.Err() != nil:
		return errors.New(missing)
	}
	return fmt.Errorf("read StatefulSet %s/%s: %w", namespace, name, err)
}

// pending says what a StatefulSet lacks; nothing when all its pods are ready.
func pending(s *appsv1.StatefulSet) string {
	wanted := int32(1)
	if s.Spec.Replicas != nil {
		wanted = *s.Spec.Replicas
	}
	switch {
	case s.DeletionTimestamp != nil:
		return fmt.Sprintf("StatefulSet %s is being deleted", s.Name)
	case s.Status.ObservedGeneration < s.Generation:
		return fmt.Sprintf("StatefulSet %s has not been looked at yet by its controller", s.Name)
	case s.Status.UpdatedReplicas < wanted:
		return fmt.Sprintf("StatefulSet %s: %d of %d pods are of the newest template", s.Name, s.Status.UpdatedReplicas, wanted)
	case s.Status.ReadyReplicas < wanted:
		return fmt.Sprintf("StatefulSet %s: %d of %d pods are ready", s.Name, s.Status.ReadyReplicas, wanted)
	case s.Status.Replicas > wanted:
		return fmt.Sprintf("StatefulSet %s has %d pods, wanted are %d", s.Name, s.Status.Replicas, wanted)
	}
	return ""
}

// Hosts are the names and the port of the pods that the backend is to have, in the order of their numbers. The DNS of
// the cluster knows those that are ready. A StatefulSet that ToolHive's proxy has made gives its pods no names, because
// there is no Service of the one that it names, which cannot be changed: it is answered as one host at most, with which
// all goes to the Service.
func Hosts(ctx context.Context, c client.Client, namespace, name string, port int32) ([]string, error) {
	var live appsv1.StatefulSet
	if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &live); err != nil {
		return nil, fmt.Errorf("read StatefulSet %s/%s: %w", namespace, name, err)
	}
	pods := ptr.Deref(live.Spec.Replicas, 1)
	if live.Spec.ServiceName != v1beta1.HeadlessServiceName(name) {
		pods = min(pods, 1)
	}
	hosts := make([]string, pods)
	for i := range hosts {
		hosts[i] = net.JoinHostPort(fmt.Sprintf("%s-%d.%s", name, i, live.Spec.ServiceName), strconv.Itoa(int(port)))
	}
	return hosts, nil
}
