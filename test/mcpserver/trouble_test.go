package mcpserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

func TestInvalidPodTemplateSpecAndItsRepair(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create("fetch", podTemplate(`{"spec": {"containers": "mcp"}}`))
	s.awaitPhase("fetch", "Failed")
	s.awaitCondition("fetch", v1beta1.ConditionPodTemplateValid, metav1.ConditionFalse, v1beta1.ReasonInvalidPodTemplateSpec)
	s.awaitCondition("fetch", "Ready", metav1.ConditionFalse, v1beta1.ReasonNotReady)
	s.describes("fetch", "Phase: Failed", "Warning "+v1beta1.ReasonInvalidPodTemplateSpec, "podTemplateSpec")
	if err := s.Client.Get(t.Context(), s.key("fetch"), &appsv1.Deployment{}); !apierrs.IsNotFound(err) {
		t.Errorf("a proxy was made for a server that cannot be: %v", err)
	}

	const note = `$(HOME) $$ $(THV_MCPSERVER_GENERATION) $` // of the proxy, none of which is the template's
	s.edit("fetch", podTemplate(`{"metadata": {"annotations": {"note": "`+note+`"}}, "spec": {"nodeSelector": {"type": "fakenodes"}}}`))
	s.awaitPhase("fetch", "Ready")
	s.awaitCondition("fetch", v1beta1.ConditionPodTemplateValid, metav1.ConditionTrue, v1beta1.ReasonValidPodTemplateSpec)
	if diff := cmp.Diff(map[string]string{"type": "fakenodes"}, s.statefulSet("fetch").Spec.Template.Spec.NodeSelector); diff != "" {
		t.Errorf("the template is not laid under the backend's pods (-want +got):\n%s", diff)
	}
	if got := s.statefulSet("fetch").Spec.Template.Annotations["note"]; got != note {
		t.Errorf("the template says %q, want %q", got, note)
	}

	s.edit("fetch", func(srv *v1beta1.MCPServer) { srv.Spec.PodTemplateSpec = nil })
	s.awaitNoCondition("fetch", v1beta1.ConditionPodTemplateValid)
	s.awaitPhase("fetch", "Ready")
	if got := s.statefulSet("fetch").Spec.Template.Spec.NodeSelector; got != nil {
		t.Errorf("what was taken out of the template is still in the pods: %v", got)
	}
}

func TestPodsThatDoNotRun(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why     string
		backend bool
		waiting corev1.ContainerStateWaiting
		phase   string
		says    []string
	}{
		"the proxy crashes": {
			why:     "nothing answers, and waiting will not help",
			waiting: corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container"},
			phase:   "Failed", says: []string{"crash-loops", "Warning PodsFailing"},
		},
		"the backend crashes": {
			why: "a proxy without a server behind it is not Ready", backend: true,
			waiting: corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container"},
			phase:   "Failed", says: []string{"crash-loops", "Warning PodsFailing"},
		},
		"the image is missing": {
			why: "it may be pushed yet, or the registry come back", backend: true,
			waiting: corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: `back-off pulling image "registry.example/fetch:1"`},
			phase:   "Pending", says: []string{"cannot pull image registry.example/fetch:1"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := readySpace(t)
			pod := s.proxies("fetch")[0]
			if c.backend {
				pod = s.backends("fetch")[0]
			}
			well := *pod.Status.DeepCopy()

			s.setStatus(pod, waiting(*well.DeepCopy(), c.waiting))
			s.awaitPhase("fetch", c.phase)
			s.describes("fetch", append(c.says, "Phase: "+c.phase)...)
			s.awaitCondition("fetch", "Ready", metav1.ConditionFalse, v1beta1.ReasonNotReady)

			s.setStatus(pod, well)
			s.awaitPhase("fetch", "Ready")
			s.awaitCondition("fetch", "Ready", metav1.ConditionTrue, v1beta1.ReasonReady)
		})
	}
}

// waiting is the status of a pod whose only container does not run.
func waiting(status corev1.PodStatus, why corev1.ContainerStateWaiting) corev1.PodStatus {
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].Ready = false
		status.ContainerStatuses[i].State = corev1.ContainerState{Waiting: &why}
	}
	for i := range status.Conditions {
		if kind := status.Conditions[i].Type; kind == corev1.PodReady || kind == corev1.ContainersReady {
			status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
	return status
}

// setStatus writes the status of a pod, as a kubelet would.
func (s *space) setStatus(pod corev1.Pod, status corev1.PodStatus) {
	s.t.Helper()
	harness.Eventually(s.t, "the status of pod "+pod.Name+" to be written", func() error {
		live := &corev1.Pod{}
		s.read(pod.Name, live)
		live.Status = *status.DeepCopy()
		return s.Client.Status().Update(s.t.Context(), live)
	})
}

func TestNamesThatAreTaken(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"app": "theirs"}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "theirs", Image: "registry.example/theirs:1"}}},
	}
	cases := map[string]struct {
		why    string
		theirs client.Object
	}{
		"Deployment": {
			why: "an application may have the name of a server",
			theirs: &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: "fetch"},
				Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
			},
		},
		"Service": {
			why: "clients of theirs must not end at ours",
			theirs: &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "mcp-fetch-proxy"},
				Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			theirs, named := c.theirs, c.theirs.GetName()
			theirs.SetNamespace(s.ns)
			if err := s.Client.Create(t.Context(), theirs); err != nil {
				t.Fatal(err)
			}
			s.create("fetch")
			s.awaitPhase("fetch", "Failed")
			s.describes("fetch", "NameTaken", name+" "+s.ns+"/"+named)
			s.create("other")
			s.awaitPhase("other", "Ready")

			// Deleted, the server takes nothing of theirs with it.
			s.kubectl("delete", "mcpserver", "fetch", "--timeout=3m")
			now := theirs.DeepCopyObject().(client.Object)
			s.read(named, now)
			if now.GetUID() != theirs.GetUID() || now.GetGeneration() != theirs.GetGeneration() ||
				len(now.GetOwnerReferences()) > 0 || len(now.GetLabels()) > 0 || now.GetDeletionTimestamp() != nil {
				t.Errorf("%s, and it was touched: %+v", c.why, now)
			}

			// Made again, it is Ready as soon as the name is free.
			s.create("fetch")
			s.awaitPhase("fetch", "Failed")
			s.kubectl("delete", name, named)
			s.annotate("fetch", map[string]string{"example.org/look": "again"})
			s.awaitPhase("fetch", "Ready")
		})
	}
}
