package resources_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fixture"
)

// The CRDs are Calico's own where CALICO_CRDS says where they are, and generated permissive ones else.

func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	set, err := crds.Load(resources.Default())
	must(t, err)
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
		must(t, err)
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
		must(t, err)
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

// What Calico 3.33 limits in v3, and an older v1 did not, is named by the plan: the live CRD is asked, whatever its release.
func TestLimitsOfPolicies(t *testing.T) {
	kind, _ := resources.Default().Kind("GlobalNetworkPolicy")
	crd := definitions(t)[kind.V3CRDName()]
	schema, err := resources.NewSchema(crd, resources.V3Version)
	must(t, err)
	for name, c := range limitsOfPolicies {
		says := c.says
		if !hasLimits(crd) {
			says = ""
		}
		for n, want := range map[int]string{c.limit: "", c.limit + 1: says} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
				got := problemOf(t, kind, schema, c.spec(n))
				if got == "" != (want == "") || !strings.Contains(got, want) {
					t.Errorf("it says %q, want %q", got, want)
				}
			})
		}
	}
}

var limitsOfPolicies = map[string]struct {
	limit int
	spec  func(n int) map[string]any
	says  string
}{
	"rules": {1024, func(n int) map[string]any {
		return map[string]any{"order": int64(1), "ingress": listOf(n, func(int) any { return map[string]any{"action": "Allow"} })}
	}, "spec.ingress: Too many: 1025"},
	"nets": {256, func(n int) map[string]any {
		return ruleFrom(map[string]any{"nets": listOf(n, func(i int) any { return fmt.Sprintf("10.%d.%d.0/24", i/256, i%256) })})
	}, "spec.ingress[0].source.nets: Too many: 257"},
	"ports": {50, func(n int) map[string]any {
		return ruleFrom(map[string]any{"ports": listOf(n, func(i int) any { return int64(i + 1) })})
	}, "spec.ingress[0].source.ports: Too many: 51"},
	"selector": {1024, func(n int) map[string]any {
		return map[string]any{"order": int64(1), "selector": "has(" + strings.Repeat("a", n-5) + ")"}
	}, "spec.selector: Too long: may not be more than 1024"},
}

func listOf(n int, entry func(int) any) (all []any) {
	for i := range n {
		all = append(all, entry(i))
	}
	return all
}

func ruleFrom(source map[string]any) map[string]any {
	return map[string]any{"order": int64(1), "ingress": []any{map[string]any{"action": "Allow", "protocol": "TCP", "source": source}}}
}

// problemOf is what is wrong with the copy of a v1 object; empty if nothing is.
func problemOf(t *testing.T, kind *resources.Kind, schema *resources.Schema, spec map[string]any) string {
	t.Helper()
	v1 := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	v1.SetGroupVersionKind(kind.V1GVK())
	v1.SetName("web")
	v1.SetUID("0e5e3214-5bda-429e-8d53-2f1b77363286")
	converted, err := resources.Convert(kind, v1, schema)
	must(t, err)
	problem, err := resources.Validate(t.Context(), kind, converted.Object, schema)
	must(t, err)
	if problem == nil {
		return ""
	}
	return problem.Message
}

// hasLimits tells whether a CRD has limits at all: the permissive ones, and those of 3.32, have none.
func hasLimits(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["ingress"].MaxItems != nil
}
