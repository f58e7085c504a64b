package resources_test

import (
	"context"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fixture"
)

// The CRDs are Calico's own where CALICO_CRDS says where they are, and generated permissive ones else.

func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	set, err := crds.Load(resources.Default())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, obj := range set.CRDs {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, crd); err != nil {
			t.Fatalf("%s: %v", obj.GetName(), err)
		}
		out[crd.Name] = crd
	}
	return out
}

func TestRegistryFitsTheCRDs(t *testing.T) {
	defs := definitions(t)
	for _, kind := range resources.Default().All() {
		v1, v3 := defs[kind.V1CRDName()], defs[kind.V3CRDName()]
		if v1 == nil || v3 == nil {
			t.Errorf("%s: CRD %s or %s does not exist", kind.Name(), kind.V1CRDName(), kind.V3CRDName())
			continue
		}
		if v1.Spec.Names.Kind != kind.V1Kind() || v3.Spec.Names.Kind != kind.Name() {
			t.Errorf("%s: the CRDs' kinds are %s and %s", kind.Name(), v1.Spec.Names.Kind, v3.Spec.Names.Kind)
		}
		for _, crd := range []*apiextensionsv1.CustomResourceDefinition{v1, v3} {
			if namespaced := crd.Spec.Scope == apiextensionsv1.NamespaceScoped; namespaced != kind.Namespaced() {
				t.Errorf("%s: namespaced is %v in %s", kind.Name(), namespaced, crd.Name)
			}
		}
		sub := v3.Spec.Versions[0].Subresources
		if hasStatus := sub != nil && sub.Status != nil; hasStatus != kind.HasStatus(nil) {
			t.Errorf("%s: the CRD has a status subresource: %v, for which the rights are static", kind.Name(), hasStatus)
		}
	}
}

func TestConvertedFixtureIsValidInV3(t *testing.T) {
	defs := definitions(t)
	reg := resources.Default()
	schemas := map[string]*resources.Schema{}
	for _, kind := range reg.Kinds() {
		schema, err := resources.NewSchema(defs[kind.V3CRDName()], resources.V3Version)
		if err != nil {
			t.Fatal(err)
		}
		schemas[kind.Name()] = schema
	}
	seen := map[string]bool{}
	for _, v1 := range fixture.Demo(1, 500) {
		at := slices.IndexFunc(reg.All(), func(k *resources.Kind) bool { return k.V1GVK() == v1.GroupVersionKind() })
		if at < 0 {
			t.Fatalf("%s is no kind of the registry", v1.GroupVersionKind())
		}
		kind := reg.All()[at]
		if kind == reg.Lock() {
			continue
		}
		seen[kind.Name()] = true
		v1.SetUID("0e5e3214-5bda-429e-8d53-2f1b77363286")
		conv, err := resources.Convert(kind, v1, schemas[kind.Name()])
		if err != nil {
			t.Errorf("convert: %v", err)
			continue
		}
		problem, err := resources.Validate(context.Background(), kind, conv.Object, schemas[kind.Name()])
		if err != nil {
			t.Fatal(err)
		}
		if problem != nil {
			t.Error(problem)
		}
	}
	for _, kind := range reg.Kinds() {
		if !seen[kind.Name()] {
			t.Errorf("the fixture has no %s", kind.Name())
		}
	}
}
