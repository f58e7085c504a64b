package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/test/support/equality"
	"github.com/phasegate/phasegate/test/support/fixture"
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

func TestCheckOwners(t *testing.T) {
	tier := parse(t, "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: "+fixture.OwnerTier+", uid: new}")
	build := func(change func(i int, uid *string) bool) equality.Side {
		v3 := equality.Side{{Kind: "Tier", Name: fixture.OwnerTier}: tier}
		for i := range fixture.OwnedPolicies {
			uid := "new"
			if !change(i, &uid) {
				continue
			}
			name := string(rune('a' + i))
			v3[equality.Key{Kind: "GlobalNetworkPolicy", Name: name}] = parse(t, "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: "+name+
				", ownerReferences: [{apiVersion: projectcalico.org/v3, kind: Tier, name: "+fixture.OwnerTier+", uid: "+uid+"}]}")
		}
		return v3
	}
	cases := map[string]struct {
		why    string
		change func(i int, uid *string) bool
		fails  bool
	}{
		"Whole":     {why: "all are there with the live uid", change: func(int, *string) bool { return true }},
		"Collected": {why: "one is gone", change: func(i int, _ *string) bool { return i != 3 }, fails: true},
		"OldUID": {why: "the garbage collector would delete it", change: func(i int, uid *string) bool {
			if i == 3 {
				*uid = "old"
			}
			return true
		}, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := checkOwners(build(tc.change)); (err != nil) != tc.fails {
				t.Errorf("%s: got %v", tc.why, err)
			}
		})
	}
}
