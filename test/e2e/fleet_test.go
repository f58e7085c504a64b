package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/support/harness"
)

const boutique = "boutique"

// docs/extend/loop-over-a-list.md: whenever the manager dies, all Deployments get the image; whenever the object is
// deleted, all have what they had. FLEET_ROUNDS=20 and FLEET_SIZE=500 are the long form.
func TestFleetUpgrade(t *testing.T) {
	w := pristine(t)
	w.apply(t, "fleet-upgrade/crd.yaml")
	w.alsoGrant(t, "fleet-upgrade/rbac.yaml")
	w.kubectl(t, "create", "namespace", boutique)
	t.Cleanup(func() {
		w.kubectl(t, "delete", "--wait=false", "namespace/"+boutique, "crd/fleetupgrades.example.com")
	})
	names := []string{"cart", "mail", "web", "search", "pay"}
	for _, name := range names {
		w.kubectl(t, "create", "deployment", name, "-n", boutique, "--image=shop:0")
		w.kubectl(t, "label", "deployment", name, "-n", boutique, "app.kubernetes.io/part-of=shop")
	}
	args := []string{"--phases-dir", directory(t, "fleet-upgrade/fleet-upgrade.yaml")}
	manager := w.manager(t, args...)

	inTurn(t, "approved", func(t *testing.T) {
		w.apply(t, "fleet-upgrade/sample.yaml")
		w.awaitFleet(t, "shop-2", "AwaitingApproval")
		if got := w.withImage(t, "registry.example.com/shop:2"); got != 2 {
			t.Errorf("%d Deployments have the image before the approval, want the first wave", got)
		}
		w.kubectl(t, "annotate", "-n", boutique, "fleetupgrade/shop-2", "example.com/approved=yes")
		w.awaitFleet(t, "shop-2", "Upgraded")
		if got := w.withImage(t, "registry.example.com/shop:2"); got != len(names) {
			t.Errorf("%d Deployments have the image in the end, want %d", got, len(names))
		}
		w.kubectl(t, "delete", "--timeout=40s", "-n", boutique, "fleetupgrade/shop-2")
	})
	has := "registry.example.com/shop:2"
	manager = w.disturb(t, fromEnv("FLEET_ROUNDS", 1), manager, disturbed{
		object: []string{"-n", boutique, "fleetupgrade/up"},
		within: 4 * time.Second,
		begin:  func(label string) { w.upgrade(t, "shop:"+label) },
		killed: func(label string) {
			w.awaitFleet(t, "up", "Upgraded")
			if got := w.withImage(t, "shop:"+label); got != len(names) {
				t.Errorf("%s: %d Deployments have the image after a crash, want %d", label, got, len(names))
			}
			has = "shop:" + label
		},
		deleted: func(label string) {
			switch before, after := w.withImage(t, has), w.withImage(t, "shop:"+label); {
			case after == len(names): // it was over before
				has = "shop:" + label
			case before != len(names):
				t.Errorf("%s: %d Deployments have what they had, and %d the image of an upgrade that was deleted", label, before, after)
			}
		},
	}, args...)
	manager.Kill()
	inTurn(t, "many", func(t *testing.T) {
		w.upgradeMany(t, args)
		w.assertNoStates(t, "FleetUpgrade") // its manager ends with it
	})
}

// upgradeMany tells what a large fleet costs.
func (w *world) upgradeMany(t *testing.T, args []string) {
	t.Helper()
	size, none := fromEnv("FLEET_SIZE", 20), int32(0)
	for i := range size {
		labels := map[string]string{"app.kubernetes.io/part-of": "many"}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: boutique, Name: fmt.Sprintf("many-%04d", i), Labels: labels}}
		d.Spec.Replicas, d.Spec.Selector = &none, &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: boutique, Image: "shop:0"}}
		w.do(t, w.Client.Create(t.Context(), d))
	}
	manager := w.managerMeasured(t, args...)
	before := manager.scrape(t)
	began := time.Now()
	w.upgradeOf(t, "many", boutique, "shop:many", min(size, 200))
	largest, held := 0, 0
	w.do(t, harness.Await(t.Context(), "the fleet to be upgraded", 10*time.Minute, func(ctx context.Context) error {
		list := &v1alpha1.MachineStateList{}
		if err := w.Client.List(ctx, list, client.MatchingLabels{v1alpha1.MachineLabel: "fleet-upgrade"}); err != nil || len(list.Items) != 1 {
			return fmt.Errorf("%d states, %w", len(list.Items), err)
		}
		state := list.Items[0]
		data, err := json.Marshal(state)
		largest, held = max(largest, len(data)), max(held, len(state.Status.Held))
		return nilUnless(err == nil && state.Status.Phase == "Upgraded", state.Status.Phase)
	}))
	took, after := time.Since(began), manager.scrape(t)
	if got := w.withImage(t, "shop:many"); got != size {
		t.Errorf("%d Deployments have the image, want %d", got, size)
	}
	each := func(methods ...string) (n float64) {
		for _, method := range methods {
			n += after.Sum("rest_client_requests_total", "method", method) - before.Sum("rest_client_requests_total", "method", method)
		}
		return n / float64(size)
	}
	t.Logf("%d Deployments in %s: %.2f writes and %.2f reads a Deployment; a MachineState of %d bytes with %d held; resident %.0f MiB, before %.0f",
		size, took.Round(100*time.Millisecond), each("POST", "PUT", "PATCH", "DELETE"), each("GET"), largest, held,
		after.Sum("process_resident_memory_bytes")/(1<<20), before.Sum("process_resident_memory_bytes")/(1<<20))
	w.kubectl(t, "delete", "--timeout=40s", "-n", boutique, "fleetupgrade/up")
}

// upgrade makes an object that is approved, in waves of two.
func (w *world) upgrade(t *testing.T, image string) {
	t.Helper()
	w.upgradeOf(t, "shop", "shop", image, 2)
}

func (w *world) upgradeOf(t *testing.T, partOf, container, image string, wave int) {
	t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector": map[string]any{"app.kubernetes.io/part-of": partOf}, "container": container, "image": image, "wave": int64(wave)}}}
	obj.SetAPIVersion("example.com/v1")
	obj.SetKind("FleetUpgrade")
	obj.SetNamespace(boutique)
	obj.SetName("up")
	obj.SetAnnotations(map[string]string{"example.com/approved": "yes"})
	w.do(t, w.Client.Create(t.Context(), obj))
}

func (w *world) awaitFleet(t *testing.T, name, phase string) {
	t.Helper()
	w.kubectl(t, "wait", "--for=jsonpath={.status.phase}="+phase, "--timeout=2m", "-n", boutique, "fleetupgrade/"+name)
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion("example.com/v1")
	obj.SetKind("FleetUpgrade")
	w.do(t, w.Client.Get(t.Context(), client.ObjectKey{Namespace: boutique, Name: name}, obj))
	status := machineStatus(t, obj)
	if held := status.HeldNames(); phase == "Upgraded" && len(held) > 0 {
		t.Errorf("in the end %v are held", held)
	}
}

// withImage counts the Deployments that have an image.
func (w *world) withImage(t *testing.T, image string) (n int) {
	t.Helper()
	list := &appsv1.DeploymentList{}
	w.do(t, w.Client.List(t.Context(), list, client.InNamespace(boutique)))
	for _, d := range list.Items {
		if d.Spec.Template.Spec.Containers[0].Image == image {
			n++
		}
	}
	return n
}
