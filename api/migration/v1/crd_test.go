package v1_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/phasegate/phasegate/api/migration/v1"
)

func readCRD(t *testing.T) apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile("../../../charts/phasegate/files/crds/migration.projectcalico.org_datastoremigrations.yaml")
	if err != nil {
		t.Fatalf("read the generated CRD (make generate writes it): %v", err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		t.Fatalf("parse the generated CRD: %v", err)
	}
	return crd
}

func TestVersions(t *testing.T) {
	crd := readCRD(t)
	if crd.Name != v1.CRDName {
		t.Errorf("the CRD is called %q, the constant says %q", crd.Name, v1.CRDName)
	}

	type version struct {
		Name                        string
		Served, Storage, Deprecated bool
	}
	want := []version{
		{Name: "v1", Served: true, Storage: true},
		{Name: "v1beta1", Served: true, Deprecated: true},
	}
	var got []version
	for _, v := range crd.Spec.Versions {
		got = append(got, version{v.Name, v.Served, v.Storage, v.Deprecated})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("versions (-want +got):\n%s", diff)
	}

	stored, old := crd.Spec.Versions[0], crd.Spec.Versions[1]
	if diff := cmp.Diff(stored.Schema, old.Schema); diff != "" {
		t.Errorf("v1beta1 is not the same on the wire as v1; there is no conversion (-v1 +v1beta1):\n%s", diff)
	}
	if diff := cmp.Diff(stored.AdditionalPrinterColumns, old.AdditionalPrinterColumns); diff != "" {
		t.Errorf("kubectl shows the versions differently (-v1 +v1beta1):\n%s", diff)
	}
}

// The constants are what the code cuts to; the CRD is what the API server holds
// it to. A write that is too long is refused as a whole.
func TestBoundsAgreeWithConstants(t *testing.T) {
	status := readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties
	conflict := status["conflicts"].Items.Schema.Properties["fields"]
	want := map[string]int64{
		"conflicts": v1.MaxConflicts, "fields": v1.MaxConflictFields, "field": v1.MaxConflictFieldLength,
		"typeDetails": v1.MaxTypeDetails, "message": v1.MaxMessageLength,
	}
	got := map[string]int64{
		"conflicts": *status["conflicts"].MaxItems, "fields": *conflict.MaxItems, "field": *conflict.Items.Schema.MaxLength,
		"typeDetails": *status["progress"].Properties["typeDetails"].MaxItems, "message": *status["message"].MaxLength,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bounds (-constants +CRD):\n%s", diff)
	}
}

// A message that is too long would cost the whole transition.
func TestSetDisplayCuts(t *testing.T) {
	var m v1.DatastoreMigration
	m.SetDisplay("Migrating", strings.Repeat("a", v1.MaxMessageLength+1))
	want := v1.DatastoreMigrationStatus{Phase: "Migrating", Message: strings.Repeat("a", v1.MaxMessageLength-1) + "…"}
	if diff := cmp.Diff(want, m.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}
