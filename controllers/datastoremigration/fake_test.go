package datastoremigration

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/resources"
)

// newFake builds a fake client whose scheme knows the kinds of both sides from the start: it would register each
// at its first request, while a step that looks at two things at once reads the scheme.
func newFake() *fake.ClientBuilder {
	scheme := NewScheme()
	for _, kind := range resources.Default().All() {
		for _, gvk := range []schema.GroupVersionKind{kind.V1GVK(), kind.V3GVK()} {
			scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
			scheme.AddKnownTypeWithName(gvk.GroupVersion().WithKind(gvk.Kind+"List"), &unstructured.UnstructuredList{})
		}
	}
	byName := func(o client.Object) []string { return []string{o.GetName()} } // as any API server selects
	return fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&migration{}, "metadata.name", byName).WithIndex(&v1alpha1.MachineState{}, "metadata.name", byName)
}
