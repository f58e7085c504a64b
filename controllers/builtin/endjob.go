package builtin

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/fsm"
)

// LabelRun is on every Job of RunJob and on its Pods; its value is the name in the manifest.
const LabelRun = "phasegate.dev/run"

var endJobSpec = fsm.ActionSpec{
	Doc: "Ends the Jobs that RunJob started for this object: one that is not done is deleted, and EndJob waits until no Pod of them runs any more, also if the Job was deleted already. " +
		"Jobs that are done stay, with their logs. As the release of an effect that RunJob acquires, it ends the Job on every way out, before what was taken earlier is released.",
	Params: map[string]fsm.Param{
		"name":      {Type: fsm.TypeString, Check: isName, Doc: "the name in the manifest of RunJob; left out: all Jobs that RunJob started for this object"},
		"namespace": {Type: fsm.TypeString, Doc: "of the Jobs; default: that of the object that the machine drives"},
	},
	Ends: endsRun,
}

// endsRun: what RunJob started has ended after it.
func endsRun(with, run fsm.Params) bool {
	manifest := &unstructured.Unstructured{Object: run.Object("manifest")}
	return (with["name"] == nil || with.String("name", "") == manifest.GetName()) && with.String("namespace", "") == namespaceOfRun(run)
}

func namespaceOfRun(run fsm.Params) string {
	return (&unstructured.Unstructured{Object: run.Object("manifest")}).GetNamespace()
}

var (
	endJobVerbs = []string{"list", "delete", "get"}
	podVerbs    = []string{"list"}
)

func endJob(ctx context.Context, c *call) (outputs, error) {
	jobs, err := c.ofRuns(ctx, batchv1.SchemeGroupVersion.WithKind("Job"), endJobVerbs)
	if err != nil {
		return nil, err
	}
	left := []string{}
	for i := range jobs {
		if job := &jobs[i]; c.made(job) && !jobIsDone(job) {
			if left, err = c.remove(ctx, job, true, left); err != nil {
				return nil, err
			}
		}
	}
	// Read after the Jobs were deleted: a Job that is going makes no Pods.
	pods, err := c.ofRuns(ctx, corev1.SchemeGroupVersion.WithKind("Pod"), podVerbs)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if still := running(&pods[i]); still != "" {
			left = append(left, still)
		}
	}
	if len(left) > 0 {
		return nil, fsm.Wait("Waiting until nothing runs any more: %s", some(left))
	}
	return nil, nil
}

// ofRuns lists the objects of a kind that bear the labels of the runs to end.
func (c *call) ofRuns(ctx context.Context, kind schema.GroupVersionKind, verbs []string) ([]unstructured.Unstructured, error) {
	at := &unstructured.Unstructured{}
	at.SetGroupVersionKind(kind)
	at.SetNamespace(c.with.String("namespace", ""))
	if err := c.place(at); err != nil {
		return nil, err
	}
	runs := client.MatchingLabels{LabelOwner: string(c.owner.GetUID())}
	if name := c.with.String("name", ""); name != "" {
		runs[LabelRun] = runName(name)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	err := c.Client.List(ctx, list, client.InNamespace(at.GetNamespace()), client.HasLabels{LabelRun}, runs)
	return list.Items, c.explain(err, "list", at, verbs...)
}

func jobIsDone(job *unstructured.Unstructured) bool {
	for _, kind := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if condition := conditionOf(job, string(kind)); condition != nil && condition["status"] == string(corev1.ConditionTrue) {
			return true
		}
	}
	return false
}

// running says what is known of a Pod whose containers may run; empty when they have ended.
func running(pod *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	if phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed) {
		return ""
	}
	text := title(pod)
	if node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName"); node != "" {
		text += " on node " + node
	}
	return text + because(pod.GetFinalizers())
}

// savedJobs is the entry of the state that says which Jobs there were in a visit of a phase.
const savedJobs = "jobs"

// jobNote is what is on record of a Job, by the name of its first run: that it was there cannot be seen any more when it is
// deleted.
type jobNote struct {
	UID       types.UID `json:"uid,omitempty"`
	Done      bool      `json:"done,omitempty"`
	Succeeded int64     `json:"succeeded,omitempty"`
	Message   string    `json:"message,omitempty"`
	Failed    bool      `json:"failed,omitempty"`
	// Run is how often the Job was run before, each time under another name.
	Run int `json:"run,omitempty"`
}

// jobNotes are all notes of Jobs, and that of one. A Job that cannot be noted must not be created.
func (c *call) jobNotes(first string) (notes map[string]jobNote, note jobNote, err error) {
	notes, err = readNotes[jobNote](c, savedJobs)
	note, known := notes[first]
	if err == nil && !known {
		_, err = encodeNotes(c, savedJobs, notes, noteRoom)
	}
	return notes, note, err
}

func (n jobNote) outputs(name string) outputs {
	return outputs{"name": name, "succeeded": n.Succeeded, "message": n.Message}
}
