package calico

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("apiVersion: projectcalico.org/v3\nkind: Thing\n"+text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

func TestDifferences(t *testing.T) {
	cases := map[string]struct {
		why, before, after string
		want               []Difference
	}{
		"Same":  {why: "nothing is found in equal objects", before: "metadata: {name: a}\nspec: {list: [1, null]}", after: "metadata: {name: a}\nspec: {list: [1, null]}"},
		"Null":  {why: "clients see whether a field is null or absent", before: "metadata: {name: a}\nspec: {x: null}", after: "metadata: {name: a}\nspec: {}", want: []Difference{{Object: "Thing a", Path: ".spec", After: "{}"}, {Object: "Thing a", Path: ".spec.x", Before: "null"}}},
		"Type":  {why: "text is no number", before: "metadata: {name: a}\nspec: {x: '1'}", after: "metadata: {name: a}\nspec: {x: 1}", want: []Difference{{Object: "Thing a", Path: ".spec.x", Before: `"1"`, After: "1"}}},
		"Order": {why: "the place in a list counts", before: "metadata: {name: a}\nspec: {x: [b, c]}", after: "metadata: {name: a}\nspec: {x: [c, b]}", want: []Difference{{Object: "Thing a", Path: ".spec.x[0]", Before: `"b"`, After: `"c"`}, {Object: "Thing a", Path: ".spec.x[1]", Before: `"c"`, After: `"b"`}}},
		"Managers": {why: "an entry is known by its manager, in any place",
			before: "metadata: {name: a, managedFields: [{manager: m, operation: Apply, apiVersion: v, fieldsType: FieldsV1}, {manager: o, operation: Update, apiVersion: v}]}",
			after:  "metadata: {name: a, managedFields: [{manager: o, operation: Update, apiVersion: w}, {manager: m, operation: Apply, apiVersion: v}]}",
			want:   []Difference{{Object: "Thing a", Path: ".metadata.managedFields[o Update ].apiVersion", Before: "v", After: "w"}}},
		"Name": {why: "another name is another object", before: "metadata: {name: a}", after: "metadata: {name: a, namespace: ns}", want: []Difference{{Object: "Thing a", Before: "(present)"}, {Object: "Thing ns/a", After: "(present)"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before, after := object(t, tc.before), object(t, tc.after)
			got := Differences(Objects{Key(before): before}, Objects{Key(after): after})
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	found := []Difference{
		{Object: "Tier a", Path: ".metadata.uid", Before: `"1"`, After: `"2"`},
		{Object: "Tier b", Path: ".metadata.uid", Before: `"3"`, After: `"4"`},
		{Object: "Tier a", Path: ".spec.order", Before: "1", After: "2"},
		{Object: "Pool a", Path: ".spec.list[3]", After: "2"},
	}
	got := Explain(found, []Explanation{
		{Path: `\.metadata\.uid`, Why: "another object"},
		{Objects: "Pool .*", Path: `\.spec\.list.*`, Before: ".+", Why: "was there before"},
		{Objects: "Pool .*", Path: `\.spec\.list.*`, Why: "grows"},
	})
	want := Report{
		Lines: []string{
			"     2  Tier.metadata.uid: another object",
			"     1  Pool.spec.list[] (new): grows",
			"     1  Tier.spec.order 1 → 2: UNEXPLAINED",
		},
		Counts:      map[string]int{"Tier.metadata.uid": 2, "Pool.spec.list[] (new)": 1, "Tier.spec.order 1 → 2": 1},
		Unexplained: []Difference{{Object: "Tier a", Path: ".spec.order", Before: "1", After: "2"}},
		Unused:      []string{"was there before"},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
