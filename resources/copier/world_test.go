package copier

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// world is a storage with both sides, for what needs no real API server: nothing is refused, filled in or
// collected there. newLive makes one that is a real API server.
type world struct {
	*testing.T
	client client.WithWatch
	config *rest.Config // of the real one
	made   int
	showAs types.UID // of what is created next; empty: a new one

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
			obj := named(gvk, "")
			scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
			scheme.AddKnownTypeWithName(listKind(gvk), &unstructured.UnstructuredList{})
			if kind.HasStatus(nil) {
				builder = builder.WithStatusSubresource(obj)
			}
			builder = builder.WithIndex(obj, metav1.ObjectNameField, func(obj client.Object) []string { return []string{obj.GetName()} })
		}
		builder = builder.WithObjects(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kind.V1CRDName()}})
	}
	w.client = interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			w.mu.Lock()
			w.made++
			obj.SetUID(stdcmp.Or(w.showAs, types.UID(fmt.Sprintf("00000000-0000-4000-8000-%010x2b", w.made)))) // none is the mirror of another, bit by bit
			w.showAs = ""
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

// copier is one of the migration me. faults stand between it and the world.
func (w *world) copier(faults interceptor.Funcs, opts ...Option) *Copier {
	opts = append(opts, WithBackoff(wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3}))
	return New(resources.Default(), interceptor.NewClient(w.client, faults), me, opts...)
}

func v1(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: resources.V1Group, Version: resources.V1Version, Kind: kind}
}

func v3(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: resources.V3Group, Version: resources.V3Version, Kind: kind}
}

func named(gvk schema.GroupVersionKind, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(gvk)
	obj.SetName(name)
	return obj
}

func (w *world) v1(kind, text string) *unstructured.Unstructured {
	w.Helper()
	return w.create(v1(kind), text)
}

func (w *world) v3(kind, text string) *unstructured.Unstructured {
	w.Helper()
	return w.create(v3(kind), text)
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
	obj := named(gvk, name)
	err := w.client.Get(w.Context(), client.ObjectKeyFromObject(obj), obj)
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

func (w *world) remove(obj client.Object) {
	w.Helper()
	w.must(w.client.Delete(w.Context(), obj))
}

// count is the number of objects of a kind.
func (w *world) count(gvk schema.GroupVersionKind) int {
	w.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	w.must(w.client.List(w.Context(), list))
	return len(list.Items)
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

// mustDelete takes the copies back and fails if any is left.
func (w *world) mustDelete(c *Copier) Deletion {
	w.Helper()
	deletion, err := c.DeleteCopies(w.Context(), false)
	if err != nil || len(deletion.Remaining) != 0 {
		w.Fatalf("delete: %+v, %v", deletion, err)
	}
	return deletion
}

func (w *world) mustCompare(c *Copier) Comparison {
	w.Helper()
	compared, err := c.Compare(w.Context())
	w.must(err)
	return compared
}

// wantCounts compares the counters of a copy.
func (w *world) wantCounts(when string, got Result, want Counts) {
	w.Helper()
	want.Done = want.Created + want.AlreadyEqual + want.Kept + want.Updated + want.Conflicts + want.Rejected + want.Terminating
	want.Total = want.Done
	if diff := cmp.Diff(want, got.Counts); diff != "" {
		w.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// said is what a Copy, or a Verify, says of an object: its cause and the fields.
func said(conflicts []Conflict) map[string]string {
	out := map[string]string{}
	for _, c := range conflicts {
		text := string(c.Cause)
		for _, f := range c.Fields {
			text += " " + f.Path
		}
		out[c.Name] = text
	}
	return out
}

func (w *world) wantSaid(when string, got []Conflict, want map[string]string) {
	w.Helper()
	if diff := cmp.Diff(want, said(got)); diff != "" {
		w.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// names are those of the objects that have problems.
func names(problems []resources.Problem) (all []string) {
	for _, p := range problems {
		all = append(all, p.Name)
	}
	return all
}

// wantRemap remaps and fails unless it patched so many and missed the owners of these.
func (w *world) wantRemap(c *Copier, patched int64, missing ...string) {
	w.Helper()
	result, err := c.RemapOwners(w.Context())
	w.must(err)
	if diff := cmp.Diff(missing, names(result.Missing)); diff != "" || result.Patched != patched {
		w.Errorf("%d patched, want %d; missing owners (-want +got):\n%s", result.Patched, patched, diff)
	}
}
