package builtin_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/fsm"
)

// shopLabels are on the Pods of these tests.
var shopLabels = map[string]string{"app": "shop"}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "shop", Image: "shop:1"}}}
}

func newDeployment(t *testing.T, c client.Client, namespace string, replicas int32) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}}
	d.Spec.Replicas, d.Spec.Selector = &replicas, &metav1.LabelSelector{MatchLabels: shopLabels}
	d.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: shopLabels}, Spec: podSpec()}
	if err := c.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// newPod is one that no node runs, so that nothing but the API server says when it is gone.
func newPod(t *testing.T, c client.Client, namespace string) *corev1.Pod {
	t.Helper()
	p, err := createPod(t.Context(), c, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func createPod(ctx context.Context, c client.Client, namespace string) (*corev1.Pod, error) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop-0", Labels: shopLabels}, Spec: podSpec()}
	p.Spec.ServiceAccountName, p.Spec.AutomountServiceAccountToken = "default", new(bool)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	if err := c.Create(ctx, account); client.IgnoreAlreadyExists(err) != nil {
		return nil, err
	}
	return p, c.Create(ctx, p)
}

// counting is a client that counts what it sends to subresources; not those of the state.
func counting(c client.WithWatch, sent *int) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if _, state := obj.(*v1alpha1.MachineState); !state {
				*sent++
			}
			return c.SubResource(subresource).Patch(ctx, obj, patch, opts...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, subresource string, obj, body client.Object, opts ...client.SubResourceCreateOption) error {
			*sent++
			return c.SubResource(subresource).Create(ctx, obj, body, opts...)
		},
	})
}

// A subresource is written by itself, under the version that was read, and not at all where it says so already.
func TestPatchSubresources(t *testing.T) {
	shop := params{"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}
	scale := func(n any, more params) params {
		return and(shop, params{"subresource": "scale", "patch": map[string]any{"spec": map[string]any{"replicas": n}}}, more)
	}
	status := func(more params) params {
		return and(shop, params{"subresource": "status", "patch": map[string]any{"status": map[string]any{"replicas": 2.0}}}, more)
	}
	type after struct{ Replicas, Shown int32 }
	for name, c := range map[string]struct {
		why  string
		with params
		want string
		// sent is how many requests are sent by two calls.
		sent  int
		after after
	}{
		"scale":          {why: "what kubectl scale does", with: scale(3.0, nil), sent: 1, after: after{Replicas: 3}},
		"scale to none":  {why: "a Scale says nothing of no replicas", with: scale(0.0, nil), sent: 1, after: after{}},
		"scaled already": {why: "nothing is sent", with: scale(1.0, nil), after: after{Replicas: 1}},
		"scale, not ours": {why: "an undo does nothing where its counterpart did nothing", after: after{Replicas: 1},
			with: scale(3.0, params{"only": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"by": "us"}}}})},
		"scale what is not": {why: "the server's own words", with: scale(3.0, params{"name": "none"}), want: `patch Deployment NAMESPACE/none: deployments.apps "none" not found`, after: after{Replicas: 1}},
		"scale, ignored":    {why: "an undo of what is gone", with: scale(3.0, params{"name": "none", "missing": "ignore"}), after: after{Replicas: 1}},
		"never scaled": {why: "a kind without a scale must not look like an object that is gone", want: "NoSubresource", after: after{Replicas: 1},
			with: and(own, params{"subresource": "scale", "missing": "ignore", "patch": map[string]any{"spec": map[string]any{"replicas": 1.0}}})},
		"status":            {why: "as its controller would", with: status(nil), sent: 1, after: after{Replicas: 1, Shown: 2}},
		"status of no kind": {why: "a ConfigMap has none", want: "NoSubresource", with: status(params{"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs"}), after: after{Replicas: 1}, sent: 2},
		"own status": {why: "the manager writes it, as a view", want: "OwnObject", after: after{Replicas: 1},
			with: and(own, params{"subresource": "status", "patch": map[string]any{"status": map[string]any{"phase": "Done"}}})},
	} {
		t.Run(name, func(t *testing.T) {
			world, p := plansFor(t)
			newDeployment(t, world, p.Namespace, 1)
			if err := world.Create(t.Context(), somebodys(p.Namespace, "theirs")); err != nil {
				t.Fatal(err)
			}
			sent := 0
			c1 := counting(world, &sent)
			for range 2 {
				_, err := act(t, c1, "Patch", p, c.with)
				if diff := cmp.Diff(c.want, strings.ReplaceAll(reasonOf(err), p.Namespace, "NAMESPACE")); diff != "" {
					t.Errorf("%s: %v (-want +got):\n%s", c.why, err, diff)
				}
			}
			d := &appsv1.Deployment{}
			if err := world.Get(t.Context(), types.NamespacedName{Namespace: p.Namespace, Name: "shop"}, d); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.after, after{*d.Spec.Replicas, d.Status.Replicas}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			if sent != c.sent {
				t.Errorf("%s: %d patches were sent, want %d", c.why, sent, c.sent)
			}
		})
	}
}

