package attach_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/attach"
)

// The proxy may get and patch the StatefulSet of its name, and no pod.
func TestRestartChangesThePodTemplate(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: server}}
	c := fake.NewClientBuilder().WithObjects(set).Build()
	if err := attach.Restarter(c, "default", server)(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		t.Fatal(err)
	}
	if len(set.Spec.Template.Annotations) != 1 {
		t.Errorf("annotations %v, want one more: without a change no pod is replaced", set.Spec.Template.Annotations)
	}
	if err := attach.Restarter(c, "default", "other")(t.Context()); err == nil {
		t.Error("a server that is not there was restarted")
	}
}
