package builtin

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

var runJobSpec = fsm.ActionSpec{
	Doc: "Runs a Job once in each visit to the phase, and waits until it is done. A failed Job is a terminal error (reason JobFailed), and so is one that was deleted before it was done (JobDeleted): it is not run again unasked. " +
		"A Job goes on when its phase is left. While effects are held, make RunJob the acquire of an effect, with EndJob as its release. Jobs are deleted with the object that the machine drives.",
	Runs:  "Job",
	Check: fieldsOfJob,
	Params: map[string]fsm.Param{
		"manifest": {Type: fsm.TypeObject, Required: true, Check: isJob, Doc: "a batch/v1 Job; its name gets a suffix that belongs to the visit. " +
			"Two Jobs of one phase need different names. restartPolicy is Never by default"},
	},
	Outputs: map[string]fsm.Type{"name": fsm.TypeString, "succeeded": fsm.TypeInt},
}

var runJobVerbs = []string{"get", "create"}

const (
	// maxJobName is how long a name may be that becomes a label of the Pods.
	maxJobName = 63
	suffixLen  = 10
	// podsLooked is among how many Pods the reason of a failure is looked for.
	podsLooked = 20
)

func runJob(ctx context.Context, c *call) (outputs, error) {
	wanted, err := c.job()
	if err != nil {
		return nil, err
	}
	notes, err := c.readJobNotes()
	if err != nil {
		return nil, err
	}
	note := notes.Jobs[wanted.GetName()]
	if note.Done {
		return outputs{"name": wanted.GetName(), "succeeded": note.Succeeded}, nil
	}
	live, err := c.startJob(ctx, wanted, note)
	if err != nil {
		return nil, err
	}
	if note.UID == "" {
		if err := c.saveJobNote(ctx, notes, live.GetName(), jobNote{UID: live.GetUID()}); err != nil {
			return nil, err
		}
	}
	job := &batchv1.Job{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, job); err != nil {
		return nil, fmt.Errorf("read %s: %w", title(live), err)
	}
	out, err := c.jobOutcome(ctx, live, job)
	if err == nil {
		err = c.saveJobNote(ctx, notes, live.GetName(), jobNote{UID: live.GetUID(), Done: true, Succeeded: int64(job.Status.Succeeded)})
	}
	return out, err
}

// startJob is the Job as it is, or as it was created. One that is on record and not there was deleted.
func (c *call) startJob(ctx context.Context, wanted *unstructured.Unstructured, note jobNote) (*unstructured.Unstructured, error) {
	live := wanted.DeepCopy()
	found, err := c.find(ctx, live, runJobVerbs...)
	switch {
	case err != nil:
		return nil, err
	case found && !c.made(live):
		return nil, fsm.Terminal("NotOurs", "%s is there already, and %s did not make it: give the Job another name", title(live), c.owner.GetName())
	case found:
		return live, nil
	case note.UID != "":
		return nil, fsm.Terminal("JobDeleted", "%s was deleted before it was done: what it did until then is not known, so it is not run again; "+
			"look at what it left behind, then ask for another try", title(live))
	}
	err = c.Client.Create(ctx, wanted, c.writer())
	if apierrs.IsAlreadyExists(err) { // the answer of an earlier create was lost
		return nil, fsm.Wait("Job %s was created just now", wanted.GetName())
	}
	return wanted, c.explain(err, "create", live, runJobVerbs...)
}

// job is the Job to create. Its name is the same whenever the action runs in this
// visit, so that a crash does not run it twice.
func (c *call) job() (*unstructured.Unstructured, error) {
	obj, err := c.manifest("manifest")
	if err != nil {
		return nil, err
	}
	obj.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	base := cmp.Or(obj.GetName(), c.owner.GetName())
	obj.SetName(runName(base) + "-" + c.visitKey(base)[:suffixLen])
	const field = "restartPolicy"
	template := []string{"spec", "template", "spec"}
	if _, found, _ := unstructured.NestedFieldNoCopy(obj.Object, append(template, field)...); !found {
		if err := unstructured.SetNestedField(obj.Object, string(corev1.RestartPolicyNever), append(template, field)...); err != nil {
			return nil, fsm.Terminal("InvalidManifest", "spec.template.spec of the Job: %w: correct the manifest", err)
		}
	}
	if err := c.place(obj); err != nil {
		return nil, err
	}
	c.mark(obj)
	return obj, c.label(obj, runName(base))
}

// runName is the name of a run as it fits before the suffix.
func runName(name string) string {
	return strings.TrimRight(name[:min(len(name), maxJobName-1-suffixLen)], "-.")
}

// label says on a Job and on its Pods which run they are of: Pods may outlive their Job, and must be found then.
func (c *call) label(job *unstructured.Unstructured, run string) error {
	labels := job.GetLabels()
	labels[LabelRun] = run
	job.SetLabels(labels)
	for _, label := range []string{LabelOwner, LabelRun} {
		if err := unstructured.SetNestedField(job.Object, labels[label], "spec", "template", "metadata", "labels", label); err != nil {
			return fsm.Terminal("InvalidManifest", "spec.template.metadata of the Job: %w: correct the manifest", err)
		}
	}
	return nil
}

func (c *call) jobOutcome(ctx context.Context, live *unstructured.Unstructured, job *batchv1.Job) (outputs, error) {
	for _, condition := range job.Status.Conditions {
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == batchv1.JobComplete:
			return outputs{"name": job.Name, "succeeded": int64(job.Status.Succeeded)}, nil
		case condition.Type == batchv1.JobFailed:
			return nil, fsm.Terminal("JobFailed", "%s failed: %s: %s%s; see its logs, then delete it or give the Job another name", title(live), condition.Reason, condition.Message, c.podFailure(ctx, job))
		}
	}
	return nil, fsm.Wait("%s runs: %d active, %d succeeded, %d failed", title(live), job.Status.Active, job.Status.Succeeded, job.Status.Failed)
}

// podFailure tells why the last Pod of a failed Job failed. It is a help for
// people: where Pods cannot be read, the Job's own word has to do.
func (c *call) podFailure(ctx context.Context, job *batchv1.Job) string {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := c.Client.List(ctx, list, client.InNamespace(job.Namespace),
		client.MatchingLabels{batchv1.JobNameLabel: job.Name}, client.Limit(podsLooked))
	if err != nil {
		return fmt.Sprintf(" (why its Pods failed is not known: the manager cannot list pods: %s)", apierrs.ReasonForError(err))
	}
	pods := &corev1.PodList{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.UnstructuredContent(), pods); err != nil {
		return ""
	}
	var last *corev1.Pod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase == corev1.PodFailed && (last == nil || last.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			last = pod
		}
	}
	if last == nil {
		return ""
	}
	reason := cmp.Or(podReason(last), "no container says why")
	return runner.Cut(fmt.Sprintf("; Pod %s: %s", last.Name, reason), maxText/2)
}

func podReason(pod *corev1.Pod) string {
	for _, container := range pod.Status.ContainerStatuses {
		if end := container.State.Terminated; end != nil && end.ExitCode != 0 {
			return strings.TrimSpace(fmt.Sprintf("container %s: %s (exit code %d) %s", container.Name, end.Reason, end.ExitCode, end.Message))
		}
	}
	return strings.TrimSpace(pod.Status.Reason + " " + pod.Status.Message)
}
