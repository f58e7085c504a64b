package processes

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/standin"
)

// snapshot is all that a migration could have left traces in.
type snapshot struct {
	// V1 maps every v1 object, the lock included, to its JSON without what every write changes.
	V1 map[string]string
	// APIService is v3.projectcalico.org, without what every write changes.
	APIService string
	// Stored are the objects in the storage of the v3 CRDs, whoever serves v3.
	Stored []string
	// Fences are policies and bindings of migrations.
	Fences []string
}

func (w *world) snapshot(t *testing.T) snapshot {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	s := snapshot{V1: map[string]string{}}
	for _, kind := range w.Registry.All() {
		for _, obj := range w.list(t, kind.V1GVK()) {
			s.V1[obj.GetKind()+" "+obj.GetNamespace()+"/"+obj.GetName()] = content(t, &obj)
		}
	}
	svc := &unstructured.Unstructured{}
	svc.SetGroupVersionKind(apiregistrationv1.SchemeGroupVersion.WithKind("APIService"))
	if err := w.Client.Get(ctx, types.NamespacedName{Name: standin.APIServiceName}, svc); err != nil {
		t.Fatal(err)
	}
	delete(svc.Object, "status")
	s.APIService = content(t, svc)
	var err error
	if s.Stored, err = w.Stored(ctx); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		for _, obj := range w.list(t, admissionv1.SchemeGroupVersion.WithKind(kind)) {
			if strings.Contains(obj.GetName(), migrationv1.GroupVersion.Group) {
				s.Fences = append(s.Fences, kind+" "+obj.GetName())
			}
		}
	}
	return s
}

// list returns all objects of a kind; none if it is not served.
func (w *world) list(t *testing.T, gvk schema.GroupVersionKind) []unstructured.Unstructured {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	if err := w.Client.List(context.WithoutCancel(t.Context()), list); err != nil && !apierrs.IsNotFound(err) && !meta.IsNoMatchError(err) {
		t.Fatalf("list %s: %v", gvk, err)
	}
	return list.Items
}

func content(t *testing.T, obj *unstructured.Unstructured) string {
	t.Helper()
	for _, field := range []string{"resourceVersion", "generation", "managedFields", "creationTimestamp"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	text, err := json.Marshal(obj.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// assertUntouched compares the cluster with what it was before the first migration.
func (w *world) assertUntouched(t *testing.T) {
	t.Helper()
	if diff := cmp.Diff(w.before, w.snapshot(t)); diff != "" {
		t.Errorf("the cluster is not as it was before (-before +after):\n%s", diff)
	}
}
