package crdgate

import (
	"context"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func TestFind(t *testing.T) {
	crd := func(name, group, kind string, established apiextensionsv1.ConditionStatus) any {
		c := &apiextensionsv1.CustomResourceDefinition{}
		c.Name, c.UID, c.Spec.Group, c.Spec.Names.Kind = name, "1", group, kind
		c.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: established}}
		return c
	}
	byKind := &Gate{Kind: schema.GroupKind{Group: "example.org", Kind: "Door"}}
	cases := map[string]struct {
		why  string
		gate *Gate
		all  []any
		want string
	}{
		"none": {why: "nothing runs", gate: byKind, all: []any{crd("gates.example.org", "example.org", "Gate", "True"), crd("doors.example.com", "example.com", "Door", "True")}},
		"one":  {why: "group and kind together are unique", gate: byKind, all: []any{crd("doors.example.org", "example.org", "Door", "True")}, want: "doors.example.org"},
		"two that claim the kind": {
			why: "the one that is served counts, in whatever order they come", gate: byKind, want: "portals.example.org",
			all: []any{crd("doors.example.org", "example.org", "Door", "False"), crd("portals.example.org", "example.org", "Door", "True"), crd("gaps.example.org", "example.org", "Door", "False")},
		},
		"by name": {
			why: "the name is enough", gate: &Gate{CRDName: "doors.example.org"}, want: "doors.example.org",
			all: []any{crd("doors.example.org", "example.org", "Door", "True")},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if found := c.gate.find(c.all); found != nil {
				got = found.Name
			}
			if got != c.want {
				t.Errorf("found %q, want %q: %s", got, c.want, c.why)
			}
		})
	}
}

func TestGateNeedsOneName(t *testing.T) {
	run := func(context.Context, *Missing) error { return nil }
	kind := schema.GroupKind{Group: "example.org", Kind: "Door"}
	for why, gate := range map[string]*Gate{
		"it would wait for nothing": {Config: &rest.Config{}, Run: run},
		"which one would count":     {Config: &rest.Config{}, Run: run, CRDName: "doors.example.org", Kind: kind},
		"nothing to run":            {Config: &rest.Config{}, Kind: kind},
	} {
		if err := gate.Start(t.Context()); err == nil {
			t.Errorf("no error: %s", why)
		}
	}
}
