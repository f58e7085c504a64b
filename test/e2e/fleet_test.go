package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const boutique = "boutique"

// fleetRounds are how often a manager is killed at random, and an object deleted: FLEET_ROUNDS=20 is the long form.
func fleetRounds() int {
	if n, err := strconv.Atoi(os.Getenv("FLEET_ROUNDS")); err == nil {
		return n
	}
	return 1
}

// docs/extend/loop-over-a-list.md: whenever the manager dies, all Deployments get the image; whenever the object is
// deleted, all have what they had.
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
	for round := range fleetRounds() {
		image := fmt.Sprintf("shop:killed-%d", round)
		inTurn(t, "killed", func(t *testing.T) {
			w.upgrade(t, image)
			time.Sleep(rand.N(4 * time.Second))
			manager.Kill()
			manager = w.manager(t, args...)
			w.awaitFleet(t, "up", "Upgraded")
			if got := w.withImage(t, image); got != len(names) {
				t.Errorf("%d Deployments have the image after a crash, want %d", got, len(names))
			}
			w.kubectl(t, "delete", "--timeout=40s", "-n", boutique, "fleetupgrade/up")
			has = image
		})
		inTurn(t, "deleted", func(t *testing.T) {
			image := fmt.Sprintf("shop:deleted-%d", round)
			w.upgrade(t, image)
			time.Sleep(rand.N(4 * time.Second))
			w.kubectl(t, "delete", "--timeout=60s", "-n", boutique, "fleetupgrade/up")
			switch before, after := w.withImage(t, has), w.withImage(t, image); {
			case after == len(names): // it was over before
				has = image
			case before != len(names):
				t.Errorf("%d Deployments have what they had, and %d the image of an upgrade that was deleted", before, after)
			}
		})
	}
	w.assertNoStates(t, "FleetUpgrade")
}

// upgrade makes an object that is approved, in waves of two.
func (w *world) upgrade(t *testing.T, image string) {
	t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector": map[string]any{"app.kubernetes.io/part-of": "shop"}, "container": "shop", "image": image, "wave": int64(2)}}}
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
