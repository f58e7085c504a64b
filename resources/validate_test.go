package resources

import (
	"context"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestValidate(t *testing.T) {
	const schema = `
type: object
required: [cidr]
properties:
  cidr: {type: string, format: cidr}
  max: {type: integer, maximum: 10}
  nets: {type: array, items: {type: string}, x-kubernetes-list-type: set}
  flag: {type: boolean, default: false}
  mode: {type: string, enum: [A, B]}
x-kubernetes-validations:
- {rule: "!self.flag || self.max < 5", message: "flag needs a small max"}`
	for name, tc := range map[string]struct {
		obj      string
		noSchema bool
		want     Reason
		says     string
		why      string
	}{
		"valid":           {obj: "metadata: {name: a}\nspec: {cidr: 10.0.0.0/8, max: 10}", why: "the default of flag makes the rule true"},
		"missing field":   {obj: "metadata: {name: a}\nspec: {}", want: ReasonInvalid, says: "spec.cidr", why: "it is required"},
		"bad format":      {obj: "metadata: {name: a}\nspec: {cidr: x}", want: ReasonInvalid, says: "spec.cidr", why: "formats are checked"},
		"too big":         {obj: "metadata: {name: a}\nspec: {cidr: 10.0.0.0/8, max: 11}", want: ReasonInvalid, says: "spec.max", why: "v3 has limits that v1 has not"},
		"bad enum":        {obj: "metadata: {name: a}\nspec: {cidr: 10.0.0.0/8, mode: C}", want: ReasonInvalid, says: `"A", "B"`, why: "the values that are allowed are shown"},
		"duplicate":       {obj: "metadata: {name: a}\nspec: {cidr: 10.0.0.0/8, nets: [a, a]}", want: ReasonInvalid, says: "Duplicate", why: "a set refuses duplicates"},
		"rule":            {obj: "metadata: {name: a}\nspec: {cidr: 10.0.0.0/8, flag: true, max: 7}", want: ReasonInvalid, says: "flag needs a small max", why: "CEL rules are run"},
		"unknown field":   {obj: "metadata: {name: a}\nspec: {cidr: 10.0.0.0/8, fresh: 1}", want: ReasonUnknownField, says: "spec.fresh", why: "v3 would drop it silently"},
		"upper-case name": {obj: "metadata: {name: ABC}\nspec: {cidr: 10.0.0.0/8}", want: ReasonInvalid, says: "metadata.name", why: "the server refuses the name"},
		"bad label":       {obj: "metadata: {name: a, labels: {'a b': c}}\nspec: {}", noSchema: true, want: ReasonInvalid, says: "metadata.labels", why: "labels out of the annotation were never checked by the v1 side"},
		"no schema":       {obj: "metadata: {name: a}\nspec: {anything: 1}", noSchema: true, why: "nothing is known, so nothing is refused"},
	} {
		t.Run(name, func(t *testing.T) {
			kind := mustKind(t, "IPPool")
			var s *Schema
			if !tc.noSchema {
				s = schemaOf(t, schema)
			}
			problem, err := Validate(context.Background(), kind, v3Object(t, kind, tc.obj), s)
			must(t, err)
			if problem == nil {
				problem = &Problem{}
			}
			if problem.Reason != tc.want || !strings.Contains(problem.Message, tc.says) {
				t.Errorf("got %q %q, want %q with %q: %s", problem.Reason, problem.Message, tc.want, tc.says, tc.why)
			}
		})
	}
}

func TestNewSchema(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = "as.projectcalico.org"
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{
		{Name: "v3"},
		{Name: "v4", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}},
	}
	if s, err := NewSchema(crd, "v3"); s != nil || err != nil {
		t.Errorf("a version without schema gives %v, %v; want none", s, err)
	}
	if s, err := NewSchema(crd, "v4"); s == nil || err != nil {
		t.Errorf("a version with schema gives %v, %v", s, err)
	}
	for name, separate := range map[string]bool{"FelixConfiguration": false, "CalicoNodeStatus": true} {
		kind, _ := Default().Kind(name)
		without, _ := NewSchema(crd, "v4")
		if kind.HasStatus(without) != separate || kind.PatchesStatus(without) {
			t.Errorf("%s, without the subresource: has status %v, patches it %v", name, kind.HasStatus(without), kind.PatchesStatus(without))
		}
		with := *without
		with.statusSubresource = true
		if !kind.HasStatus(&with) || !kind.PatchesStatus(&with) {
			t.Errorf("%s: the registry contradicts the CRD, which has the subresource", name)
		}
	}
	if _, err := NewSchema(crd, "v6"); err == nil || !strings.Contains(err.Error(), "as.projectcalico.org has no version v6") {
		t.Errorf("a missing version gives %v", err)
	}
}
