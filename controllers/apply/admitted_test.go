package apply_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/apply"
)

// containersOf are those of a workload as a webhook gets them.
func containersOf(object map[string]any) []any {
	containers, _, _ := unstructured.NestedSlice(object, "spec", "template", "spec", "containers")
	return containers
}

func eachContainer(change func(map[string]any)) func(map[string]any) {
	return func(object map[string]any) {
		containers := containersOf(object)
		for _, c := range containers {
			change(c.(map[string]any))
		}
		if containers != nil {
			_ = unstructured.SetNestedSlice(object, containers, "spec", "template", "spec", "containers")
		}
	}
}

// mirror is the registry that a webhook puts before the name of an image.
const mirror = "mirror.example/"

func toMirror(c map[string]any) {
	if image := c["image"].(string); !strings.HasPrefix(image, mirror) {
		c["image"] = mirror + image
	}
}

// TestWhatAdmissionChanges: what a webhook makes of an object is neither drift nor a change of what is wanted.
func TestWhatAdmissionChanges(t *testing.T) {
	for name, test := range map[string]struct {
		why    string
		mutate func(map[string]any)
		// noted tells that a note is needed.
		noted bool
	}{
		"nothing":           {"most clusters", func(map[string]any) {}, false},
		"an image":          {"a registry's mirror, or a digest", eachContainer(toMirror), true},
		"a sidecar":         {"it is not the manager's", addSidecar, false},
		"a missing default": {"a field that nobody sent", eachContainer(func(c map[string]any) { c["imagePullPolicy"] = "Always" }), false},
		"an argument":       {"a list that is one value", eachContainer(func(c map[string]any) { c["args"] = []any{"wrapped", "run"} }), true},
		"no variable": {"an item of ours is removed", eachContainer(func(c map[string]any) {
			if env, is := c["env"].([]any); is && len(env) == 2 {
				c["env"] = env[1:]
			}
		}), true},
		"no security context": {"a field of ours is removed", eachContainer(func(c map[string]any) { delete(c, "securityContext") }), true},
		"a request": {"quantities", eachContainer(func(c map[string]any) {
			if c["resources"] != nil {
				c["resources"] = map[string]any{"requests": map[string]any{"cpu": "2", "memory": "1Gi"}}
			}
		}), true},
		"labels, data, rules": {"kinds without pods", rewriteOthers, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			shared.Cluster(t).Mutate(t, w.namespace, test.mutate)
			noted := false
			for _, desired := range everyKind() {
				first := mustPut(w, desired)
				noted = noted || first.GetAnnotations()[apply.AnnotationSent] != ""
				w.writes = 0
				second := mustPut(w, desired)
				if w.writes != 0 || first.GetResourceVersion() != second.GetResourceVersion() {
					t.Errorf("%T: %d requests at the second look, want none: %s", desired, w.writes, test.why)
				}
			}
			if noted != test.noted {
				t.Errorf("noted = %v, want %v", noted, test.noted)
			}
		})
	}
}

func addSidecar(object map[string]any) {
	containers := containersOf(object)
	if len(containers) == 1 {
		sidecar := map[string]any{"name": "sidecar", "image": "example.org/sidecar"}
		_ = unstructured.SetNestedSlice(object, slices.Insert(containers, 0, any(sidecar)), "spec", "template", "spec", "containers")
	}
}

func rewriteOthers(object map[string]any) {
	switch object["kind"] {
	case "Role":
		object["rules"] = []any{}
	case "ConfigMap":
		object["data"] = map[string]any{"file": "replaced", "empty": ""}
	case "Service":
		_ = unstructured.SetNestedField(object, "None", "spec", "sessionAffinity")
	case "RoleBinding":
		_ = unstructured.SetNestedField(object, "changed", "metadata", "labels", "app")
	}
}

// TestDriftBehindAdmission: a person's change of a field that a webhook changes is still put right, and a change of what is
// wanted arrives.
func TestDriftBehindAdmission(t *testing.T) {
	w := newWorld(t)
	shared.Cluster(t).Mutate(t, w.namespace, eachContainer(toMirror))
	first := mustPut(w, deployment("workload"))
	image := func() string {
		now := &appsv1.Deployment{}
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(first), now); err != nil {
			t.Fatal(err)
		}
		return now.Spec.Template.Spec.Containers[0].Image
	}
	for _, edit := range []struct{ why, patch string }{
		{"another image", `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example.org/other"}]}}}}`},
		{"a forged note", `{"metadata":{"annotations":{"` + apply.AnnotationSent + `":"[{\"path\":[\"spec\",\"template\",\"spec\",\"containers\",\"0\",\"image\"],\"sent\":\"example.org/workload\",\"instead\":\"gone\"}]"}},
			"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example.org/other"}]}}}}`},
		{"no note", `{"metadata":{"annotations":null}}`},
	} {
		w.edit(first, "kubectl-edit", edit.patch)
		mustPut(w, deployment("workload"))
		if got := image(); got != mirror+"example.org/workload" {
			t.Errorf("%s: image = %s, want that it is put right", edit.why, got)
		}
		w.writes = 0
		if mustPut(w, deployment("workload")); w.writes != 0 {
			t.Errorf("%s: %d requests at the next look, want none", edit.why, w.writes)
		}
	}
	second := func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.org/second" }
	w.writes = 0
	mustPut(w, deployment("workload", second))
	if diff := cmp.Diff([]any{mirror + "example.org/second", 1}, []any{image(), w.writes}); diff != "" {
		t.Errorf("another image is wanted: image and requests (-want +got):\n%s", diff)
	}
	owned, err := apply.Owned(mustPut(w, deployment("workload", second)), manager)
	if err != nil || owned.Spec.Template.Spec.Containers[0].Image != "example.org/second" {
		t.Errorf("owned = %v, error = %v, want what was sent", owned, err)
	}
}
