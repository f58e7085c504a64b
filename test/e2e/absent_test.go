package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/harness"
)

// typeless are what kubectl may have written to v1 under older CRDs: policies of each kind whose types are absent, null,
// empty and set. It returns what their copies must say, by kind and name.
func (w *world) typeless(t *testing.T) map[string][]any {
	t.Helper()
	want := map[string][]any{}
	for _, kind := range w.Registry.Kinds() {
		if !strings.HasSuffix(kind.Name(), "NetworkPolicy") {
			continue
		}
		field, none := "types", []any{"Ingress", "Egress"}
		if kind.Name() == "StagedKubernetesNetworkPolicy" {
			field, none = "policyTypes", []any{"Ingress"}
		}
		objs := []*unstructured.Unstructured{}
		add := func(name string, spec map[string]any, types []any) {
			if field == "types" {
				spec["tier"] = "default"
			}
			obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			obj.SetGroupVersionKind(kind.V1GVK())
			obj.SetName("typeless-" + name)
			if kind.Namespaced() {
				obj.SetNamespace("default")
			}
			objs = append(objs, obj)
			want[kind.Name()+" "+obj.GetName()] = types
		}
		add("absent", map[string]any{}, none)
		add("null", map[string]any{field: nil}, none)
		add("empty", map[string]any{field: []any{}}, none)
		add("egress-rules", map[string]any{"egress": []any{}}, none)
		add("set", map[string]any{field: []any{"Egress"}}, []any{"Egress"})
		switch {
		case strings.HasPrefix(kind.Name(), "Staged"):
			add("deleted", map[string]any{"stagedAction": "Delete"}, nil)
		case !kind.Namespaced():
			add("before-dnat", map[string]any{"preDNAT": true, "applyOnForward": true}, []any{"Ingress"})
		}
		w.underOlderCRD(t, kind, objs...)
	}
	ipam, _ := w.Registry.Kind("IPAMConfiguration")
	old := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"strictAffinity": true}}}
	old.SetGroupVersionKind(ipam.V1GVK())
	old.SetName("from-k0s")
	w.underOlderCRD(t, ipam, old)
	return want
}

// underOlderCRD creates v1 objects while the CRD demands neither fields of the spec nor items of its lists.
func (w *world) underOlderCRD(t *testing.T, kind *resources.Kind, objs ...*unstructured.Unstructured) {
	t.Helper()
	now := &apiextensionsv1.CustomResourceDefinition{}
	w.do(t, w.Client.Get(t.Context(), client.ObjectKey{Name: kind.V1CRDName()}, now))
	older := now.DeepCopy()
	spec := older.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	spec.Required = nil
	for name, field := range spec.Properties {
		field.MinItems = nil
		spec.Properties[name] = field
	}
	older.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	w.do(t, w.Client.Patch(t.Context(), older, client.MergeFrom(now)))
	for _, obj := range objs {
		harness.Eventually(t, "v1 to take "+kind.Name()+" "+obj.GetName(), func() error { return w.Client.Create(t.Context(), obj.DeepCopy()) })
	}
	again := older.DeepCopy()
	again.Spec = now.Spec
	w.do(t, w.Client.Patch(t.Context(), again, client.MergeFrom(older)))
}

// assertTypes checks that the copies of typeless say what Calico makes of them, and what plan has counted.
func (w *world) assertTypes(t *testing.T, want map[string][]any, plan string) {
	got := map[string][]any{}
	for name := range want {
		kind, object, _ := strings.Cut(name, " ")
		of, _ := w.Registry.Kind(kind)
		copied := &unstructured.Unstructured{}
		copied.SetGroupVersionKind(of.V3GVK())
		key := client.ObjectKey{Name: object}
		if of.Namespaced() {
			key.Namespace = "default"
		}
		w.do(t, w.Client.Get(t.Context(), key, copied))
		field := "types"
		if kind == "StagedKubernetesNetworkPolicy" {
			field = "policyTypes"
		}
		got[name], _, _ = unstructured.NestedSlice(copied.Object, "spec", field)
		t.Logf("%-30s %-24s %v", kind, object, got[name])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("types in v3 (-want +got):\n%s", diff)
	}
	if auto, _, _ := unstructured.NestedBool(w.get(t, v3, "IPAMConfiguration", "from-k0s").Object, "spec", "autoAllocateBlocks"); auto {
		t.Error("IPAM allocates blocks by itself: v1 did not say so, and Calico read it as false")
	}
	for kind, value := range map[string]string{"NetworkPolicy": `["Ingress","Egress"]`, "StagedKubernetesNetworkPolicy": `["Ingress"]`, "IPAMConfiguration": "false"} {
		if line := fmt.Sprintf("\n  %s: spec.", kind); !strings.Contains(plan, line) || !strings.Contains(plan, " would be "+value+" in v3: v1 does not say so") {
			t.Errorf("plan does not count what %s gets, %s:\n%s", kind, value, plan)
		}
	}
}
