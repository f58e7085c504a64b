package mcpserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// Deployments that the peer made say nothing of a strategy, for which the API
// server fills in a rolling update; a server of its default transport has another.
func TestTakesOverThePeersDeployment(t *testing.T) {
	for _, transport := range []string{v1beta1.TransportStdio, v1beta1.TransportSSE} {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t, v1beta1.MCPServerSpec{Image: "example.org/fetch:1", Transport: transport})
			labels := v1beta1.ProxyLabels(w.srv.Name)
			peers := &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: w.srv.Namespace, Name: w.srv.Name, Labels: labels,
					OwnerReferences: []metav1.OwnerReference{ownerReference(w.srv)},
				},
				Spec: appsv1.DeploymentSpec{
					Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: labels},
						Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: v1beta1.ProxyContainer, Image: "example.org/peer:1"}}},
					},
				},
			}
			if err := w.client.Create(t.Context(), peers, client.FieldOwner("peer")); err != nil {
				t.Fatal(err)
			}
			w.ensure()
			now := w.deployment()
			if got, want := now.Spec.Strategy.Type, strategy(&w.srv.Spec).Type; got != want || now.UID != peers.UID {
				t.Errorf("strategy %s of Deployment %s, want %s of the same one (%s)", got, now.UID, want, peers.UID)
			}
			if again := w.ensure(); again != 0 {
				t.Errorf("%d writes at the next look, want 0", again)
			}
		})
	}
}

func TestForgetsThePeersConditions(t *testing.T) {
	srv := &server{Spec: v1beta1.MCPServerSpec{Image: "i", Transport: v1beta1.TransportSSE}}
	srv.Status.Conditions = []metav1.Condition{
		{Type: "OIDCConfigRefValidated", Status: metav1.ConditionTrue, Reason: "OIDCConfigRefValid"},
		{Type: "SomebodyElses", Status: metav1.ConditionTrue, Reason: "Theirs"},
	}
	decorate(srv)
	want := []metav1.Condition{{Type: "SomebodyElses", Status: metav1.ConditionTrue, Reason: "Theirs"}}
	if diff := cmp.Diff(want, srv.Status.Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}
