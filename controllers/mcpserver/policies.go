package mcpserver

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
)

// The policies of spec.authzConfig.inline are also in a ConfigMap, which ToolHive's proxyrunner has mounted. It reads those
// of its file; the ConfigMap is for people and programs that look for them where ToolHive's operator has them.

// labelPolicies is on that ConfigMap.
const labelPolicies = "toolhive.stacklok.io/authz"

// policiesMap is nil where there is none.
func policiesMap(srv *server, peers *toolhive.Proxy) *corev1.ConfigMap {
	if peers == nil || peers.Policies == "" {
		return nil
	}
	m := &corev1.ConfigMap{ObjectMeta: objectMeta(srv, v1beta1.PoliciesName(srv.Name)), Data: map[string]string{"authz.json": peers.Policies}}
	m.Labels[labelPolicies] = "inline"
	return m
}

// policiesLeftOver tells whether the proxy that there is, nil for none, mounts policies that the wanted one does not.
func policiesLeftOver(live, want *appsv1.Deployment) bool {
	return mountsPolicies(live) && !mountsPolicies(want)
}

func mountsPolicies(d *appsv1.Deployment) bool {
	return d != nil && slices.ContainsFunc(d.Spec.Template.Spec.Volumes, isPolicies)
}

func isPolicies(v corev1.Volume) bool { return v.Name == toolhive.PoliciesVolume }

// dropPolicies takes the policies out of a proxy that needs none any more, of which ToolHive's operator may own the mount
// as well, and then deletes the ConfigMap: before, no pod would start. One that a crash leaves goes with the server.
func (s *steps) dropPolicies(ctx context.Context, srv *server, now *appsv1.Deployment) error {
	err := makeRoom(ctx, s.client, srv, now, true, func(d *appsv1.Deployment) {
		pod := &d.Spec.Template.Spec
		pod.Volumes = slices.DeleteFunc(pod.Volumes, isPolicies)
		for i := range pod.Containers {
			pod.Containers[i].VolumeMounts = slices.DeleteFunc(pod.Containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == toolhive.PoliciesVolume })
		}
	})
	if err != nil {
		return err
	}
	_, err = s.remove(ctx, srv, child{corev1.SchemeGroupVersion.WithKind("ConfigMap"), v1beta1.PoliciesName(srv.Name), controlled, metav1.DeletePropagationBackground})
	return err
}
