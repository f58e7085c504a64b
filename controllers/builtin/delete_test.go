package builtin_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/support/harness"
)

// withDependent makes a plan that made a ConfigMap, which owns another one that takes its time to go, as a Job owns
// its Pods.
func withDependent(t *testing.T, finalizers ...string) (client.WithWatch, *plan) {
	t.Helper()
	world := shared.Cluster(t).Client
	p, err := withConfigMaps("made")(t.Context(), world)
	if err != nil {
		t.Fatal(err)
	}
	made := &corev1.ConfigMap{}
	if err := world.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: "made"}, made); err != nil {
		t.Fatal(err)
	}
	made.Finalizers = finalizers
	if err := world.Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	yes := true
	pod := somebodys(p.Namespace, "pod")
	pod.Finalizers = []string{slowFinalizer}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: made.Name, UID: made.UID, Controller: &yes, BlockOwnerDeletion: &yes}}
	if err := world.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return world, p
}

// drop takes the slow finalizer away.
func drop(t *testing.T, c client.Client, p *plan, name string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name}}
	patch := client.RawPatch("application/json-patch+json", []byte(`[{"op":"remove","path":"/metadata/finalizers/0"}]`))
	if err := c.Patch(t.Context(), cm, patch); err != nil {
		t.Fatal(err)
	}
}

func TestDeleteWaitsForWhatGoesWithIt(t *testing.T) {
	own := params{"apiVersion": "v1", "kind": "ConfigMap", "name": "made"}
	waits := func(t *testing.T, c client.Client, p *plan, for_ string) {
		t.Helper()
		_, err := act(t, c, "Delete", p, own)
		if reasonOf(err) != "waits" || !strings.Contains(err.Error(), for_) {
			t.Fatalf("got %v, want to wait: %s", err, for_)
		}
	}
	gone := func(t *testing.T, c client.Client, p *plan) {
		t.Helper()
		harness.Eventually(t, "the end of the Delete", func() error {
			_, err := act(t, c, "Delete", p, own)
			return err
		})
		if _, err := stored(t, p.Namespace, "v1", "ConfigMap", "pod"); !apierrs.IsNotFound(err) {
			t.Errorf("what it owned is still there (%v): a Pod would still write", err)
		}
	}
	t.Run("ours", func(t *testing.T) {
		world, p := withDependent(t)
		waits(t, world, p, "what it owns goes first")
		harness.Eventually(t, "the collector to delete what it owns", deleting(t, p, "pod"))
		waits(t, world, p, "what it owns goes first")
		drop(t, world, p, "pod")
		gone(t, world, p)
	})
	t.Run("a deletion in the background is under way", func(t *testing.T) {
		world, p := withDependent(t, slowFinalizer)
		made := somebodys(p.Namespace, "made")
		if err := world.Delete(t.Context(), made, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
		waits(t, world, p, "what it owns goes first; finalizers "+slowFinalizer)
		drop(t, world, p, "made")
		harness.Eventually(t, "the collector to delete what it owns", deleting(t, p, "pod"))
		waits(t, world, p, "what it owns goes first")
		drop(t, world, p, "pod")
		gone(t, world, p)
	})
}

func deleting(t *testing.T, p *plan, name string) func() error {
	return func() error {
		obj, err := stored(t, p.Namespace, "v1", "ConfigMap", name)
		if err == nil && obj.GetDeletionTimestamp() == nil {
			err = fmt.Errorf("%s is not being deleted", name)
		}
		return err
	}
}

// podOf plays the Job controller and a kubelet: a Pod of the Job that is there, in a phase.
func podOf(ctx context.Context, c client.Client, p *plan, name string, phase corev1.PodPhase) error {
	jobs := &batchv1.JobList{}
	if err := c.List(ctx, jobs, client.InNamespace(p.Namespace)); err != nil {
		return err
	}
	job, yes := &jobs.Items[0], true
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "default"}}
	if err := c.Create(ctx, account); err != nil && !apierrs.IsAlreadyExists(err) {
		return err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name, Labels: job.Spec.Template.Labels, Finalizers: []string{slowFinalizer},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: &yes, BlockOwnerDeletion: &yes}}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "restore", Image: "restore:1"}}},
	}
	if err := c.Create(ctx, pod); err != nil {
		return err
	}
	pod.Status.Phase = phase
	return c.Status().Update(ctx, pod)
}

