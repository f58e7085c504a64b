package mcpserver

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// running is a server with two proxies and one backend, where all is well.
func running() workload {
	stamp := map[string]string{v1beta1.AnnotationGeneration: "5"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: stamp}}
	return workload{
		server: &server{ObjectMeta: metav1.ObjectMeta{Name: "fetch"}},
		deployment: &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "fetch", Generation: 7},
			Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Template: template},
			Status:     appsv1.DeploymentStatus{ObservedGeneration: 7, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2},
		},
		statefulSet: &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "fetch", Generation: 3, Annotations: stamp},
			Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Template: template},
			Status:     appsv1.StatefulSetStatus{ObservedGeneration: 3, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1},
		},
	}
}

// podWith is a pod of the newest template with one container, mcp.
func podWith(name string, state corev1.ContainerState, change ...func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1beta1.AnnotationGeneration: "5"}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "mcp", TerminationMessagePolicy: corev1.TerminationMessageReadFile}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "mcp", Image: "fetch:1", State: state}}},
	}
	for _, c := range change {
		c(&pod)
	}
	return pod
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func TestJudge(t *testing.T) {
	well := verdict{wanted: 2, readyReplicas: 2, current: true, ready: true}
	noBackend := func(w *workload) { w.statefulSet.Status.ReadyReplicas = 0 }
	noProxy := func(w *workload) { w.deployment.Status.ReadyReplicas = 0 }
	backend := func(pods ...corev1.Pod) func(*workload) {
		return func(w *workload) { noBackend(w); w.backends = pods }
	}
	cases := map[string]struct {
		why    string
		change func(*workload)
		want   verdict
	}{
		"all is well": {"the base of the others", func(*workload) {}, well},

		"no Deployment": {"somebody deleted it: nothing is known of proxies",
			func(w *workload) { w.deployment = nil },
			verdict{wanted: 1, missing: true, waitingFor: "Deployment fetch: it is not there"}},
		"no Deployment, none wanted": {"a stopped server stays stopped",
			func(w *workload) { w.deployment = nil; w.server.Spec.Replicas = ptr.To[int32](0) }, verdict{missing: true}},
		"scaled to zero": {"the live number counts, also an autoscaler's; a proxy that still runs does not",
			func(w *workload) { w.deployment.Spec.Replicas = ptr.To[int32](0) }, verdict{}},
		"another number than the spec's": {"an autoscaler decides where the spec says nothing", func(w *workload) {
			w.deployment.Spec.Replicas = ptr.To[int32](3)
			w.deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 7, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3}
		}, verdict{wanted: 3, readyReplicas: 3, current: true, ready: true}},

		"Deployment not observed": {"its counts are those of the older template",
			func(w *workload) { w.deployment.Generation = 8 },
			verdict{wanted: 2, readyReplicas: 2, waitingFor: "Deployment fetch: its controller has not seen the newest template yet"}},
		"rolling": {"a pod of the older template is ready and does not count",
			func(w *workload) { w.deployment.Status.UpdatedReplicas = 1 },
			verdict{wanted: 2, readyReplicas: 2, waitingFor: "Deployment fetch: 1 of 2 pods are of the newest template"}},
		"old pods left": {"clients may still come to them", func(w *workload) { w.deployment.Status.Replicas = 3 },
			verdict{wanted: 2, readyReplicas: 2, waitingFor: "Deployment fetch: 1 pods of an older template are left"}},
		"paused": {"waiting would be in vain", func(w *workload) { w.deployment.Status.UpdatedReplicas = 0; w.deployment.Spec.Paused = true },
			verdict{wanted: 2, readyReplicas: 2, waitingFor: "Deployment fetch: it is paused (spec.paused), so that its newest template reaches no pod"}},
		"one proxy of two": {"all that are wanted must be ready", func(w *workload) { w.deployment.Status.ReadyReplicas = 1 },
			verdict{wanted: 2, readyReplicas: 1, current: true, waitingFor: "Deployment fetch: 1 of 2 pods are ready"}},
		"more ready than wanted": {"a surge is not shown as more than all", func(w *workload) { w.deployment.Status.ReadyReplicas = 3 }, well},

		"no StatefulSet": {"ready proxies without a backend serve nothing", func(w *workload) { w.statefulSet = nil },
			verdict{wanted: 2, readyReplicas: 2, waitingFor: "StatefulSet fetch: it is not there; a proxy makes it"}},
		"StatefulSet of somebody else": {"no proxy can make ours, and waiting does not help", func(w *workload) { w.statefulSet, w.taken = nil, true },
			verdict{wanted: 2, readyReplicas: 2, failing: true,
				waitingFor: "StatefulSet fetch: it belongs to another owner: delete or rename it, or choose another name"}},
		"StatefulSet not observed": {"as for the Deployment", func(w *workload) { w.statefulSet.Generation = 4 },
			verdict{wanted: 2, readyReplicas: 2, waitingFor: "StatefulSet fetch: its controller has not seen the newest template yet"}},
		"backend not ready": {"readiness includes the backend", noBackend,
			verdict{wanted: 2, readyReplicas: 2, current: true, waitingFor: "StatefulSet fetch: 0 of 1 pods are ready"}},
		"backend of an older generation": {"the newest proxies have not applied yet", func(w *workload) {
			w.statefulSet.Annotations = nil
			w.statefulSet.Spec.Template.Annotations = map[string]string{v1beta1.AnnotationGeneration: "4"}
		}, verdict{wanted: 2, readyReplicas: 2, waitingFor: "StatefulSet fetch: it is of generation 4, the proxy of 5"}},
		"backend without a readable generation": {"somebody's edit is no generation", func(w *workload) {
			w.statefulSet.Annotations = map[string]string{v1beta1.AnnotationGeneration: "six"}
			w.statefulSet.Spec.Template.Annotations = nil
		}, verdict{wanted: 2, readyReplicas: 2, waitingFor: "StatefulSet fetch: it is of generation 0, the proxy of 5"}},
		"backend applied later": {"a change of the number of backends leaves both templates as they are",
			func(w *workload) { w.statefulSet.Annotations = map[string]string{v1beta1.AnnotationGeneration: "9"} }, well},
		"no backend wanted": {"nobody would answer", func(w *workload) {
			w.statefulSet.Spec.Replicas = ptr.To[int32](0)
			w.statefulSet.Status = appsv1.StatefulSetStatus{ObservedGeneration: 3}
		}, verdict{wanted: 2, readyReplicas: 2, current: true,
			waitingFor: "StatefulSet fetch: no pod is wanted: set spec.backendReplicas to 1 or more"}},

		"backend crash-loops": {"a ready proxy does not make up for it",
			backend(podWith("fetch-0", waiting("CrashLoopBackOff", "back-off 5m0s"))),
			verdict{wanted: 2, readyReplicas: 2, current: true, failing: true,
				waitingFor: "StatefulSet fetch: 0 of 1 pods are ready: pod fetch-0: container mcp crash-loops"}},
		"one backend of two crash-loops": {"the other one serves", func(w *workload) {
			w.statefulSet.Spec.Replicas = ptr.To[int32](2)
			w.statefulSet.Status = appsv1.StatefulSetStatus{ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1}
			w.backends = []corev1.Pod{podWith("fetch-0", corev1.ContainerState{}), podWith("fetch-1", waiting("CrashLoopBackOff", ""))}
		}, verdict{wanted: 2, readyReplicas: 2, current: true,
			waitingFor: "StatefulSet fetch: 1 of 2 pods are ready: pod fetch-1: container mcp crash-loops"}},
		"proxy crash-loops, no StatefulSet": {"the proxy is what fails; what it has not made yet follows from that", func(w *workload) {
			noProxy(w)
			w.statefulSet = nil
			w.proxies = []corev1.Pod{podWith("fetch-a", waiting("CrashLoopBackOff", ""))}
		}, verdict{wanted: 2, current: false, failing: true,
			waitingFor: "Deployment fetch: 0 of 2 pods are ready: pod fetch-a: container mcp crash-loops"}},
		"crash-looping pod of an older template": {"the correction of a mistake is not another failure", func(w *workload) {
			noBackend(w)
			w.statefulSet.Status.UpdatedReplicas = 0
			w.backends = []corev1.Pod{podWith("fetch-0", waiting("CrashLoopBackOff", ""), func(p *corev1.Pod) { p.Annotations = nil })}
		}, verdict{wanted: 2, readyReplicas: 2,
			waitingFor: "StatefulSet fetch: 0 of 1 pods are of the newest template: pod fetch-0: container mcp crash-loops"}},
		"image cannot be pulled": {"it may be there in a minute: not a failure yet, but named",
			backend(podWith("fetch-0", waiting("ErrImagePull", "not found"))),
			verdict{wanted: 2, readyReplicas: 2, current: true,
				waitingFor: "StatefulSet fetch: 0 of 1 pods are ready: pod fetch-0: container mcp cannot pull image fetch:1: not found"}},
		"a cause says more than a count": {"the proxy waits for the backend: the backend's cause is what helps", func(w *workload) {
			noProxy(w)
			backend(podWith("fetch-0", waiting("ImagePullBackOff", "")))(w)
		}, verdict{wanted: 2, current: true,
			waitingFor: "StatefulSet fetch: 0 of 1 pods are ready: pod fetch-0: container mcp cannot pull image fetch:1"}},
		"a failure says more than a cause": {"it will not pass by itself", func(w *workload) {
			noProxy(w)
			w.proxies = []corev1.Pod{podWith("fetch-a", waiting("ImagePullBackOff", ""))}
			backend(podWith("fetch-0", waiting("InvalidImageName", "bad")), podWith("fetch-1", waiting("ErrImagePull", "")))(w)
		}, verdict{wanted: 2, current: true, failing: true,
			waitingFor: "StatefulSet fetch: 0 of 1 pods are ready: pod fetch-0: container mcp cannot start (InvalidImageName): bad"}},
		"no pod can be created": {"a quota, for example: there is no pod that could tell", func(w *workload) {
			w.deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 7, Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota: pods"}}}
		}, verdict{wanted: 2, failing: true,
			waitingFor: "Deployment fetch: 0 of 2 pods are of the newest template: no pod can be created: exceeded quota: pods"}},
		"a terminating pod crash-loops": {"it is being replaced", backend(podWith("fetch-0", waiting("CrashLoopBackOff", ""),
			func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(1, 0))) })),
			verdict{wanted: 2, readyReplicas: 2, current: true,
				waitingFor: "StatefulSet fetch: 0 of 1 pods are ready: pod fetch-0 is on its way out on node n1"}},
		"long": {"status.message is bounded", func(w *workload) {
			w.server.Name = strings.Repeat("x", 600)
			w.statefulSet = nil
		}, verdict{wanted: 2, readyReplicas: 2, waitingFor: "StatefulSet " + strings.Repeat("x", maxWaitingFor-len("StatefulSet ")-len("…")) + "…"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := running()
			c.change(&w)
			if diff := cmp.Diff(c.want, judge(w), cmp.AllowUnexported(verdict{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func TestTroubleOf(t *testing.T) {
	ended := func(code int32, reason, message string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}
	}
	looping := func(last *corev1.ContainerStateTerminated, policy corev1.TerminationMessagePolicy) corev1.Pod {
		return podWith("p", waiting("CrashLoopBackOff", "back-off 40s restarting failed container"), func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = last
			p.Spec.Containers[0].TerminationMessagePolicy = policy
		})
	}
	cases := map[string]struct {
		why  string
		pod  corev1.Pod
		want trouble
	}{
		"running":       {"nothing to tell", podWith("p", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), trouble{}},
		"being created": {"it takes its time", podWith("p", waiting("ContainerCreating", "")), trouble{}},
		"ended well":    {"an init container does", podWith("p", corev1.ContainerState{Terminated: ended(0, "Completed", "")}), trouble{}},
		"crash loop": {"the container's own words, not the kubelet's, which change with each attempt",
			looping(ended(1, "Error", "no such file\nstack trace"), corev1.TerminationMessageReadFile),
			trouble{"pod p: container mcp crash-loops (exit code 1): no such file", true}},
		"crash loop, out of memory": {"the reason is the cause", looping(ended(137, "OOMKilled", ""), corev1.TerminationMessageReadFile),
			trouble{"pod p: container mcp crash-loops (exit code 137, OOMKilled)", true}},
		"crash loop, words of the log": {"a log may hold secrets, and a status has more readers",
			looping(ended(1, "Error", "token=abc"), corev1.TerminationMessageFallbackToLogsOnError),
			trouble{"pod p: container mcp crash-loops (exit code 1)", true}},
		"crash loop, many words": {"bounded", looping(ended(1, "", strings.Repeat("x", 500)), corev1.TerminationMessageReadFile),
			trouble{"pod p: container mcp crash-loops (exit code 1): " + strings.Repeat("x", maxLine-len("…")) + "…", true}},
		"ended once": {"once is no loop", podWith("p", corev1.ContainerState{Terminated: ended(2, "Error", "")}),
			trouble{"pod p: container mcp has ended (exit code 2)", false}},
		"ended again": {"between two rounds of a loop", podWith("p", corev1.ContainerState{Terminated: ended(2, "Error", "")},
			func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 }),
			trouble{"pod p: container mcp has ended (exit code 2)", true}},
		"init container loops": {"the main ones never start", podWith("p", waiting("PodInitializing", ""), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "setup", State: waiting("CrashLoopBackOff", "")}}
		}), trouble{"pod p: container setup crash-loops", true}},
		"Secret missing": {"a person must make it", podWith("p", waiting("CreateContainerConfigError", `secret "keys" not found`)),
			trouble{`pod p: container mcp cannot start (CreateContainerConfigError): secret "keys" not found`, true}},
		"cannot be created": {"trying again does not help", podWith("p", waiting("CreateContainerError", "no command")),
			trouble{"pod p: container mcp cannot start (CreateContainerError): no command", true}},
		"pull, first": {"the same text as the next one, so that the status is not written each time",
			podWith("p", waiting("ErrImagePull", "denied")), trouble{"pod p: container mcp cannot pull image fetch:1: denied", false}},
		"pull, then": {"kubelets go back and forth between the two",
			podWith("p", waiting("ImagePullBackOff", `Back-off pulling image "fetch:1": ErrImagePull: denied`)),
			trouble{"pod p: container mcp cannot pull image fetch:1: denied", false}},
		"pull, older kubelet": {"its words add nothing", podWith("p", waiting("ImagePullBackOff", `Back-off pulling image "fetch:1"`)),
			trouble{"pod p: container mcp cannot pull image fetch:1", false}},
		"evicted": {"it is replaced", podWith("p", corev1.ContainerState{}, func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
		}), trouble{"pod p has failed: Evicted", false}},
		"on no node": {"a node may come", podWith("p", corev1.ContainerState{}, func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}
		}), trouble{"pod p is on no node: 0/3 nodes are available", false}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, troubleOf(&c.pod), cmp.AllowUnexported(trouble{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
