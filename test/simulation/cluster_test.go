package simulation

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	deploymentKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	jobKind        = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	podKind        = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	stateKind      = schema.GroupVersionKind{Group: "phasegate.dev", Version: "v1alpha1", Kind: "MachineState"}
)

// How long the cluster takes for what it does.
const (
	scaleTakes = 3 * time.Second
	startTakes = time.Second
	graceTakes = 10 * time.Second
	gcTakes    = time.Second
)

// kubelet is what keeps a Pod until its containers have ended.
const kubelet = "simulation/kubelet"

// cluster is who else works on the objects: the controllers of Deployments and Jobs, the
// kubelet and the garbage collector.
type cluster struct {
	*apiServer
	// job says how long a Job runs, and whether it fails.
	job func() (takes time.Duration, fails bool)
	// plans are the moments at which something happens by itself.
	plans map[string]time.Time
	asked map[string]bool
	jobs  map[types.UID]jobPlan
}

type jobPlan struct {
	takes time.Duration
	fails bool
}

// due is true once, some time after it was asked first.
func (c *cluster) due(what string, obj object, takes time.Duration) bool {
	key := fmt.Sprintf("%s/%s/%d", what, obj.GetUID(), obj.GetGeneration())
	at, planned := c.plans[key]
	if !planned {
		at = c.clock.Now().Add(takes)
		c.plans[key] = at
	}
	c.asked[key] = true
	return !c.clock.Now().Before(at)
}

// next is when something happens by itself.
func (c *cluster) next() (at time.Time, planned bool) {
	for _, plan := range c.plans {
		if !planned || plan.Before(at) {
			at, planned = plan, true
		}
	}
	return at, planned
}

// work does what is due, and plans what will be.
func (c *cluster) work() {
	for version := c.version - 1; version != c.version; {
		c.asked = map[string]bool{}
		version = c.version
		for _, obj := range c.everything() {
			if c.objects[refOf(obj)] == obj {
				c.workOn(obj)
			}
		}
		for key := range c.plans {
			if !c.asked[key] {
				delete(c.plans, key)
			}
		}
	}
}

func (c *cluster) everything() []object {
	var all []object
	for _, obj := range c.objects {
		all = append(all, obj)
	}
	slices.SortFunc(all, func(a, b object) int { return slices.Compare([]byte(a.GetUID()), []byte(b.GetUID())) })
	return all
}

func (c *cluster) workOn(obj object) {
	switch at := refOf(obj); {
	case obj.GetDeletionTimestamp() == nil && c.orphaned(obj):
		if c.due("gc", obj, gcTakes) {
			_ = c.delete(at, client.DeleteOptions{})
		}
	case slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents):
		c.foreground(obj)
	case at.GroupVersionKind == podKind:
		if obj.GetDeletionTimestamp() != nil && c.due("grace", obj, graceTakes) {
			c.edit(at, func(o object) { o.SetFinalizers(nil) })
		}
	case at.GroupVersionKind == deploymentKind:
		c.deployment(obj)
	case at.GroupVersionKind == jobKind && obj.GetDeletionTimestamp() == nil:
		c.runJob(obj)
	}
}

// orphaned tells that the owner of an object is gone.
func (c *cluster) orphaned(obj object) bool {
	for _, owner := range obj.GetOwnerReferences() {
		at := ref{schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind), types.NamespacedName{Namespace: obj.GetNamespace(), Name: owner.Name}}
		live := c.objects[at]
		if live == nil {
			at.Namespace = ""
			live = c.objects[at]
		}
		if live == nil || live.GetUID() != owner.UID {
			return true
		}
	}
	return false
}

func (c *cluster) dependents(obj object) []object {
	return slices.DeleteFunc(c.everything(), func(o object) bool {
		return !slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == obj.GetUID() })
	})
}

func (c *cluster) foreground(obj object) {
	left := c.dependents(obj)
	for _, o := range left {
		if o.GetDeletionTimestamp() == nil {
			_ = c.delete(refOf(o), client.DeleteOptions{})
		}
	}
	if len(left) == 0 && c.due("gc", obj, gcTakes) {
		c.edit(refOf(obj), func(o object) {
			o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerDeleteDependents }))
		})
	}
}

func (c *cluster) deployment(obj object) {
	wanted := replicas(obj)
	seen, _, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
	if seen == obj.GetGeneration() || !c.due("scale", obj, scaleTakes) {
		return
	}
	available := "True"
	if wanted == 0 {
		available = "False"
	}
	c.edit(refOf(obj), func(o object) {
		o.Object["status"] = map[string]any{"observedGeneration": o.GetGeneration(), "replicas": wanted,
			"conditions": []any{map[string]any{"type": "Available", "status": available, "reason": "Simulated", "message": ""}}}
	})
}

func replicas(deployment object) int64 {
	n, _, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	return n
}

// running tells whether a Deployment has Pods, or is about to.
func running(deployment object) bool {
	n, _, _ := unstructured.NestedInt64(deployment.Object, "status", "replicas")
	return n > 0 || replicas(deployment) > 0
}

func (c *cluster) runJob(job object) {
	if ended(job) {
		return
	}
	pods := c.dependents(job)
	if len(pods) == 0 {
		if c.due("start", job, startTakes) {
			pod := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": string(corev1.PodRunning)}}}
			pod.SetGroupVersionKind(podKind)
			pod.SetNamespace(job.GetNamespace())
			pod.SetName(job.GetName())
			pod.SetLabels(map[string]string{batchv1.JobNameLabel: job.GetName()})
			pod.SetFinalizers([]string{kubelet})
			pod.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.GetName(), UID: job.GetUID()}})
			_ = c.create(pod)
		}
		return
	}
	plan, known := c.jobs[job.GetUID()]
	if !known {
		plan.takes, plan.fails = c.job()
		c.jobs[job.GetUID()] = plan
	}
	if c.due("end", pods[0], plan.takes) {
		c.endJob(job, pods[0], plan.fails)
	}
}

func (c *cluster) endJob(job, pod object, fails bool) {
	condition, phase, count := batchv1.JobComplete, corev1.PodSucceeded, "succeeded"
	if fails {
		condition, phase, count = batchv1.JobFailed, corev1.PodFailed, "failed"
	}
	c.edit(refOf(pod), func(o object) {
		o.Object["status"] = map[string]any{"phase": string(phase)}
		o.SetFinalizers(nil)
	})
	c.edit(refOf(job), func(o object) {
		o.Object["status"] = map[string]any{count: int64(1), "conditions": []any{map[string]any{"type": string(condition), "status": "True", "reason": "Simulated"}}}
	})
}

func ended(job object) bool {
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	return len(conditions) > 0
}

// working are the Pods of Jobs that still write.
func (c *cluster) working() []object {
	return slices.DeleteFunc(c.all(podKind, ""), func(pod object) bool {
		phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
		return phase != string(corev1.PodRunning)
	})
}
