package generic_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/phasegate/phasegate/test/support/harness"
)

// The spec is edited between taking and releasing. A phase that begins again after the edit does not scale the other
// Deployment down, and says so; once the edit is taken back it goes on, and the one that was scaled down is scaled up again.
func target(t *testing.T, b *bench) {
	b.crd(asItIs)
	text, err := os.ReadFile(filepath.Join("testdata", "target.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	b.put(string(text))
	for _, name := range []string{"first", "second"} {
		labels := map[string]string{"app": name}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		d.Spec.Replicas, d.Spec.Selector = ptr.To(int32(3)), &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels, d.Spec.Template.Spec.Containers = labels, []corev1.Container{{Name: "c", Image: "i"}}
		if err := b.c.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	replicas := func() map[string]int32 {
		got := map[string]int32{}
		for _, name := range []string{"first", "second"} {
			d := &appsv1.Deployment{}
			if err := b.c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, d); err != nil {
				t.Fatal(err)
			}
			got[name] = *d.Spec.Replicas
		}
		return got
	}
	b.create("o", map[string]any{"backup": "first"})
	b.shows("o", map[string]string{"phase": "Working"})
	harness.Eventually(t, "the first to be scaled down", func() error {
		if diff := cmp.Diff(map[string]int32{"first": 0, "second": 3}, replicas()); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	b.patch("o", `{"spec":{"backup":"second"}}`)
	b.put(strings.Replace(string(text), "poll: 1h", "poll: 2h", 1)) // the phase begins again
	harness.Eventually(t, "the edit to be refused", func() error {
		obj, err := b.get("o")
		if err != nil {
			return err
		}
		if message, _, _ := unstructured.NestedString(obj.Object, "status", "message"); !strings.Contains(message, "is held with name: first") {
			return fmt.Errorf("it says %q", message)
		}
		return nil
	})
	b.patch("o", `{"spec":{"ready":true,"backup":"first"}}`)
	b.shows("o", map[string]string{"phase": "Done"})
	if diff := cmp.Diff(map[string]int32{"first": 3, "second": 3}, replicas()); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
	b.remove("o")
}
