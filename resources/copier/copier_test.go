package copier_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

// These tests run on a real API server with the garbage collector: what matters here is what it refuses,
// fills in and deletes.

const owner = types.UID("11111111-1111-4111-8111-111111111111")

// live is the cluster that all tests of the package share, once newScene has cleared it.
var (
	shared = harness.Shared{Start: startServer}
	live   *harness.Cluster
)

func TestMain(m *testing.M) { shared.Main(m) }

func startServer() (*harness.Cluster, error) {
	ctx := context.Background() // it outlives the test that starts it
	c, err := harness.Start(ctx, harness.Options{Own: true, Without: []string{"fakenodes", "scheduler"}})
	if err != nil {
		return nil, err
	}
	set, err := crds.Load(resources.Default())
	if err == nil {
		err = crds.Install(ctx, c.Config, set)
	}
	if err == nil {
		err = awaitPolicies(ctx, c.Client)
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// awaitPolicies waits until the API server's mutating policies have read the schemas of the new CRDs, which they
// do every five seconds. Until then each write that one of them matches is unavailable.
func awaitPolicies(ctx context.Context, c client.Client) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, kind := range resources.Default().Kinds() {
			obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
			obj.SetGroupVersionKind(kind.V3GVK())
			obj.SetName("probe")
			if kind.Namespaced() {
				obj.SetNamespace("default")
			}
			if err := c.Create(ctx, obj, client.DryRunAll); apierrors.IsServiceUnavailable(err) {
				return false, nil
			}
		}
		return true, nil
	})
}

// scene is an empty cluster and a copier on it.
type scene struct {
	*testing.T
	copier *copier.Copier
}

// newScene clears both sides. faults, if given, stands between the copier and the API server.
func newScene(t *testing.T, faults interceptor.Funcs) *scene {
	t.Helper()
	live = shared.Cluster(t)
	// All kinds at once: the first request for a kind takes the API server a second.
	var g errgroup.Group
	for _, kind := range resources.Default().Kinds() {
		for _, gvk := range []schema.GroupVersionKind{kind.V3GVK(), kind.V1GVK()} {
			g.Go(func() error { return clearKind(t.Context(), gvk) })
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return &scene{T: t, copier: copier.New(resources.Default(), interceptor.NewClient(live.Client, faults),
		owner,
		copier.WithEqualityCache(copier.NewEqualityCache()), copier.WithBackoff(wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3}))}
}

func clearKind(ctx context.Context, gvk schema.GroupVersionKind) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	if err := live.Client.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		obj := &list.Items[i]
		if len(obj.GetFinalizers()) > 0 {
			before := obj.DeepCopy()
			obj.SetFinalizers(nil)
			if err := live.Client.Patch(ctx, obj, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		// The built-in tiers may be protected; they are equal in all tests.
		if err := live.Client.Delete(ctx, obj); client.IgnoreNotFound(err) != nil && !builtin[obj.GetName()] {
			return err
		}
	}
	return nil
}

var builtin = map[string]bool{"default": true, "kube-admin": true, "kube-baseline": true}

// v1 creates a v1 object and returns its UID.
func (s *scene) v1(kind, text string) types.UID {
	s.Helper()
	return s.create("apiVersion: crd.projectcalico.org/v1\nkind: " + kind + "\n" + text).GetUID()
}

func (s *scene) v3(kind, text string) *unstructured.Unstructured {
	s.Helper()
	return s.create("apiVersion: projectcalico.org/v3\nkind: " + kind + "\n" + text)
}

func (s *scene) create(text string) *unstructured.Unstructured {
	s.Helper()
	obj := s.parse(text)
	if err := live.Client.Create(s.Context(), obj); err != nil {
		s.Fatal(err)
	}
	return obj
}

func (s *scene) parse(text string) *unstructured.Unstructured {
	s.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		s.Fatalf("%v\n%s", err, text)
	}
	return obj
}

func (s *scene) get(gvk schema.GroupVersionKind, name string) *unstructured.Unstructured {
	s.Helper()
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	if err := live.Client.Get(s.Context(), client.ObjectKey{Name: name}, obj); err != nil {
		s.Fatal(err)
	}
	return obj
}

func v3(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: resources.V3Group, Version: resources.V3Version, Kind: kind}
}

func v1(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: resources.V1Group, Version: resources.V1Version, Kind: kind}
}

// count is the number of objects of a kind.
func (s *scene) count(gvk schema.GroupVersionKind) int {
	s.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	if err := live.Client.List(s.Context(), list); err != nil {
		s.Fatal(err)
	}
	return len(list.Items)
}

func (s *scene) patch(obj *unstructured.Unstructured, change string) {
	s.Helper()
	if err := live.Client.Patch(s.Context(), obj, client.RawPatch(types.MergePatchType, []byte(change))); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) remove(obj *unstructured.Unstructured) {
	s.Helper()
	if err := live.Client.Delete(s.Context(), obj); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) mustCopy() copier.Result {
	s.Helper()
	result, err := s.copier.Copy(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	return result
}

func (s *scene) mustVerify() copier.Verification {
	s.Helper()
	v, err := s.copier.Verify(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return v
}

// wantCounts compares the counters of a copy.
func (s *scene) wantCounts(when string, got copier.Result, want copier.Counts) {
	s.Helper()
	want.Done = want.Created + want.AlreadyEqual + want.Kept + want.Updated + want.Conflicts + want.Rejected + want.Terminating
	want.Total = want.Done
	if diff := cmp.Diff(want, got.Counts); diff != "" {
		s.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// wantVerified fails unless both sides are equal.
func (s *scene) wantVerified() {
	s.Helper()
	if v := s.mustVerify(); !v.OK() {
		s.Errorf("the sides differ: %+v", v)
	}
}

// wantDifferent fails unless exactly these copies of ours differ.
func (s *scene) wantDifferent(names ...string) {
	s.Helper()
	var got []string
	for _, d := range s.mustVerify().Different {
		if d.Cause == copier.CauseStale {
			got = append(got, d.Name)
		}
	}
	if diff := cmp.Diff(names, got); diff != "" {
		s.Errorf("copies that differ (-want +got):\n%s", diff)
	}
}

// wantOwner fails unless the object has one owner, and has it by its UID in v3.
func (s *scene) wantOwner(obj, owner *unstructured.Unstructured) {
	s.Helper()
	var got []string
	for _, ref := range obj.GetOwnerReferences() {
		got = append(got, ref.APIVersion+" "+ref.Kind+" "+ref.Name+" "+string(ref.UID))
	}
	want := []string{"projectcalico.org/v3 " + owner.GetKind() + " " + owner.GetName() + " " + string(owner.GetUID())}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("owners of %s (-want +got):\n%s", obj.GetName(), diff)
	}
}

// wantRemap remaps and fails unless it patched so many and missed the owners of these.
func (s *scene) wantRemap(patched int64, missing ...string) {
	s.Helper()
	result, err := s.copier.RemapOwners(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, p := range result.Missing {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff(missing, names); diff != "" || result.Patched != patched {
		s.Errorf("%d patched, want %d; missing owners (-want +got):\n%s", result.Patched, patched, diff)
	}
}

// mustDelete takes the copies back and fails if any is left.
func (s *scene) mustDelete() copier.Deletion {
	s.Helper()
	deletion, err := s.copier.DeleteCopies(s.Context(), false)
	if err != nil || len(deletion.Remaining) != 0 {
		s.Fatalf("delete: %+v, %v", deletion, err)
	}
	return deletion
}
