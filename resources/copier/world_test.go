package copier

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// world is a storage with both sides, for what needs no real API server: nothing is refused, filled in or
// collected there.
type world struct {
	*testing.T
	client client.WithWatch
	made   int

	mu            sync.Mutex
	statusWriters map[types.UID][]string
}

// newWorld has the CRDs of v1, and nothing else: without those of v3 there are no rules for copies.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, statusWriters: map[types.UID][]string{}}
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithGlobalResourceVersionCounter().WithReturnManagedFields()
	for _, kind := range resources.Default().All() {
		for _, gvk := range []schema.GroupVersionKind{kind.V1GVK(), kind.V3GVK()} {
			scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
			scheme.AddKnownTypeWithName(listKind(gvk), &unstructured.UnstructuredList{})
			if kind.HasStatus(nil) {
				builder = builder.WithStatusSubresource(objectOf(gvk))
			}
			builder = builder.WithIndex(objectOf(gvk), metav1.ObjectNameField, func(obj client.Object) []string { return []string{obj.GetName()} })
		}
		builder = builder.WithObjects(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kind.V1CRDName()}})
	}
	w.client = interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			w.mu.Lock()
			w.made++
			obj.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%010x2b", w.made))) // none is the mirror of another, bit by bit
			w.mu.Unlock()
			return c.Create(ctx, obj, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			defer w.showStatusWriters(obj)
			return c.Get(ctx, key, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			defer w.showStatusWriters(obj)
			return c.Patch(ctx, obj, patch, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			defer func() {
				_ = meta.EachListItem(list, func(obj runtime.Object) error {
					w.showStatusWriters(obj.(client.Object))
					return nil
				})
			}()
			return c.List(ctx, list, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			err := c.SubResource(sub).Patch(ctx, obj, patch, opts...)
			if err == nil {
				w.noteStatusWriter(obj.GetUID(), (&client.SubResourcePatchOptions{}).ApplyOptions(opts).FieldManager)
			}
			return err
		},
	})
	return w
}

func (w *world) noteStatusWriter(uid types.UID, manager string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.statusWriters[uid], manager) {
		w.statusWriters[uid] = append(w.statusWriters[uid], manager)
	}
}

// showStatusWriters shows who has written a status as an API server does, and the fake client does not.
func (w *world) showStatusWriters(obj client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	entries := obj.GetManagedFields()
	for _, manager := range w.statusWriters[obj.GetUID()] {
		entries = append(entries, metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status"})
	}
	obj.SetManagedFields(entries)
}

func objectOf(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	return obj
}

// copier is one of the migration me. faults stand between it and the world.
func (w *world) copier(faults interceptor.Funcs, opts ...Option) *Copier {
	opts = append(opts, WithBackoff(wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3}))
	return New(resources.Default(), interceptor.NewClient(w.client, faults), me, opts...)
}

func (w *world) v1(kind, text string) *unstructured.Unstructured {
	w.Helper()
	return w.create(schema.GroupVersionKind{Group: resources.V1Group, Version: resources.V1Version, Kind: kind}, text)
}

func (w *world) v3(kind, text string) *unstructured.Unstructured {
	w.Helper()
	return w.create(schema.GroupVersionKind{Group: resources.V3Group, Version: resources.V3Version, Kind: kind}, text)
}

func (w *world) create(gvk schema.GroupVersionKind, text string) *unstructured.Unstructured {
	w.Helper()
	obj := object(w.T, text)
	obj.SetGroupVersionKind(gvk)
	w.must(w.client.Create(w.Context(), obj, client.FieldOwner("test")))
	return obj
}

// get returns nil where there is none.
func (w *world) get(gvk schema.GroupVersionKind, name string) *unstructured.Unstructured {
	w.Helper()
	obj := objectOf(gvk)
	err := w.client.Get(w.Context(), client.ObjectKey{Name: name}, obj)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	w.must(err)
	return obj
}

func (w *world) patch(obj client.Object, change string) {
	w.Helper()
	w.must(w.client.Patch(w.Context(), obj, client.RawPatch(types.MergePatchType, []byte(change)), client.FieldOwner("test")))
}

func (w *world) patchStatus(obj client.Object, manager, change string) {
	w.Helper()
	w.must(w.client.Status().Patch(w.Context(), obj, client.RawPatch(types.MergePatchType, []byte(change)), client.FieldOwner(manager)))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) mustCopy(c *Copier) Result {
	w.Helper()
	result, err := c.Copy(w.Context(), nil)
	w.must(err)
	return result
}

func (w *world) mustVerify(c *Copier) Verification {
	w.Helper()
	v, err := c.Verify(w.Context())
	w.must(err)
	return v
}

// wantVerified fails unless both sides are equal.
func (w *world) wantVerified(c *Copier) {
	w.Helper()
	if v := w.mustVerify(c); !v.OK() {
		w.Errorf("the sides differ: %v, missing %v, extra %v", v.Different, v.Missing, v.Extra)
	}
}
