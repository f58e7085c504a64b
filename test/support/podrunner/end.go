package podrunner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/phasegate/phasegate/test/support/harness"
)

// finalizer is that of pods whose process has to end before they are gone.
const finalizer = "phasegate.dev/podrunner"

// keep puts the finalizer on a pod.
func (r *Runner) keep(ctx context.Context, pod *corev1.Pod) error {
	if controllerutil.ContainsFinalizer(pod, finalizer) {
		return nil
	}
	return r.setFinalizers(ctx, pod, append(slices.Clone(pod.Finalizers), finalizer))
}

// release lets a pod go that is being deleted; one that is gone, or stays, is fine.
func (r *Runner) release(ctx context.Context, pod *corev1.Pod) error {
	if pod == nil || pod.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(pod, finalizer) {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(pod.Finalizers), func(f string) bool { return f == finalizer })
	return r.setFinalizers(ctx, pod, others)
}

// setFinalizers changes nothing of a pod that is no longer as it was seen.
func (r *Runner) setFinalizers(ctx context.Context, pod *corev1.Pod, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	_, err = r.core.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrs.IsNotFound(err) {
		return nil
	}
	return err
}

// mayEnd says that the end of a pod's process is the end of the pod.
func mayEnd(pod *corev1.Pod) bool { return pod.Spec.RestartPolicy == corev1.RestartPolicyNever }

// report tells the API server how a pod has ended, which the simulated nodes cannot know.
func (r *Runner) report(ctx context.Context, pod *corev1.Pod, process *harness.Process) error {
	pod = pod.DeepCopy()
	terminated := &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: metav1.Now(), Message: process.Tail(tailLines)}
	pod.Status.Phase = corev1.PodSucceeded
	if err := process.Stop(0); err != nil { // it has ended: this only asks how
		pod.Status.Phase, terminated.Reason, terminated.ExitCode = corev1.PodFailed, "Error", exitCode(err)
	}
	name := r.containerOf(pod).Name
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == name {
			status.Ready, status.State = false, corev1.ContainerState{Terminated: terminated}
		}
	}
	_, err := r.core.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if apierrs.IsNotFound(err) {
		return nil
	}
	return err
}

// exitCode is that of a process which ended with an error; -1 if a signal ended it.
func exitCode(err error) int32 {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return -1
	}
	return int32(exit.ExitCode())
}

// Ready asks the readiness probe of a pod's container, as the kubelet would; nil
// means yes. Only httpGet is understood.
func (r *Runner) Ready(ctx context.Context, name types.NamespacedName) error {
	pod, err := r.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil {
		return err
	}
	container := r.containerOf(pod)
	if container == nil || container.ReadinessProbe == nil || container.ReadinessProbe.HTTPGet == nil {
		return harness.Permanent(fmt.Errorf("pod %s has no readiness probe by httpGet", name))
	}
	probe := container.ReadinessProbe.HTTPGet
	port := probe.Port.String()
	for _, p := range container.Ports {
		if p.Name == port {
			port = fmt.Sprint(p.ContainerPort)
		}
	}
	url := "http://" + net.JoinHostPort(r.Host(name), port) + probe.Path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close() // read to its end
	if err != nil || answer.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("%s answers %s: %s", url, answer.Status, text), err)
	}
	return nil
}
