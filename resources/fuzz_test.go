package resources

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FuzzConvert: no input makes Convert panic or change its argument, and what it accepts keeps its
// labels and, unless it is a tiered policy, its name.
func FuzzConvert(f *testing.F) {
	f.Add("NetworkSet", `{"metadata":{"name":"a","uid":"`+testUID+`","labels":{"a":"b"}},"spec":{"nets":["10.0.0.0/8"]}}`)
	f.Add("GlobalNetworkPolicy", `{"metadata":{"name":"default.a","uid":"`+testUID+`","annotations":{"projectcalico.org/metadata":"{}"}},"spec":{}}`)
	f.Add("BlockAffinity", `{"metadata":{"name":"a","uid":"`+testUID+`"},"spec":{"deleted":"true"}}`)
	f.Add("IPAMBlock", `{"metadata":{"name":"a","uid":"`+testUID+`","annotations":{"projectcalico.org/metadata":"{\"labels\":{\"c\":\"d\"}}"}},"spec":{"allocations":[null,1]}}`)
	f.Add("Tier", `{"metadata":null,"spec":[]}`)
	schema := schemaOf(f, emptyStrings.schema)
	f.Fuzz(func(t *testing.T, name, data string) {
		kind, ok := Default().Kind(name)
		if !ok {
			kind = mustKind(t, "Tier")
		}
		v1 := &unstructured.Unstructured{}
		if v1.UnmarshalJSON([]byte(`{"apiVersion":"crd.projectcalico.org/v1","kind":"X","body":`+data+`}`)) != nil {
			return
		}
		content, ok := v1.Object["body"].(map[string]any)
		if !ok {
			return
		}
		v1.Object = content
		before := v1.DeepCopy()
		got, err := Convert(kind, v1, schema)
		if len(encoded(before.Object)) != len(encoded(v1.Object)) {
			t.Errorf("the argument was changed from %s to %s", encoded(before.Object), encoded(v1.Object))
		}
		if err != nil {
			return
		}
		hidden, err := readHidden(v1)
		if err != nil {
			t.Fatalf("accepted although: %v", err)
		}
		if want := labelsOf(kind, v1, hidden, got); !maps.Equal(want, got.Object.GetLabels()) {
			t.Errorf("labels %v, want %v", got.Object.GetLabels(), want)
		}
		tiered := kind.entry.After != nil
		if !tiered && got.Object.GetName() != v1.GetName() {
			t.Errorf("name %q, want %q", got.Object.GetName(), v1.GetName())
		}
		if len(Diff(kind, schema, got.Object, got.Object)) != 0 {
			t.Errorf("%s differs from itself", encoded(got.Object.Object))
		}
	})
}

// labelsOf are those of v1, and that of the tier, which the spec knows best.
func labelsOf(kind *Kind, v1 *unstructured.Unstructured, hidden *hiddenMetadata, got *Converted) map[string]string {
	want := merged(v1.GetLabels(), nil)
	if hidden != nil {
		want = merged(want, hidden.Labels)
	}
	if slices.Contains(kind.entry.Compare.AdmissionDefaults, "tierLabel") {
		want[TierLabel], _, _ = unstructured.NestedString(got.Object.Object, "spec", "tier")
	}
	return want
}
