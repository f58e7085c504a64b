package datastoremigration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func container(name string, env ...corev1.EnvVar) corev1.Container {
	return corev1.Container{Name: name, Env: env}
}

func group(value string) corev1.EnvVar { return corev1.EnvVar{Name: apiGroupEnv, Value: value} }

func TestUsesV3(t *testing.T) {
	v3, v1 := group(apiGroupValue), group("crd.projectcalico.org/v1")
	fromMap := corev1.EnvVar{Name: apiGroupEnv, ValueFrom: &corev1.EnvVarSource{}}
	cases := map[string]struct {
		why        string
		containers []corev1.Container
		init       []corev1.Container
		want       bool
	}{
		"set":                      {why: "the plain case", containers: []corev1.Container{container("it", v3)}, want: true},
		"not set":                  {why: "the default is v1", containers: []corev1.Container{container("it")}},
		"other value":              {why: "somebody pinned v1", containers: []corev1.Container{container("it", v1)}},
		"upper case":               {why: "Calico compares without case", containers: []corev1.Container{container("it", group("ProjectCalico.org/V3"))}, want: true},
		"value from elsewhere":     {why: "what is not in the pod template cannot be seen: better to wait than to guess", containers: []corev1.Container{container("it", fromMap)}},
		"twice, v3 last":           {why: "the kubelet lets the last one win", containers: []corev1.Container{container("it", v1, v3)}, want: true},
		"twice, v1 last":           {why: "the kubelet lets the last one win", containers: []corev1.Container{container("it", v3, v1)}},
		"sidecar without":          {why: "a sidecar has nothing to do with Calico", containers: []corev1.Container{container("mesh"), container("it", v3)}, want: true},
		"only the sidecar":         {why: "the component itself runs with v1", containers: []corev1.Container{container("mesh", v3), container("it")}},
		"only an init container":   {why: "it is the running container that counts", containers: []corev1.Container{container("it")}, init: []corev1.Container{container("it", v3)}},
		"init container without":   {why: "most have no use for it", containers: []corev1.Container{container("it", v3)}, init: []corev1.Container{container("cni")}, want: true},
		"no container of the name": {why: "then all of them must say v3", containers: []corev1.Container{container("a", v3), container("b", v3)}, want: true},
		"none of the name, one v1": {why: "any of them may be Calico's", containers: []corev1.Container{container("a", v3), container("b")}},
		"no container at all":      {why: "nothing runs with v3"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: c.containers, InitContainers: c.init}}
			if got := usesV3("it", pod); got != c.want {
				t.Errorf("got %t: %s", got, c.why)
			}
		})
	}
}

func TestDaemonSetRolledOut(t *testing.T) {
	cases := map[string]struct {
		why    string
		status appsv1.DaemonSetStatus
		want   string
	}{
		"done":         {why: "all pods are new and available", status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3}},
		"not observed": {why: "the counts are about the old template", status: appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3}, want: "its change is not observed yet"},
		"half way":     {why: "old pods still write v1", status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 1}, want: "1 of 3 pods updated, 0 unavailable"},
		"unavailable":  {why: "a node without networking is not rolled out", status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberUnavailable: 1}, want: "3 of 3 pods updated, 1 unavailable"},
		"no node":      {why: "there is nothing to wait for", status: appsv1.DaemonSetStatus{ObservedGeneration: 2}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := daemonSetRolledOut(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: c.status})
			if got != c.want {
				t.Errorf("got %q, want %q: %s", got, c.want, c.why)
			}
		})
	}
}

func TestDeploymentRolledOut(t *testing.T) {
	three, zero := int32(3), int32(0)
	status := func(updated, all, available int32) appsv1.DeploymentStatus {
		return appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: updated, Replicas: all, AvailableReplicas: available}
	}
	cases := map[string]struct {
		why      string
		replicas *int32
		status   appsv1.DeploymentStatus
		want     string
	}{
		"done":         {why: "all pods are new and available", replicas: &three, status: status(3, 3, 3)},
		"not observed": {why: "the counts are about the old template", replicas: &three, status: appsv1.DeploymentStatus{ObservedGeneration: 1, UpdatedReplicas: 3, Replicas: 3, AvailableReplicas: 3}, want: "its change is not observed yet"},
		"half way":     {why: "one old pod is left", replicas: &three, status: status(2, 3, 3), want: "2 of 3 pods updated, 3 available"},
		"surge":        {why: "an old pod is still there beside the new ones", replicas: &three, status: status(3, 4, 4), want: "3 of 3 pods updated, 4 available"},
		"unavailable":  {why: "a new pod does not run yet", replicas: &three, status: status(3, 3, 2), want: "3 of 3 pods updated, 2 available"},
		"no number":    {why: "absent means one", status: status(1, 1, 1)},
		"scaled down":  {why: "typha is off on small clusters", replicas: &zero, status: status(0, 0, 0)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: c.replicas}, Status: c.status}
			if got := deploymentRolledOut(d); got != c.want {
				t.Errorf("got %q, want %q: %s", got, c.want, c.why)
			}
		})
	}
}

func TestRolloutOf(t *testing.T) {
	with := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container("it", group(apiGroupValue))}}}
	var got rollout
	got.add("deployment", "a", &corev1.PodTemplateSpec{}, "behind")
	got.add("deployment", "it", with, "behind")
	got.add("deployment", "it", with, "")
	want := rollout{pending: []string{"a (variable not set)", "it (behind)"}, unset: []string{"deployment/a"}, rolling: []string{"deployment/it"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(rollout{})); diff != "" {
		t.Errorf("what to do comes before what to wait for, and what is done is not named (-want +got):\n%s", diff)
	}
}
