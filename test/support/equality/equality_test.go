package equality_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/test/support/equality"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return obj
}

const head = "apiVersion: projectcalico.org/v3\nkind: Thing\n"

func TestCompareContent(t *testing.T) {
	cases := map[string]struct {
		why, v1, v3 string
		different   []string
		added       map[string]int
		noStatus    []string
	}{
		"Equal": {
			why: "what the API server and the migration write is no content",
			v1:  "metadata: {name: a, uid: one, resourceVersion: '1'}\nspec: {order: 1}",
			v3:  "metadata: {name: a, uid: two, annotations: {migration.projectcalico.org/migrated-by: x}}\nspec: {order: 1}",
		},
		"NumbersAndTimes": {
			why: "the same number and the same instant may be spelled in two ways",
			v1:  "metadata: {name: a}\nspec: {order: 10.0, at: '2026-01-01T00:00:00Z'}",
			v3:  "metadata: {name: a}\nspec: {order: 10, at: '2026-01-01T01:00:00+01:00'}",
		},
		"LargeNumbers": {
			why: "a float64 takes the two for one", v1: "metadata: {name: a}\nspec: {count: 1748779200123456789}", v3: "metadata: {name: a}\nspec: {count: 1748779200123456790}",
			different: []string{"Thing a: .spec.count is 1748779200123456789 in v1 and 1748779200123456790 in v3"},
		},
		"Null": {why: "null and absent mean the same", v1: "metadata: {name: a}\nspec: {order: null}", v3: "metadata: {name: a}\nspec: {}"},
		"NullInList": {
			why: "a free slot of a block is null and has a place", v1: "metadata: {name: a}\nspec: {slots: [null, 1]}",
			v3:        "metadata: {name: a}\nspec: {slots: [1, null]}",
			different: []string{"Thing a: .spec.slots[0] is null in v1 and 1 in v3", "Thing a: .spec.slots[1] is 1 in v1 and null in v3"},
		},
		"Order": {
			why: "the order of a list means something", v1: "metadata: {name: a}\nspec: {nets: [x, z]}", v3: "metadata: {name: a}\nspec: {nets: [z, x]}",
			different: []string{"Thing a: .spec.nets[0] is \"x\" in v1 and \"z\" in v3", "Thing a: .spec.nets[1] is \"z\" in v1 and \"x\" in v3"},
		},
		"Shorter": {
			why: "an item that is missing is not found by comparing those that are there",
			v1:  "metadata: {name: a}\nspec: {nets: [x, z]}", v3: "metadata: {name: a}\nspec: {nets: [x]}",
			different: []string{"Thing a: .spec.nets is [\"x\",\"z\"] in v1 and [\"x\"] in v3"},
		},
		"Lost": {
			why: "a label, a finalizer and an owner are content", v1: "metadata: {name: a, labels: {k: v}, finalizers: [f], ownerReferences: [{apiVersion: crd.projectcalico.org/v1, kind: Tier, name: t, uid: u}]}\nspec: {}",
			v3: "metadata: {name: a}\nspec: {}",
			different: []string{
				"Thing a: .metadata.finalizers.f is true in v1 and missing in v3",
				"Thing a: .metadata.labels.k is \"v\" in v1 and missing in v3",
				"Thing a: .metadata.owners.Tier t of projectcalico.org is true in v1 and missing in v3",
			},
		},
		"Type": {
			why: "false and \"false\" are not the same", v1: "metadata: {name: a}\nspec: {deleted: 'false'}", v3: "metadata: {name: a}\nspec: {deleted: false}",
			different: []string{"Thing a: .spec.deleted is \"false\" in v1 and false in v3"},
		},
		"Defaults": {
			why: "what v3 adds is no loss, but is shown", v1: "metadata: {name: a}\nspec: {rules: [{}, {}]}",
			v3:    "metadata: {name: a, labels: {projectcalico.org/tier: default}}\nspec: {rules: [{log: 1}, {log: 1}]}",
			added: map[string]int{".metadata.labels.projectcalico.org/tier": 1, ".spec.rules[].log": 2},
		},
		"Leftover": {
			why: "what v1 keeps in annotations must not be copied as an annotation", v1: "metadata: {name: a}\nspec: {}",
			v3:        "metadata: {name: a, annotations: {projectcalico.org/metadata: x}}\nspec: {}",
			different: []string{"Thing a: .metadata.annotations.projectcalico.org/metadata is missing in v1 and \"x\" in v3"},
		},
		"Status": {
			why: "a status that is not carried over is counted", v1: "metadata: {name: a}\nspec: {}\nstatus: {a: 1}", v3: "metadata: {name: a}\nspec: {}", noStatus: []string{"Thing a"},
		},
		"WrongStatus": {
			why: "a status that is carried over must be right", v1: "metadata: {name: a}\nspec: {}\nstatus: {a: 1}",
			v3: "metadata: {name: a}\nspec: {}\nstatus: {a: 2}", different: []string{"Thing a: .status.a is 1 in v1 and 2 in v3"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k := equality.Key{Kind: "Thing", Name: "a"}
			got := equality.Compare(equality.Side{k: parse(t, head+tc.v1)}, equality.Side{k: parse(t, head+tc.v3)})
			want := equality.Comparison{Different: tc.different, Added: tc.added, NoStatus: tc.noStatus}
			if want.Added == nil {
				want.Added = map[string]int{}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

func TestCompareNames(t *testing.T) {
	thing := parse(t, head+"metadata: {name: a}\nspec: {}")
	v1 := equality.Side{{"Thing", "", "both"}: thing, {"Thing", "ns", "lost"}: thing}
	v3 := equality.Side{{"Thing", "", "both"}: thing, {"Thing", "", "lost"}: thing}
	got := equality.Compare(v1, v3)
	want := equality.Comparison{Missing: []string{"Thing ns/lost"}, Extra: []string{"Thing lost"}, Added: map[string]int{}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the same name in another namespace is another object (-want +got):\n%s", diff)
	}
	if got.Equal() || !equality.Compare(v1, v1).Equal() {
		t.Error("equal does not tell these from those")
	}
}
