package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fakeapiserver"
)

// snapshot is all that a migration could have left traces in.
type snapshot struct {
	// V1 maps every v1 object but the lock to what it is, without what every write changes, and to its
	// resource version if no object of Calico owns it: nobody may write such a one, nor change any. The first
	// one of a kind may be a barrier.
	V1 map[string]string
	// Lock is the v1 ClusterInformation, which is written, without what every write changes.
	Lock string
	// APIService is v3.projectcalico.org, as JSON, without what every write changes.
	APIService string
	// Fences are the admission policies and bindings that refuse writes of v1.
	Fences []string
	// V3CRDs maps each v3 CRD to what it is, and to who has written what of it.
	V3CRDs map[string]string
	// Stored are the objects in the storage of the v3 CRDs, whoever serves v3.
	Stored []string
}

func (w *world) snapshot(t testing.TB) snapshot {
	t.Helper()
	s := snapshot{V1: map[string]string{}, V3CRDs: w.v3CRDs(t), APIService: w.apiService(t), Fences: w.fences(t), Stored: w.stored(t)}
	for _, kind := range w.Registry.All() {
		for i, obj := range w.list(t, kind.V1GVK()) {
			if kind.Name() == w.Registry.Lock().Name() {
				s.Lock = asJSON(t, withoutServerFields(obj).Object)
				continue
			}
			s.V1[key(obj)] = asJSON(t, withoutServerFields(obj).Object)
			if i > 0 && !resources.HasCalicoOwners(obj) {
				s.V1[key(obj)] += " at " + obj.GetResourceVersion()
			}
		}
	}
	return s
}

// v3CRDs leaves out who owns the versions: nobody does after a migration, so that nobody is in the way.
func (w *world) v3CRDs(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, kind := range w.Registry.All() {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		err := w.Client.Get(context.Background(), types.NamespacedName{Name: kind.V3CRDName()}, crd)
		if apierrs.IsNotFound(err) {
			continue // somebody has taken it away
		}
		if err != nil {
			t.Fatal(err)
		}
		names, managers := []string{}, []string{}
		for _, v := range crd.Spec.Versions {
			names = append(names, v.Name)
		}
		for _, entry := range crd.ManagedFields {
			managers = append(managers, entry.Manager)
		}
		slices.Sort(managers)
		out[crd.Name] = fmt.Sprintf("versions %s, stored %s, annotations %v, written by %s, spec %x", names, crd.Status.StoredVersions,
			crd.Annotations, slices.Compact(managers), sha256.Sum256([]byte(asJSON(t, crd.Spec))))
	}
	return out
}

func (w *world) fences(t testing.TB) []string {
	t.Helper()
	found := []string{}
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		for _, obj := range w.list(t, admissionregistrationv1.SchemeGroupVersion.WithKind(kind)) {
			if obj.GetAnnotations()[migrationv1.AnnotationLockedBy] != "" || obj.GetName() == migrationv1.FenceName {
				found = append(found, key(obj))
			}
		}
	}
	return found
}

// list returns all objects of a kind; none if it is not served.
func (w *world) list(t testing.TB, gvk schema.GroupVersionKind) []*unstructured.Unstructured {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	if err := w.Client.List(context.Background(), list); err != nil && !apierrs.IsNotFound(err) && !meta.IsNoMatchError(err) {
		t.Fatalf("list %s: %v", gvk, err)
	}
	out := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

func key(obj *unstructured.Unstructured) string {
	return obj.GetKind() + " " + strings.TrimPrefix(obj.GetNamespace()+"/"+obj.GetName(), "/")
}

func withoutServerFields(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	for _, field := range []string{"resourceVersion", "generation", "managedFields", "creationTimestamp"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	return obj
}

func asJSON(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (w *world) apiService(t testing.TB) string {
	t.Helper()
	svc := &unstructured.Unstructured{}
	svc.SetGroupVersionKind(apiregistrationv1.SchemeGroupVersion.WithKind("APIService"))
	if err := w.Client.Get(context.Background(), types.NamespacedName{Name: fakeapiserver.APIServiceName}, svc); err != nil {
		t.Fatal(err)
	}
	delete(svc.Object, "status")
	return asJSON(t, withoutServerFields(svc).Object)
}

// dressAPIService gives the APIService something to lose.
func (w *world) dressAPIService(t testing.TB) {
	t.Helper()
	svc := &apiregistrationv1.APIService{}
	if err := w.Client.Get(context.Background(), types.NamespacedName{Name: fakeapiserver.APIServiceName}, svc); err != nil {
		t.Fatal(err)
	}
	svc.Labels["team"] = "network"
	svc.Annotations = map[string]string{"example.com/installed-by": "helm \"chart\"\nsecond line"}
	if err := w.Client.Update(context.Background(), svc); err != nil {
		t.Fatal(err)
	}
}

func (w *world) stored(t testing.TB) []string {
	t.Helper()
	keys, err := w.Stored(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return keys
}