// What was compared is what is changed: another write in between is a conflict, of a subresource, too.
func TestSubresourcesAreComparedAndSwapped(t *testing.T) {
	for subresource, patch := range map[string]map[string]any{
		"scale":  {"spec": map[string]any{"replicas": 3.0}},
		"status": {"status": map[string]any{"replicas": 2.0}},
	} {
		t.Run(subresource, func(t *testing.T) {
			world, p := plansFor(t)
			d := newDeployment(t, world, p.Namespace, 1)
			racing := interceptor.NewClient(world, interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					other := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"other":"write"}}}`))
					if err := c.Patch(ctx, d, other); err != nil {
						return err
					}
					return c.SubResource(subresource).Patch(ctx, obj, patch, opts...)
				},
			})
			_, err := act(t, racing, "Patch", p, params{"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop", "subresource": subresource, "patch": patch})
			if err == nil || !strings.Contains(err.Error(), "the object has been modified") {
				t.Errorf("got %v, want a conflict", err)
			}
		})
	}
}

// A budget makes the step wait in the API server's words, and no longer than it lasts.
func TestEvictWaitsForTheBudget(t *testing.T) {
	world, p := plansFor(t)
	pod := newPod(t, world, p.Namespace)
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "shop"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: shopLabels}}}
	if err := world.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	// The tests play the disruption controller.
	allow := func(n int32) {
		t.Helper()
		before := budget.DeepCopy()
		budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, DisruptionsAllowed: n, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
		if err := world.Status().Patch(t.Context(), budget, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	ready := pod.DeepCopy() // a Pod that does not run is evicted in spite of its budget
	ready.Status.Phase, ready.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := world.Status().Patch(t.Context(), ready, client.MergeFrom(pod)); err != nil {
		t.Fatal(err)
	}
	allow(0)
	began := time.Now()
	_, err := act(t, world, "Evict", p, params{"name": pod.Name})
	wait, waits := errors.AsType[*fsm.WaitError](err)
	want := &fsm.WaitError{Message: "evict Pod " + p.Namespace + "/shop-0: Cannot evict pod as it would violate the pod's disruption budget. The disruption budget shop needs 1 healthy pods and has 1 currently"}
	if diff := cmp.Diff(want, wait); !waits || diff != "" {
		t.Errorf("got %v (-want +got):\n%s", err, diff)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the worker was held up for %s", took)
	}
	allow(1)
	if _, err := act(t, world, "Evict", p, params{"name": pod.Name, "gracePeriodSeconds": 0.0}); err != nil {
		t.Errorf("the budget allows it: %v", err)
	}
	if err := world.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the Pod is there: %v", err)
	}
}

// A Pod on a node stays until its kubelet has ended it, or until it is given no time for that.
func TestDeleteWithoutGrace(t *testing.T) {
	world, p := plansFor(t)
	pod := newPod(t, world, p.Namespace)
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}
	if err := world.SubResource("binding").Create(t.Context(), pod, binding); err != nil {
		t.Fatal(err)
	}
	with := params{"apiVersion": "v1", "kind": "Pod", "name": pod.Name, "uid": string(pod.UID), "notOurs": "allow", "wait": false, "gracePeriodSeconds": 0.0}
	if out, err := act(t, world, "Delete", p, with); err != nil || out["gone"] != true {
		t.Errorf("got %v, %v", out, err)
	}
	if err := world.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}); !apierrs.IsNotFound(err) {
		t.Errorf("the Pod is there: %v", err)
	}
}

// The Pod that was there when the step began is evicted, once, whatever the answers were.
func TestEvictMeansOnePod(t *testing.T) {
	type end struct {
		Outcome string
		Sent    int
		// Left says which Pod is there at the end.
		Left string
	}
	again := func(t *testing.T, c client.Client, p *plan, old *corev1.Pod) {
		t.Helper()
		if err := c.Delete(t.Context(), old, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		newPod(t, c, p.Namespace)
	}
	bind := func(t *testing.T, c client.Client, pod *corev1.Pod) { // a Pod on a node stays until its kubelet has ended it
		t.Helper()
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}
		if err := c.SubResource("binding").Create(t.Context(), pod, binding); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		why  string
		with params
		// play calls the action, and what happens around it.
		play func(t *testing.T, evict func() error, c client.Client, p *plan, pod *corev1.Pod) error
		want end
	}{
		"gone": {why: "a Pod of no node goes at once", want: end{Sent: 1},
			play: func(_ *testing.T, evict func() error, _ client.Client, _ *plan, _ *corev1.Pod) error { return evict() }},
		"on its way out": {why: "the kubelet ends it, and the step waits without another eviction", want: end{Outcome: "waits", Sent: 1, Left: "the old one"},
			play: func(t *testing.T, evict func() error, c client.Client, _ *plan, pod *corev1.Pod) error {
				bind(t, c, pod)
				return errors.Join(isWait(evict()), evict())
			}},
		"not waited for": {why: "the eviction is accepted", with: params{"wait": false}, want: end{Sent: 1, Left: "the old one"},
			play: func(t *testing.T, evict func() error, c client.Client, _ *plan, pod *corev1.Pod) error {
				bind(t, c, pod)
				return errors.Join(evict(), evict())
			}},
		"in its place": {why: "a StatefulSet has made another Pod under the name before the step looks again", want: end{Sent: 1, Left: "another"},
			play: func(t *testing.T, evict func() error, c client.Client, p *plan, pod *corev1.Pod) error {
				bind(t, c, pod)
				err := isWait(evict())
				again(t, c, p, pod)
				return errors.Join(err, evict())
			}},
		"next visit": {why: "another visit means the Pod that is there then", want: end{Sent: 2},
			play: func(t *testing.T, evict func() error, c client.Client, p *plan, pod *corev1.Pod) error {
				err := evict()
				again(t, c, p, pod)
				nextVisit(t, c, p)
				return errors.Join(err, evict())
			}},
		"another step between": {why: "what one step means is no other's business", want: end{Sent: 1, Left: "another"},
			play: func(t *testing.T, evict func() error, c client.Client, p *plan, pod *corev1.Pod) error {
				err := evict()
				other := pod.DeepCopy()
				other.ObjectMeta = metav1.ObjectMeta{Namespace: pod.Namespace, Name: "shop-1"}
				if err := c.Create(t.Context(), other); err != nil {
					t.Fatal(err)
				}
				_, between := actAs(t, builtin.Options{Client: c}, "Working/Other", "Evict", p, params{"name": other.Name})
				again(t, c, p, pod)
				return errors.Join(err, between, evict())
			}},
		"another UID": {why: "the Pod that was meant is gone", with: params{"uid": "5eed"}, want: end{Left: "the old one"},
			play: func(_ *testing.T, evict func() error, _ client.Client, _ *plan, _ *corev1.Pod) error { return evict() }},
		"none": {why: "there is nothing to do", with: params{"name": "none"}, want: end{Left: "the old one"},
			play: func(_ *testing.T, evict func() error, _ client.Client, _ *plan, _ *corev1.Pod) error { return evict() }},
	} {
		t.Run(name, func(t *testing.T) {
			world, p := plansFor(t)
			pod := newPod(t, world, p.Namespace)
			var got end
			counted := counting(world, &got.Sent)
			got.Outcome = reasonOf(c.play(t, func() error {
				_, err := act(t, counted, "Evict", p, and(params{"name": pod.Name}, c.with))
				return err
			}, world, p, pod))
			live := &corev1.Pod{}
			switch err := world.Get(t.Context(), client.ObjectKeyFromObject(pod), live); {
			case client.IgnoreNotFound(err) != nil:
				t.Fatal(err)
			case err != nil:
			case live.UID == pod.UID:
				got.Left = "the old one"
			default:
				got.Left = "another"
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// isWait is nil for a wait.
func isWait(err error) error {
	if reasonOf(err) == "waits" {
		return nil
	}
	return errors.Join(errors.New("it did not wait"), err)
}

// The answer to an eviction is lost, or the manager ends before it: the call is made again, and does no more.
func TestEvictAfterALostAnswer(t *testing.T) {
	lost := errors.New("connection lost")
	for name, c := range map[string]struct {
		why     string
		arrives bool
	}{
		"after":  {"the Pod is gone when the step looks again", true},
		"before": {"nothing happened, so it is evicted now", false},
	} {
		t.Run(name, func(t *testing.T) {
			world, p := plansFor(t)
			pod := newPod(t, world, p.Namespace)
			failing := interceptor.NewClient(world, interceptor.Funcs{
				SubResourceCreate: func(ctx context.Context, cl client.Client, subresource string, obj, body client.Object, opts ...client.SubResourceCreateOption) error {
					if c.arrives {
						if err := cl.SubResource(subresource).Create(ctx, obj, body, opts...); err != nil {
							return err
						}
					}
					return lost
				},
			})
			if _, err := act(t, failing, "Evict", p, params{"name": pod.Name}); !errors.Is(err, lost) {
				t.Fatal(err)
			}
			out, err := act(t, world, "Evict", p, params{"name": pod.Name})
			if diff := cmp.Diff(map[string]any{"gone": true}, out); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", c.why, err, diff)
			}
			if err := world.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}); err == nil {
				t.Errorf("%s: the Pod is there", c.why)
			}
		})
	}
}
