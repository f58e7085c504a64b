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

// The constants are what the code cuts to; the CRD is what the API server holds
// it to. A write that is too long is refused as a whole.
func TestBoundsAgreeWithConstants(t *testing.T) {
	status := readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties
	want := map[string]int64{
		"conflicts":   131072,
		"typeDetails": 128, "message": v1.MaxMessageLength,
	}
	got := map[string]int64{
		"conflicts":   *status["conflicts"].MaxLength,
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
