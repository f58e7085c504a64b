package builtin_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/support/harness"
)

// What releases an effect is on record with a version of the kind. That this is not served any more says nothing of the
// objects: they are there in another version. Only a CRD that is gone has taken its objects along. A manager that has seen the
// version before is told so by another answer than one that has not.
func TestAReleaseWhoseVersionIsNotServed(t *testing.T) {
	world, p := plansFor(t)
	old := schema.GroupVersionKind{Group: "served.phasegate.dev", Version: "v1beta1", Kind: "Ship"}
	ships := crd(old, apiextensionsv1.NamespaceScoped)
	next := ships.Spec.Versions[0]
	next.Name, next.Storage = "v1", false
	ships.Spec.Versions = append(ships.Spec.Versions, next)
	if err := world.Create(t.Context(), ships); err != nil {
		t.Fatal(err)
	}
	named := params{"apiVersion": old.GroupVersion().String(), "kind": old.Kind, "name": "a"}
	releases := map[string]params{"Delete": named, "Unclaim": named, "Unpatch": and(named, params{"patch": map[string]any{"spec": map[string]any{"x": "y"}}})}
	listed := func(ctx context.Context) error { return world.List(ctx, listOf(old)) }
	awaiting(t, "Ships to be served", listed)

	before := ships.DeepCopy()
	ships.Spec.Versions[0].Served, ships.Spec.Versions[0].Storage, ships.Spec.Versions[1].Storage = false, false, true
	if err := world.Patch(t.Context(), ships, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	awaiting(t, "v1beta1 not to be served", func(ctx context.Context) error {
		return untilGone(listed(ctx))
	})
	fresh, err := client.NewWithWatch(shared.Cluster(t).Config, client.Options{Scheme: world.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	each := func(ask func(c client.Client, what, action string, with params)) {
		for who, c := range map[string]client.Client{"seen before": world, "never seen": fresh} {
			for action, with := range releases {
				ask(c, action+", a version "+who, action, with)
			}
		}
	}
	each(func(c client.Client, what, action string, with params) {
		if _, err := act(t, c, action, p, with); err == nil || !strings.Contains(err.Error(), "v1 only") {
			t.Errorf("%s: %v: the object is there, and what serves it is not said", what, err)
		}
	})

	if err := world.Delete(t.Context(), ships); err != nil {
		t.Fatal(err)
	}
	awaiting(t, "the CRD to be gone", func(ctx context.Context) error {
		return untilGone(world.Get(ctx, client.ObjectKeyFromObject(ships), ships))
	})
	each(func(c client.Client, what, action string, with params) {
		awaiting(t, what+" to be done", func(context.Context) error {
			_, err := act(t, c, action, p, with)
			return err
		})
	})
}

// untilGone is nil for the answer that there is no such thing.
func untilGone(err error) error {
	if apierrs.IsNotFound(err) {
		return nil
	}
	return cmp.Or(err, errors.New("it is there"))
}

func listOf(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	return list
}

func awaiting(t *testing.T, what string, ask func(context.Context) error) {
	t.Helper()
	if err := harness.Await(t.Context(), what, time.Minute, ask); err != nil {
		t.Fatal(err)
	}
}
