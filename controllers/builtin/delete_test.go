package builtin_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

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
	running := func(t *testing.T) (client.WithWatch, *plan) {
		t.Helper()
		world, p := plansFor(t)
		if _, err := act(t, world, "RunJob", p, params{"manifest": plainJob("restore")}); reasonOf(err) != "waits" {
			t.Fatal(err)
		}
		if err := podOf(t.Context(), world, p, "writes", corev1.PodRunning); err != nil {
			t.Fatal(err)
		}
		return world, p
	}
	waits := func(t *testing.T, c client.Client, p *plan, with params, what string) {
		t.Helper()
		if _, err := act(t, c, "EndJob", p, with); reasonOf(err) != "waits" || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want to wait for %s", err, what)
		}
	}
	ends := func(t *testing.T, c client.Client, p *plan, jobs int) {
		t.Helper()
		harness.Eventually(t, "the end of the Job", func() error {
			_, err := act(t, c, "EndJob", p, nil)
			return err
		})
		list := &batchv1.JobList{}
		if err := c.List(t.Context(), list, client.InNamespace(p.Namespace)); err != nil || len(list.Items) != jobs {
			t.Errorf("%d Jobs (%v), want %d", len(list.Items), err, jobs)
		}
	}
	t.Run("it runs", func(t *testing.T) {
		world, p := running(t)
		waits(t, world, p, nil, "Pod "+p.Namespace+"/writes (finalizers "+slowFinalizer+")")
		waits(t, world, p, params{"name": "restore"}, "/writes")
		endPod(t, world, p, "writes")
		ends(t, world, p, 0)
	})
	t.Run("somebody has deleted the Job", func(t *testing.T) {
		world, p := running(t)
		deleteJobs(t, p)
		waits(t, world, p, nil, "/writes")
		endPod(t, world, p, "writes")
		ends(t, world, p, 0)
	})
	t.Run("it is done", func(t *testing.T) {
		world, p := running(t)
		if err := endJobs(batchv1.JobFailureTarget, batchv1.JobFailed)(t.Context(), world, p); err != nil {
			t.Fatal(err)
		}
		waits(t, world, p, nil, "/writes") // its Pod is not
		endPod(t, world, p, "writes")
		ends(t, world, p, 1) // its logs can still be read
	})
	t.Run("another run", func(t *testing.T) {
		world, p := running(t)
		if _, err := act(t, world, "EndJob", p, params{"name": "check"}); err != nil {
			t.Errorf("got %v: it is not about that Job", err)
		}
	})
	t.Run("another object's", func(t *testing.T) {
		world, p := running(t)
		if _, err := act(t, world, "EndJob", another(t, world, p), nil); err != nil {
			t.Errorf("got %v: it is not its Job", err)
		}
	})
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
	with := params{"manifest": plainJob("restore")}
	if _, err := act(t, world, "RunJob", p, with); reasonOf(err) != "waits" {
		t.Fatal(err)
	}
	deleteJobs(t, p)
	if _, err := act(t, world, "RunJob", p, with); reasonOf(err) != "JobDeleted" || jobsOf(t, p) != 0 {
		t.Errorf("got %v and %d Jobs, want JobDeleted and none", err, jobsOf(t, p))
	}
	if err := world.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	if err := visit(t.Context(), world, p, "Working", noon.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := act(t, world, "RunJob", p, with); reasonOf(err) != "waits" || jobsOf(t, p) != 1 {
		t.Errorf("the next visit: got %v and %d Jobs, want to wait for a new one", err, jobsOf(t, p))
	}
}

func TestRunJobThatWasDeletedAfterItWasDone(t *testing.T) {
	world, p := plansFor(t)
	with := params{"manifest": plainJob("restore")}
	if _, err := act(t, world, "RunJob", p, with); reasonOf(err) != "waits" {
		t.Fatal(err)
	}
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