func endPod(t *testing.T, c client.Client, p *plan, name string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name}}
	if err := c.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// EndJob is over when nothing of the Job runs any more, whoever deleted it.
func TestEndJob(t *testing.T) {
	for name, c := range map[string]struct {
		why  string
		then func(*testing.T, client.Client, *plan)
		jobs int
	}{
		"it runs":                      {why: "it would run on"},
		"somebody has deleted the Job": {why: "its Pod runs on", then: func(t *testing.T, _ client.Client, p *plan) { deleteJobs(t, p) }},
		"it is done": {why: "its Pod is not, and its logs can still be read", jobs: 1, then: func(t *testing.T, c client.Client, p *plan) {
			if err := endJobs(batchv1.JobFailureTarget, batchv1.JobFailed)(t.Context(), c, p); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			world, p := plansFor(t)
			startJob(t, world, p, "restore")
			if err := podOf(t.Context(), world, p, "writes", corev1.PodRunning); err != nil {
				t.Fatal(err)
			}
			for _, no := range []error{endJob(t, world, p, params{"name": "check"}), endJob(t, world, another(t, world, p), nil)} {
				if no != nil {
					t.Errorf("got %v: it is not about another run, or another object's Job", no)
				}
			}
			if c.then != nil {
				c.then(t, world, p)
			}
			for _, with := range []params{nil, {"name": "restore"}} {
				err := endJob(t, world, p, with)
				if want := "Pod " + p.Namespace + "/writes (finalizers " + slowFinalizer + ")"; reasonOf(err) != "waits" || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %v, want to wait for %s", c.why, err, want)
				}
			}
			endPod(t, world, p, "writes")
			harness.Eventually(t, "the end of the Job", func() error { return endJob(t, world, p, nil) })
			if n := jobsOf(t, p); n != c.jobs {
				t.Errorf("%s: %d Jobs, want %d", c.why, n, c.jobs)
			}
		})
	}
}

func endJob(t *testing.T, c client.Client, p *plan, with params) error {
	t.Helper()
	_, err := act(t, c, "EndJob", p, with)
	return err
}

// jobsOf counts the Jobs of a plan, and deleteJobs is a person with kubectl.
func jobsOf(t *testing.T, p *plan) int {
	t.Helper()
	list := &batchv1.JobList{}
	if err := shared.Cluster(t).Client.List(t.Context(), list, client.InNamespace(p.Namespace)); err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

func deleteJobs(t *testing.T, p *plan) {
	t.Helper()
	if err := shared.Cluster(t).Client.DeleteAllOf(t.Context(), &batchv1.Job{}, client.InNamespace(p.Namespace), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
}

// A Job that was there and is not any more is not run again unasked: what it did is not known.
func TestRunJobThatWasDeleted(t *testing.T) {
	world, p := plansFor(t)
	startJob(t, world, p, "restore")
	with := params{"manifest": plainJob("restore")}
	deleteJobs(t, p)
	if _, err := act(t, world, "RunJob", p, with); reasonOf(err) != "JobDeleted" || jobsOf(t, p) != 0 {
		t.Errorf("got %v and %d Jobs, want JobDeleted and none", err, jobsOf(t, p))
	}
	nextVisit(t, world, p)
	if _, err := act(t, world, "RunJob", p, with); reasonOf(err) != "waits" || jobsOf(t, p) != 1 {
		t.Errorf("the next visit: got %v and %d Jobs, want to wait for a new one", err, jobsOf(t, p))
	}
}

func TestRunJobThatWasDeletedAfterItWasDone(t *testing.T) {
	world, p := plansFor(t)
	startJob(t, world, p, "restore")
	with := params{"manifest": plainJob("restore")}
	if err := endJobs(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)(t.Context(), world, p); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		out, err := act(t, world, "RunJob", p, with)
		if err != nil || out["succeeded"] != int64(1) || !strings.HasPrefix(out["name"].(string), "restore-") {
			t.Errorf("got %v, %v: the outcome is known", out, err)
		}
		deleteJobs(t, p)
	}
	if n := jobsOf(t, p); n != 0 {
		t.Errorf("%d Jobs: it ran a second time", n)
	}
}
