package mcpserver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
)

// fromMirror is a webhook that takes images from a mirror, and adds a container, as injectors do.
func fromMirror(object map[string]any) {
	at := []string{"spec", "template", "spec", "containers"}
	containers, found, _ := unstructured.NestedSlice(object, at...)
	if !found {
		return
	}
	for _, c := range containers {
		if image := c.(map[string]any)["image"].(string); !strings.HasPrefix(image, "mirror.example/") {
			c.(map[string]any)["image"] = "mirror.example/" + image
		}
	}
	if len(containers) == 1 {
		containers = append(containers, map[string]any{"name": "injected", "image": "mirror.example/injected"})
	}
	_ = unstructured.SetNestedSlice(object, containers, at...)
}

// Where a webhook rewrites images, a look at rest writes nothing, scaling replaces no pod, and another image replaces all once.
func TestBehindAWebhookThatRewritesImages(t *testing.T) {
	w := newWorld(t, httpServer)
	shared.Cluster(t).Mutate(t, w.srv.Namespace, fromMirror)
	// look is one of the manager and one of a proxy, and answers how many writes they took.
	look := func() int {
		t.Helper()
		writes := w.ensure()
		patch, err := podPatch(w.srv)
		if err != nil {
			t.Fatal(err)
		}
		run := w.file()
		w.writes = 0
		if _, err := backend.Deploy(t.Context(), w.client, backend.Config{Namespace: w.srv.Namespace, Run: &run, Image: w.srv.Spec.Image, PodPatch: []byte(patch)}); err != nil {
			t.Fatal(err)
		}
		return writes + w.writes
	}
	templates := func() []corev1.PodTemplateSpec {
		return []corev1.PodTemplateSpec{w.deployment().Spec.Template, get(w, &appsv1.StatefulSet{}, "fetch").Spec.Template}
	}
	images := func() (images []string) {
		for _, template := range templates() {
			for _, c := range template.Spec.Containers {
				images = append(images, c.Image)
			}
		}
		return append(images, w.deployment().Spec.Template.Spec.Containers[0].Args[2])
	}
	change := func(patch string) {
		t.Helper()
		w.edit(w.srv, patch)
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(w.srv), w.srv); err != nil {
			t.Fatal(err)
		}
	}
	atRest := func(after string) {
		t.Helper()
		if writes := look(); writes != 0 {
			t.Errorf("after %s: %d writes at rest, want 0", after, writes)
		}
	}
	look()
	atRest("the first look")
	first := templates()
	for _, scaled := range []string{`{"spec":{"replicas":3}}`, `{"spec":{"backendReplicas":2}}`, `{"spec":{"replicas":2}}`} {
		change(scaled)
		if writes := look(); writes == 0 {
			t.Errorf("%s was not heeded", scaled)
		}
		if diff := cmp.Diff(first, templates()); diff != "" {
			t.Errorf("%s replaces all pods (-before +after):\n%s", scaled, diff)
		}
		atRest(scaled)
	}
	change(`{"spec":{"image":"example.org/fetch:2"}}`)
	look()
	second := templates()
	want := []string{"mirror.example/example.org/proxy:1", "mirror.example/injected", "mirror.example/example.org/fetch:2", "mirror.example/injected", "example.org/fetch:2"}
	if diff := cmp.Diff(want, images()); diff != "" {
		t.Errorf("another image (-want +got):\n%s", diff)
	}
	atRest("another image")
	if diff := cmp.Diff(second, templates()); diff != "" {
		t.Errorf("the pods are replaced twice (-before +after):\n%s", diff)
	}
}
