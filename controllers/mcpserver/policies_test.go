package mcpserver

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestPoliciesComeAndGo: what ToolHive's operator has mounted is there while the spec has it, also where that operator made
// the mount; a proxy that mounts what is gone would not start.
func TestPoliciesComeAndGo(t *testing.T) {
	w := newWorld(t, httpServer)
	w.edit(w.srv, `{"spec":{"authzConfig":{"type":"inline","inline":{"policies":["permit(principal, action, resource);"]}}}}`)
	ensure := func() {
		t.Helper()
		if _, err := doTheirs(t.Context(), w.client, w.srv, "EnsureWorkload"); err != nil {
			t.Fatal(err)
		}
	}
	ensure()
	m := get(w, &corev1.ConfigMap{}, "fetch-authz-inline")
	want := `{"version":"1.0","type":"cedarv1","cedar":{"policies":["permit(principal, action, resource);"],"entities_json":"[]"}}`
	if m.Data["authz.json"] != want || m.Labels["toolhive.stacklok.io/authz"] != "inline" || !controlled(w.srv, m) {
		t.Errorf("ConfigMap %v with labels %v and owners %v, want %s", m.Data, m.Labels, m.OwnerReferences, want)
	}
	// ToolHive's operator owns the volume as well, where it has made the Deployment.
	theirs := w.deployment()
	theirs.ManagedFields = nil
	if err := w.client.Patch(t.Context(), theirs, client.RawPatch("application/strategic-merge-patch+json",
		[]byte(`{"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"volumes":[{"name":"authz-config","configMap":{"name":"fetch-authz-inline","defaultMode":288}}]}}}}`)), client.FieldOwner("thv-operator")); err != nil {
		t.Fatal(err)
	}
	ensure()
	w.edit(w.srv, `{"spec":{"authzConfig":null}}`)
	ensure()
	d := get(w, &appsv1.Deployment{}, "fetch")
	if mountsPolicies(d) || len(d.Spec.Template.Spec.Containers[0].VolumeMounts) != 1 {
		t.Errorf("the proxy still mounts policies: %v, %v", d.Spec.Template.Spec.Volumes, d.Spec.Template.Spec.Containers[0].VolumeMounts)
	}
	err := w.client.Get(t.Context(), client.ObjectKeyFromObject(m), &corev1.ConfigMap{})
	if !apierrs.IsNotFound(err) {
		t.Errorf("ConfigMap of policies: %v, want that it is gone", err)
	}
}
