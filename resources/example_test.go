package resources_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/resources"
)

// A policy that an old Calico wrote: its v3 metadata is hidden in an annotation, and the name of its
// tier stands in front of its own.
func Example() {
	kind, _ := resources.Default().Kind("GlobalNetworkPolicy")
	v1 := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "crd.projectcalico.org/v1",
		"kind":       "GlobalNetworkPolicy",
		"metadata": map[string]any{
			"name": "default.allow-dns",
			"uid":  "0e5e3214-5bda-429e-8d53-2f1b77363286",
			"annotations": map[string]any{
				resources.MetadataAnnotation: `{"labels":{"team":"net"}}`,
			},
		},
		"spec": map[string]any{"tier": "default", "selector": "all()"},
	}}
	converted, err := resources.Convert(kind, v1, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(converted.Object.GetAPIVersion(), converted.Object.GetName(), converted.Object.GetLabels())

	live := converted.Object.DeepCopy()
	live.Object["spec"].(map[string]any)["selector"] = "has(dns)"
	for _, diff := range resources.Diff(kind, nil, converted.Object, live) {
		fmt.Println(diff)
	}
	// Output:
	// projectcalico.org/v3 allow-dns map[projectcalico.org/tier:default team:net]
	// spec.selector: "all()" in v1, "has(dns)" in v3
}
