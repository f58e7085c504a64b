package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

const (
	// gitOps is who owns objects by server-side apply, before the migration and after it.
	gitOps = "gitops"
	// teamLabel is what everybody wants to own.
	teamLabel = "team"
)

// applied are the v3 names of objects that gitOps owns, by kind.
type applied map[*resources.Kind]client.ObjectKey

// applyInV1 lets gitOps apply one v1 object of each kind, with a label of its own.
func (w *world) applyInV1(t *testing.T) applied {
	t.Helper()
	owned := applied{}
	for _, kind := range w.Registry.Kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.V1GVK())
		w.do(t, w.Client.List(t.Context(), list))
		at := slices.IndexFunc(list.Items, func(obj unstructured.Unstructured) bool {
			return obj.GetDeletionTimestamp() == nil && len(obj.GetFinalizers()) == 0
		})
		if at < 0 {
			t.Fatalf("there is no %s", kind.Name())
		}
		obj := &list.Items[at]
		w.do(t, w.applyAs(kind.V1GVK().GroupVersion().String(), obj, gitOps, "a", client.ForceOwnership))
		w.do(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
		conv, err := resources.Convert(kind, obj, nil)
		w.do(t, err)
		owned[kind] = client.ObjectKeyFromObject(conv.Object)
	}
	return owned
}

// applyAs applies an object's own spec, and the label.
func (w *world) applyAs(apiVersion string, obj *unstructured.Unstructured, manager, team string, opts ...client.ApplyOption) error {
	body := &unstructured.Unstructured{Object: map[string]any{"spec": obj.Object["spec"]}}
	body.SetAPIVersion(apiVersion)
	body.SetKind(obj.GetKind())
	body.SetNamespace(obj.GetNamespace())
	body.SetName(obj.GetName())
	body.SetLabels(map[string]string{teamLabel: team})
	return w.Client.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(body), append(opts, client.FieldOwner(manager))...)
}

// assertFieldOwners applies what gitOps owns, by dry runs: it finds its own fields, and somebody else a conflict.
func (w *world) assertFieldOwners(t *testing.T, owned applied) {
	t.Helper()
	for kind, key := range owned {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(kind.V3GVK())
		w.do(t, w.Client.Get(t.Context(), key, obj))
		if err := w.applyAs(v3, obj, gitOps, "b", client.DryRunAll); err != nil {
			t.Errorf("%s %s: who owns it in v1 applies it in v3: %v", kind.Name(), key, err)
		}
		if err := w.applyAs(v3, obj, "somebody-else", "b", client.DryRunAll); !apierrs.IsConflict(err) || !strings.Contains(err.Error(), `"`+gitOps+`"`) {
			t.Errorf("%s %s: somebody else applies it: %v, want a conflict with %s", kind.Name(), key, err, gitOps)
		}
	}
	for name, entries := range w.foreignEntries(t) {
		t.Errorf("%s has managedFields of versions that its CRD does not have: %s", name, strings.Join(entries, ", "))
		break // of many
	}
}

// foreignEntries are those of managedFields that name another version than v3, by v3 object.
func (w *world) foreignEntries(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, kind := range w.Registry.All() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.V3GVK())
		w.do(t, w.Client.List(t.Context(), list))
		for _, obj := range list.Items {
			for _, entry := range obj.ManagedFields {
				if entry.APIVersion != v3 {
					name := fmt.Sprintf("%s %s", kind.Name(), client.ObjectKeyFromObject(&obj))
					found[name] = append(found[name], fmt.Sprintf("%s of %s (%s)", entry.APIVersion, entry.Manager, entry.Operation))
				}
			}
		}
	}
	return found
}
