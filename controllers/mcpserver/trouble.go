package mcpserver

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phasegate/phasegate/controllers/runner"
)

// maxLine bounds what is repeated of somebody else's message, in bytes.
const maxLine = 200

// trouble is why a pod does not serve. The zero value is none.
type trouble struct {
	text string
	// failing: it will not by itself.
	failing bool
}

// Reasons for which a container waits, as kubelets write them.
var (
	cannotStart = []string{"CreateContainerError", "CreateContainerConfigError", "RunContainerError", "InvalidImageName", "ErrImageNeverPull"}
	cannotPull  = []string{"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError"}
)

const crashLoop = "CrashLoopBackOff"

// worst is that of the first pod that is failing, else of the first that has any.
// A pod of an older template than the one given is about to be replaced, so that
// its failure decides nothing.
func worst(pods []corev1.Pod, template *corev1.PodTemplateSpec) trouble {
	var all []trouble
	for _, pod := range pods {
		if t := troubleOf(&pod); t.text != "" {
			t.failing = t.failing && isOf(template, &pod)
			all = append(all, t)
		}
	}
	if i := slices.IndexFunc(all, func(t trouble) bool { return t.failing }); i > 0 {
		return all[i]
	}
	return append(all, trouble{})[0]
}

// isOf compares annotations, since each change of the content changes a stamp there.
func isOf(template *corev1.PodTemplateSpec, pod *corev1.Pod) bool {
	for name, value := range template.Annotations {
		if pod.Annotations[name] != value {
			return false
		}
	}
	return true
}

func troubleOf(pod *corev1.Pod) trouble {
	where := "pod " + pod.Name
	switch {
	case pod.DeletionTimestamp != nil:
		return trouble{text: where + " is on its way out" + onNode(pod)}
	case pod.Status.Phase == corev1.PodFailed:
		return trouble{text: fmt.Sprintf("%s has failed: %s", where, line(cmp.Or(pod.Status.Message, pod.Status.Reason, "no reason given")))}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := containerTrouble(pod, c); t.text != "" {
			t.text = fmt.Sprintf("%s: container %s %s", where, c.Name, t.text)
			return t
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return trouble{text: fmt.Sprintf("%s is on no node: %s", where, line(c.Message))}
		}
	}
	return trouble{}
}

func containerTrouble(pod *corev1.Pod, c corev1.ContainerStatus) trouble {
	if waiting := c.State.Waiting; waiting != nil {
		switch {
		case waiting.Reason == crashLoop:
			return trouble{text: "crash-loops" + exit(pod, c.Name, c.LastTerminationState.Terminated), failing: true}
		case slices.Contains(cannotStart, waiting.Reason):
			return trouble{text: fmt.Sprintf("cannot start (%s): %s", waiting.Reason, line(waiting.Message)), failing: true}
		case slices.Contains(cannotPull, waiting.Reason):
			return trouble{text: fmt.Sprintf("cannot pull image %s%s", c.Image, pullCause(waiting.Message))}
		}
		return trouble{} // it is being created
	}
	if ended := c.State.Terminated; ended != nil && ended.ExitCode != 0 {
		// The first end may have been a coincidence; it is started again.
		return trouble{text: "has ended" + exit(pod, c.Name, ended), failing: c.RestartCount > 0}
	}
	return trouble{}
}

// exit tells how a container ended. Of its own words it repeats those that the
// container wrote in order to be read here; with the other policy they are the
// end of its log, which may hold anything.
func exit(pod *corev1.Pod, container string, ended *corev1.ContainerStateTerminated) string {
	if ended == nil {
		return ""
	}
	text := fmt.Sprintf(" (exit code %d", ended.ExitCode)
	if ended.Reason != "" && ended.Reason != "Error" {
		text += ", " + ended.Reason
	}
	text += ")"
	if message := line(ended.Message); message != "" && !logged(pod, container) {
		text += ": " + message
	}
	return text
}

func logged(pod *corev1.Pod, container string) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == container {
			return c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError
		}
	}
	return true
}

// pullCause is what both reasons between which a kubelet goes back and forth say,
// so that the status does not change each time.
func pullCause(message string) string {
	const before = "ErrImagePull: "
	if i := strings.Index(message, before); i >= 0 {
		message = message[i+len(before):]
	}
	if message = line(message); message == "" || strings.HasPrefix(message, "Back-off pulling") {
		return ""
	}
	return ": " + message
}

// line is the beginning of the first line of a text.
func line(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return runner.Cut(strings.TrimSpace(first), maxLine)
}

func onNode(pod *corev1.Pod) string {
	if pod.Spec.NodeName == "" {
		return ""
	}
	return " on node " + pod.Spec.NodeName
}
