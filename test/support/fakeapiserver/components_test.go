package fakeapiserver_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/support/fixture"
)

// The fixture's components need an API server to be judged by, and this package has one.
func TestComponentsAreSwitched(t *testing.T) {
	ctx := t.Context()
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const ns = "components"
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	if err := fixture.SwitchComponents(ctx, c, ns); err == nil {
		t.Error("switching components that do not exist succeeded")
	}
	for _, obj := range fixture.Components(ns) {
		if err := c.Create(ctx, obj); err != nil {
			t.Fatalf("create %s: %v", obj.GetName(), err)
		}
	}
	want := map[string]string{"install-cni": "", "calico-node": "", "calico-typha": "", "calico-kube-controllers": ""}
	if diff := cmp.Diff(want, groups(t, c, ns)); diff != "" {
		t.Errorf("groups before (-want +got):\n%s", diff)
	}
	for container := range want {
		want[container] = fixture.APIGroupV3
	}
	for range 2 { // the second time changes nothing
		if err := fixture.SwitchComponents(ctx, c, ns); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, groups(t, c, ns)); diff != "" {
			t.Errorf("groups after (-want +got):\n%s", diff)
		}
	}
}

// groups maps every container of the components to the API group that it is told to use.
func groups(t *testing.T, c client.Client, namespace string) map[string]string {
	t.Helper()
	node, typha, controllers := &appsv1.DaemonSet{}, &appsv1.Deployment{}, &appsv1.Deployment{}
	for name, obj := range map[string]client.Object{
		fixture.NodeDaemonSet: node, fixture.Typha: typha, fixture.KubeControllers: controllers,
	} {
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, obj); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]string{}
	for _, pod := range []corev1.PodSpec{node.Spec.Template.Spec, typha.Spec.Template.Spec, controllers.Spec.Template.Spec} {
		for _, container := range append(pod.InitContainers, pod.Containers...) {
			out[container.Name] = ""
			for _, env := range container.Env {
				if env.Name == fixture.APIGroupEnv {
					out[container.Name] += env.Value
				}
			}
		}
	}
	return out
}
