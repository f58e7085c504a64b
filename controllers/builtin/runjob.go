package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
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
	Doc: "Runs a Job once in each visit to the phase, and waits until it is done. A failed Job is a terminal error (reason JobFailed): it is run again once somebody has deleted it. One that was deleted before it was done is a terminal error, too (JobDeleted). " +
		"As the release of an effect, and once the object is deleted, the next attempt runs a Job that failed again, under another name, for nobody else could. " +
		"A Job goes on when its phase is left. While effects are held, make RunJob the acquire of an effect, which EndJob releases. Jobs belong to the MachineState, too: they go on when the object is gone, and are deleted with what was left of it. A Job takes secrets by itself, by valueFrom.secretKeyRef or a volume.",
	Runs:    "Job",
	Inverse: &fsm.Inverse{Action: "EndJob", With: map[string]string{"name": "manifest.metadata.name", "namespace": "manifest.metadata.namespace"}},
	Check:   fieldsOfJob,
	Params: map[string]fsm.Param{
		"manifest": {Type: fsm.TypeObject, Required: true, Check: isJob, Doc: "a batch/v1 Job; its name gets a suffix that belongs to the visit. " +
			"Two Jobs of one phase need different names. restartPolicy is Never by default"},
		"output": {Type: fsm.TypeBool, Doc: "true: the output `message` is what the first container of the Pod that succeeded last has written to /dev/termination-log, at most 4 KiB; no secrets"},
	},
	Outputs: map[string]fsm.Type{"name": fsm.TypeString, "succeeded": fsm.TypeInt, "message": fsm.TypeString},
}

var runJobVerbs = []string{"get", "create"}

const (
	// maxJobName is how long a name may be that becomes a label of the Pods.
	maxJobName = 63
	suffixLen  = 10
	// podsLooked is among how many Pods the reason of a failure, or the output, is looked for.
	podsLooked = 20
)

