package supportbundle

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// What a migration holds that is gone is what somebody from afar needs most.
func TestStates(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	state := func(name, kind, of string) *v1alpha1.MachineState {
		return &v1alpha1.MachineState{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:   v1alpha1.MachineStateSpec{Machine: "m", Object: v1alpha1.ObjectReference{Kind: kind, Name: of}},
			Status: v1alpha1.MachineStateStatus{Saved: map[string]v1alpha1.SavedText{"apiService": "planted-manifest"}}}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		state("m.1", "DatastoreMigration", "to-v3"), state("m.2", "DatastoreMigration", "other"), state("s.3", "MCPServer", "fetch")).Build()
	for name, tc := range map[string]struct {
		why, migration string
		want           []string
	}{
		"All": {"those that are gone, too", "", []string{"machinestates/m.1.json", "machinestates/m.2.json", "machinestates/s.3.json"}},
		"One": {"as of the objects themselves", "to-v3", []string{"machinestates/m.1.json", "machinestates/s.3.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			col := &collector{Options: Options{Client: c, Migration: tc.migration}, redactor: NewRedactor(), files: map[string]any{}}
			if err := col.states(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(col.files))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			kept := col.files["machinestates/m.1.json"].(map[string]any)
			saved, _, _ := unstructured.NestedString(kept, "status", "saved", "apiService")
			if saved != leftOut {
				t.Errorf("a manifest of another is in it: %q", saved)
			}
		})
	}
}

// A bundle without objects of a kind does not say that there are none where nobody could look.
func TestAKindThatIsNotServedIsNamed(t *testing.T) {
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			return &meta.NoKindMatchError{GroupKind: list.GetObjectKind().GroupVersionKind().GroupKind()}
		},
	})
	col := &collector{Options: Options{Client: c}, redactor: NewRedactor(), files: map[string]any{}}
	if err := col.servers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"MCPServer.toolhive.stacklok.dev"}, col.notServed); diff != "" {
		t.Errorf("not served (-want +got):\n%s", diff)
	}
}
