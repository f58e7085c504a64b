package mcpserver

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scaleManager is the field manager of the number of backend pods alone. A proxy
// applies that number as well, but only when it starts.
const scaleManager = "phasegate-scale"

// annotationReplicas is on the StatefulSet of a stopped server: how many pods it
// had before.
const annotationReplicas = "phasegate.dev/replicas-before-stop"

// scaleBackend stops the backend of a server that has no proxies, starts it again
// with them, and brings a new spec.backendReplicas to a running one, which needs
// no restart for it. What was there before and what is there now change in one
// write.
func (s *steps) scaleBackend(ctx context.Context, srv *server, proxy *appsv1.Deployment, live *appsv1.StatefulSet) error {
	if live == nil || !ours(srv, live) || live.DeletionTimestamp != nil {
		return nil
	}
	stopped := proxy.Spec.Replicas != nil && *proxy.Spec.Replicas == 0
	want := backendScale(srv.Spec.BackendReplicas, stopped, scaleOf(live))
	if want == scaleOf(live) {
		return nil
	}
	body := appsapply.StatefulSet(live.Name, live.Namespace).WithUID(live.UID).WithResourceVersion(live.ResourceVersion).
		WithSpec(appsapply.StatefulSetSpec().WithReplicas(want.replicas))
	if want.before != "" {
		body = body.WithAnnotations(map[string]string{annotationReplicas: want.before})
	}
	if err := s.client.Apply(ctx, body, client.FieldOwner(scaleManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("scale StatefulSet %s/%s to %d: %w", live.Namespace, live.Name, want.replicas, err)
	}
	return nil
}

// scale is how many pods a backend has, and how many it had before it was stopped,
// as its annotation says it.
type scale struct {
	replicas int32
	before   string
}

func scaleOf(live *appsv1.StatefulSet) scale {
	now := scale{replicas: 1, before: live.Annotations[annotationReplicas]}
	if live.Spec.Replicas != nil {
		now.replicas = *live.Spec.Replicas
	}
	return now
}

// backendScale is what the scale of a backend is to be. A number that the spec
// does not name is another's, and restored as it was.
func backendScale(wanted *int32, stopped bool, now scale) scale {
	switch {
	case stopped && now.replicas == 0:
		return now
	case stopped:
		return scale{before: strconv.Itoa(int(now.replicas))}
	case wanted != nil:
		return scale{replicas: *wanted}
	case now.before == "":
		return now
	}
	before, err := strconv.ParseInt(now.before, 10, 32)
	if err != nil || now.replicas > 0 { // no number of ours, or started by somebody else
		before = int64(max(now.replicas, 1))
	}
	return scale{replicas: int32(before)}
}