func runJob(ctx context.Context, c *call) (outputs, error) {
	wanted, name, err := c.job()
	if err != nil {
		return nil, err
	}
	first := c.nameOfRun(name, 0)
	notes, note, err := c.jobNotes(first)
	if err != nil {
		return nil, err
	}
	wanted.SetName(c.nameOfRun(name, note.Run))
	if note.Done {
		return note.outputs(wanted.GetName()), nil
	}
	live, err := c.startJob(ctx, wanted, note)
	if errors.Is(err, errNextRun) {
		if err := saveNote(ctx, c, savedJobs, notes, first, jobNote{Run: note.Run + 1}); err != nil {
			return nil, err
		}
		return runJob(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	if note.UID == "" {
		note.UID = live.GetUID()
		if err := saveNote(ctx, c, savedJobs, notes, first, note); err != nil {
			return nil, err
		}
	}
	job := &batchv1.Job{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, job); err != nil {
		return nil, fmt.Errorf("read %s: %w", title(live), err)
	}
	out, outcome := c.jobOutcome(ctx, live, job, &note)
	if err := saveNote(ctx, c, savedJobs, notes, first, note); err != nil {
		return nil, err
	}
	return out, outcome
}

// errNextRun is that of a Job that is gone and is run again.
var errNextRun = errors.New("run the Job again")

// insists tells that a Job that did not succeed is run again: nobody could ask for it. A release is called until it
// succeeds, and an object that is deleted has no other way out.
func (c *call) insists() bool { return c.releases || !c.owner.GetDeletionTimestamp().IsZero() }

// startJob is the Job as it is, or as it was created. One that is on record and not there was deleted: by whoever has seen
// that it failed, or else nobody knows what it did.
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
	case note.UID != "" && (note.Failed || c.insists()):
		return nil, errNextRun
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

// job is the Job to create but for its name, and the name that the manifest gives it.
func (c *call) job() (obj *unstructured.Unstructured, name string, err error) {
	if obj, err = c.manifest("manifest"); err != nil {
		return nil, "", err
	}
	name = cmp.Or(obj.GetName(), c.owner.GetName())
	obj.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	const field = "restartPolicy"
	template := []string{"spec", "template", "spec"}
	if _, found, _ := unstructured.NestedFieldNoCopy(obj.Object, append(template, field)...); !found {
		if err := unstructured.SetNestedField(obj.Object, string(corev1.RestartPolicyNever), append(template, field)...); err != nil {
			return nil, "", fsm.Terminal("InvalidManifest", "spec.template.spec of the Job: %w: correct the manifest", err)
		}
	}
	if err := c.place(obj); err != nil {
		return nil, "", err
	}
	c.mark(obj)
	c.keep(obj)
	return obj, name, c.label(obj, runName(name))
}

// nameOfRun is the same whenever the action is called in this visit, so that a crash does not run a Job twice, and another
// one where it is run again.
func (c *call) nameOfRun(name string, run int) string {
	parts := []string{name}
	if run > 0 {
		parts = append(parts, strconv.Itoa(run))
	}
	return runName(name) + "-" + c.visitKey(parts...)[:suffixLen]
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

// jobOutcome says what came of a Job, and notes it.
func (c *call) jobOutcome(ctx context.Context, live *unstructured.Unstructured, job *batchv1.Job, note *jobNote) (outputs, error) {
	for _, condition := range job.Status.Conditions {
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == batchv1.JobComplete:
			return c.completed(ctx, live, job, note)
		case condition.Type == batchv1.JobFailed:
			note.Failed = true
			remedy := "delete it to run it again, or give the Job another name"
			if c.insists() {
				*note, remedy = jobNote{Run: note.Run + 1}, "the next attempt runs another one"
			}
			return nil, fsm.Terminal("JobFailed", "%s failed: %s: %s%s; see its logs; %s", title(live), condition.Reason, condition.Message, c.podFailure(ctx, job), remedy)
		}
	}
	return nil, fsm.Wait("%s runs: %d active, %d succeeded, %d failed", title(live), job.Status.Active, job.Status.Succeeded, job.Status.Failed)
}

// completed notes what a Job has come to: it may be deleted before it is asked for again.
func (c *call) completed(ctx context.Context, live *unstructured.Unstructured, job *batchv1.Job, note *jobNote) (outputs, error) {
	if c.with.Bool("output", false) {
		pods, err := c.podsOf(ctx, job)
		if err != nil {
			return nil, c.explain(err, "list the Pods of", live, podVerbs...)
		}
		last := lastPod(pods, corev1.PodSucceeded)
		if last == nil {
			return nil, fsm.Terminal("JobOutputLost", "%s is complete, and none of its Pods is there any more to say what came of it: "+
				"let Pods stay for some minutes, and delete the Job to run it again", title(live))
		}
		note.Message = messageOf(last, job.Spec.Template.Spec.Containers[0].Name)
	}
	note.Done, note.Succeeded = true, int64(job.Status.Succeeded)
	return note.outputs(job.Name), nil
}

// messageOf is what a container of a Pod has written for its end.
func messageOf(pod *corev1.Pod, container string) string {
	for _, status := range pod.Status.ContainerStatuses {
		if end := status.State.Terminated; end != nil && status.Name == container {
			return strings.TrimSpace(end.Message)
		}
	}
	return ""
}

// podFailure tells why the last Pod of a failed Job failed. It is a help for
// people: where Pods cannot be read, the Job's own word has to do.
func (c *call) podFailure(ctx context.Context, job *batchv1.Job) string {
	pods, err := c.podsOf(ctx, job)
	if err != nil {
		return fmt.Sprintf(" (why its Pods failed is not known: the manager cannot list pods: %s)", apierrs.ReasonForError(err))
	}
	last := lastPod(pods, corev1.PodFailed)
	if last == nil {
		return ""
	}
	reason := cmp.Or(podReason(last), "no container says why")
	return runner.Cut(fmt.Sprintf("; Pod %s: %s", last.Name, reason), maxText/2)
}

// podsOf are Pods of a Job, as many as are looked at.
func (c *call) podsOf(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := c.Client.List(ctx, list, client.InNamespace(job.Namespace),
		client.MatchingLabels{batchv1.JobNameLabel: job.Name}, client.Limit(podsLooked))
	if err != nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(list.UnstructuredContent(), pods)
	return pods.Items, err
}

// lastPod is the newest Pod of a phase; nil where there is none.
func lastPod(pods []corev1.Pod, phase corev1.PodPhase) (last *corev1.Pod) {
	for i := range pods {
		if pod := &pods[i]; pod.Status.Phase == phase && (last == nil || last.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			last = pod
		}
	}
	return last
}

func podReason(pod *corev1.Pod) string {
	for _, container := range pod.Status.ContainerStatuses {
		if end := container.State.Terminated; end != nil && end.ExitCode != 0 {
			return strings.TrimSpace(fmt.Sprintf("container %s: %s (exit code %d) %s", container.Name, end.Reason, end.ExitCode, end.Message))
		}
	}
	return strings.TrimSpace(pod.Status.Reason + " " + pod.Status.Message)
}
