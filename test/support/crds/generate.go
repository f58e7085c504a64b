package crds

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/resources"
)

// Generate derives a permissive pair of definitions (v1 and v3) from every kind of the registry: any
// field is accepted and kept, nothing is defaulted. The v3 ones demand a spec, as the real ones do.
// Calico's admission policies are there by name, and do nothing.
func Generate(reg *resources.Registry) Set {
	set := Set{Admission: inert()}
	for _, k := range reg.All() {
		scope := "Cluster"
		if k.Namespaced() {
			scope = "Namespaced"
		}
		v1, v3 := k.V1GVK(), k.V3GVK()
		set.CRDs = append(set.CRDs,
			definition(v1.Group, v1.Version, v1.Kind, k.V1Plural(), scope, k.HasStatus(nil), nil),
			definition(v3.Group, v3.Version, v3.Kind, k.V3Plural(), scope, k.HasStatus(nil), []any{"spec"}))
	}
	return set
}

func definition(group, version, kind, plural, scope string, status bool, required []any) *unstructured.Unstructured {
	anything := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	schema := map[string]any{
		"type":       "object",
		"properties": map[string]any{"spec": anything, "status": anything},
	}
	if len(required) > 0 {
		schema["required"] = required
	}
	served := map[string]any{
		"name": version, "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": schema},
	}
	if status {
		served["subresources"] = map[string]any{"status": map[string]any{}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": scope,
			"names": map[string]any{
				"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind),
			},
			"versions": []any{served},
		},
	}}
}
