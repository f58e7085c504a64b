package charts_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	toolhivev1beta1 "github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/charts"
)

type version struct {
	Name                        string
	Served, Storage, Deprecated bool
}

// There is no conversion between the versions of a kind, so they must be the same.
func TestVersions(t *testing.T) {
	type crd struct {
		Name     string
		Versions []version
	}
	for file, want := range map[string]crd{
		"migration.projectcalico.org_datastoremigrations.yaml": {migrationv1.CRDName, []version{
			{Name: "v1", Served: true, Storage: true}, {Name: "v1beta1", Served: true, Deprecated: true}}},
		"toolhive.stacklok.dev_mcpservers.yaml": {toolhivev1beta1.CRDName, []version{
			{Name: "v1alpha1", Served: true, Deprecated: true}, {Name: "v1beta1", Served: true, Storage: true}}},
	} {
		data, err := charts.CRDs.ReadFile("phasegate/files/crds/" + file)
		if err != nil {
			t.Fatalf("read the generated CRD (make generate writes it): %v", err)
		}
		generated := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, generated); err != nil {
			t.Fatal(err)
		}
		got := crd{Name: generated.Name}
		first := generated.Spec.Versions[0]
		for _, v := range generated.Spec.Versions {
			got.Versions = append(got.Versions, version{v.Name, v.Served, v.Storage, v.Deprecated})
			if diff := cmp.Diff(first.Schema, v.Schema); diff != "" {
				t.Errorf("%s: %s is not the same on the wire as %s:\n%s", file, v.Name, first.Name, diff)
			}
			if diff := cmp.Diff(first.AdditionalPrinterColumns, v.AdditionalPrinterColumns); diff != "" {
				t.Errorf("%s: kubectl shows %s otherwise than %s:\n%s", file, v.Name, first.Name, diff)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}
