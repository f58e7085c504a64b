package patch_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/controllers/patch"
)

// The client here is a fake one: these tests are about what is put on the wire
// and what is left in memory. What a server makes of it is in server_test.go.

type patcher func(context.Context, client.Client, *corev1.Pod, func(*corev1.Pod)) error

var patchers = map[string]patcher{
	"MutateAndPatchSpec":  patch.MutateAndPatchSpec[*corev1.Pod],
	"MutateAndSwapStatus": patch.MutateAndSwapStatus[*corev1.Pod],
}

// wire records every patch body, and answers with err instead of the fake
// client's reply if err is set.
type wire struct {
	bodies []map[string]any
	err    error
}

func (w *wire) client(objs ...client.Object) client.Client {
	record := func(obj client.Object, p client.Patch) error {
		data, err := p.Data(obj)
		if err != nil {
			return err
		}
		var body map[string]any
		if err := json.Unmarshal(data, &body); err != nil {
			return err
		}
		w.bodies = append(w.bodies, body)
		return w.err
	}
	return fake.NewClientBuilder().WithObjects(objs...).WithStatusSubresource(&corev1.Pod{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
				if err := record(obj, p); err != nil {
					return err
				}
				return c.Patch(ctx, obj, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if err := record(obj, p); err != nil {
					return err
				}
				return c.SubResource(sub).Patch(ctx, obj, p, opts...)
			},
		}).Build()
}

func pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: map[string]string{"theirs": "1"}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "old"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodPending, Message: "theirs",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
		},
	}
}

// read returns the stored pod; the fake client gives it resourceVersion 999.
func read(t *testing.T, c client.Client) *corev1.Pod {
	t.Helper()
	got := &corev1.Pod{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod()), got); err != nil {
		t.Fatal(err)
	}
	return got
}

func addFinalizer(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "phasegate.dev/f") }
func running(p *corev1.Pod)      { p.Status.Phase = corev1.PodRunning }
func nothing(*corev1.Pod)        {}

func TestBodyOnTheWire(t *testing.T) {
	cases := map[string]struct {
		why    string
		patch  string
		before func(*corev1.Pod) // what the caller does to the object before the call
		mutate func(*corev1.Pod)
		want   []map[string]any
	}{
		"MutateAndPatchSpec_AppliesMutationWithOptimisticLock/add finalizer": {
			why:    "a list is sent whole, so the resourceVersion must protect it",
			patch:  "MutateAndPatchSpec",
			mutate: addFinalizer,
			want: []map[string]any{{"metadata": map[string]any{
				"finalizers": []any{"phasegate.dev/f"}, "resourceVersion": "999",
			}}},
		},
		"MutateAndPatchSpec_AppliesMutationWithOptimisticLock/remove annotation": {
			why:    "a merge patch removes with null",
			patch:  "MutateAndPatchSpec",
			mutate: func(p *corev1.Pod) { delete(p.Annotations, "theirs") },
			want: []map[string]any{{"metadata": map[string]any{
				"annotations": nil, "resourceVersion": "999",
			}}},
		},
		"MutateAndPatchSpec_DeepCopyIsolatesOriginal": {
			why:    "a snapshot that shared memory with obj would change along, and the diff be empty",
			patch:  "MutateAndPatchSpec",
			mutate: func(p *corev1.Pod) { p.Annotations["theirs"] = "2"; p.Spec.Containers[0].Image = "new" },
			want: []map[string]any{{
				"metadata": map[string]any{"annotations": map[string]any{"theirs": "2"}, "resourceVersion": "999"},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "new", "resources": map[string]any{}}}},
			}},
		},
		"MutateAndSwapStatus_DeepCopyIsolatesOriginal": {
			why:    "the same: a condition that is edited where it lies",
			patch:  "MutateAndSwapStatus",
			mutate: func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue },
			want: []map[string]any{{"metadata": map[string]any{"resourceVersion": "999"}, "status": map[string]any{"conditions": []any{
				map[string]any{"type": "Ready", "status": "True", "lastProbeTime": nil, "lastTransitionTime": nil},
			}}}},
		},
		"MutateAndSwapStatus_EditBeforeTheCallIsNotSent": {
			why:    "it is on both sides of the diff: all mutation belongs into the closure",
			patch:  "MutateAndSwapStatus",
			before: running,
			mutate: func(p *corev1.Pod) { p.Status.Reason = "r" },
			want:   []map[string]any{{"metadata": map[string]any{"resourceVersion": "999"}, "status": map[string]any{"reason": "r"}}},
		},
		"MutateAndSwapStatus_NoOpMutateSkipsWireCall": {
			why:    "a steady state makes no writes",
			patch:  "MutateAndSwapStatus",
			mutate: nothing,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := &wire{}
			c := w.client(pod())
			obj := read(t, c)
			if tc.before != nil {
				tc.before(obj)
			}
			if err := patchers[tc.patch](t.Context(), c, obj, tc.mutate); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, w.bodies); d != "" {
				t.Errorf("%s: bodies (-want +got):\n%s", tc.why, d)
			}
		})
	}
}

