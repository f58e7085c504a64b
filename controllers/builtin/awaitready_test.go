package builtin_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What kstatus says, and what we make of it: done, a wait that says what for, or an error that nobody waits out.
func TestAwaitReady(t *testing.T) {
	rolledOut := appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"}}}
	with := func(change func(*appsv1.DeploymentStatus)) *appsv1.DeploymentStatus {
		s := rolledOut.DeepCopy()
		change(s)
		return s
	}
	for name, c := range map[string]struct {
		why string
		// status of a Deployment of two replicas; nil: there is none.
		status *appsv1.DeploymentStatus
		// edited: its spec was changed after the status was written.
		edited bool
		with   params
		want   map[string]any
		// reason of the error, and what it says.
		reason, says string
	}{
		"rolled out": {why: "it is what is waited for", status: &rolledOut, want: map[string]any{"found": true, "message": "Deployment is available. Replicas: 2"}},
		"edited": {why: "the status is about the generation before", status: &rolledOut, edited: true,
			reason: "waits", says: "/app: Deployment generation is 2, but latest observed generation is 1"},
		"old pods": {why: "Available=True is true of a rollout that has hardly begun", status: with(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 1 }),
			reason: "waits", says: "/app: Updated: 1/2"},
		"stuck": {why: "no more time brings it", status: with(func(s *appsv1.DeploymentStatus) {
			s.UpdatedReplicas = 1
			s.Conditions[1] = appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}
		}), reason: "ObjectFailed", says: "/app has failed: Progress deadline exceeded"},
		"not there":          {why: "it may come", reason: "waits", says: "/app is not there"},
		"not there, ignored": {why: "a step over what others delete", with: params{"missing": "ignore"}, want: map[string]any{"found": false, "message": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			world, p := plansFor(t)
			if c.status != nil {
				labels := map[string]string{"app": "app"}
				d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: p.Namespace}, Spec: appsv1.DeploymentSpec{
					Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}}}}
				if err := world.Create(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				d.Status = *c.status
				if err := world.Status().Update(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				if c.edited {
					d.Spec.Replicas = new(int32(3))
					if err := world.Update(t.Context(), d); err != nil {
						t.Fatal(err)
					}
				}
			}
			out, err := act(t, world, "AwaitReady", p, and(params{"apiVersion": "apps/v1", "kind": "Deployment", "name": "app"}, c.with))
			if c.reason == "" {
				if diff := cmp.Diff(c.want, out); diff != "" || err != nil {
					t.Errorf("%s: %v (-want +got):\n%s", c.why, err, diff)
				}
				return
			}
			if reasonOf(err) != c.reason || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want %s: %s", c.why, err, c.reason, c.says)
			}
		})
	}
}
