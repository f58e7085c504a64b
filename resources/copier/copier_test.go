package copier_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/test/crds"
	"github.com/phasegate/phasegate/test/harness"
)

// These tests run on a real API server with the garbage collector: what matters here is what it refuses,
// fills in and deletes.

const owner = types.UID("11111111-1111-4111-8111-111111111111")

// live is the cluster that all tests of the package share; each clears it first.
var live *harness.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	var err error
	live, err = harness.Start(ctx, harness.Options{Own: true, Without: []string{"fakenodes", "scheduler"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = live.Stop() }()
	set, err := crds.Load(resources.Default())
	if err == nil {
		err = crds.Install(ctx, live.Config, set)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// scene is an empty cluster and a copier on it.
type scene struct {
	*testing.T
	copier *copier.Copier
}

// newScene clears both sides. faults, if given, stands between the copier and the API server.
func newScene(t *testing.T, faults interceptor.Funcs) *scene {
	t.Helper()
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
		copier.Owner{Name: "v1-to-v3", UID: owner},
		copier.WithBackoff(wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3}))}
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
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		s.Fatalf("%v\n%s", err, text)
	}
	if err := live.Client.Create(s.Context(), obj); err != nil {
		s.Fatal(err)
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