func TestObjectAfterTheCall(t *testing.T) {
	unwritten := func(p *corev1.Pod) {
		p.Status.Message = "not written yet"
		p.Status.Reason = "InMemory"
	}
	cases := map[string]struct {
		why    string
		patch  string
		before func(*corev1.Pod)
		mutate func(*corev1.Pod)
		want   func(server *corev1.Pod)
	}{
		"spec patch keeps the status in memory": {
			why:    "the runner writes its status later; a finalizer must not undo it",
			patch:  "MutateAndPatchSpec",
			before: unwritten,
			mutate: addFinalizer,
			want:   unwritten,
		},
		"spec patch takes metadata from the server": {
			why:    "what is in memory only must not look as if it were stored",
			patch:  "MutateAndPatchSpec",
			before: func(p *corev1.Pod) { p.Annotations["stale"] = "x" },
			mutate: addFinalizer,
			want:   func(*corev1.Pod) {},
		},
		"swap takes everything from the server": {
			why:    "the new resourceVersion must not be paired with an old spec",
			patch:  "MutateAndSwapStatus",
			before: func(p *corev1.Pod) { p.Spec.NodeName = "stale" },
			mutate: running,
			want:   func(*corev1.Pod) {},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := (&wire{}).client(pod())
			got := read(t, c)
			tc.before(got)
			if err := patchers[tc.patch](t.Context(), c, got, tc.mutate); err != nil {
				t.Fatal(err)
			}
			want := read(t, c)
			if want.ResourceVersion == "999" {
				t.Fatal("nothing was written")
			}
			tc.want(want)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: object (-want +got):\n%s", tc.why, d)
			}
		})
	}
}

// A caller decides by the error: it must be the client's own, and the object as
// it was, to be shown or tried again with.
func TestPropagatesPatchError(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("not yours"))
	for name, call := range patchers {
		t.Run(name, func(t *testing.T) {
			c := (&wire{err: refused}).client(pod())
			got := read(t, c)
			got.Status.Message = "not written yet"
			want := got.DeepCopy()
			err := call(t.Context(), c, got, func(p *corev1.Pod) {
				addFinalizer(p)
				p.Annotations["ours"] = "2"
				running(p)
			})
			if any(err) != any(refused) { // identity: errors.Is would let a wrapped one pass
				t.Errorf("error = %#v, want the client's own", err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("object (-want +got):\n%s", d)
			}
		})
	}
}

func TestLockWithoutResourceVersionIsRefused(t *testing.T) {
	for _, name := range []string{"MutateAndPatchSpec", "MutateAndSwapStatus"} {
		t.Run(name, func(t *testing.T) {
			w := &wire{}
			got := pod()
			err := patchers[name](t.Context(), w.client(pod()), got, running)
			if err == nil || len(w.bodies) != 0 {
				t.Errorf("error = %v, bodies = %v; an object never read has nothing to compare with", err, w.bodies)
			}
			if d := cmp.Diff(pod(), got); d != "" {
				t.Errorf("object (-want +got):\n%s", d)
			}
		})
	}
}
