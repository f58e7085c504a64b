package toolhive

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// affinity is Kubernetes' own type, which is handed on whole: two kinds of it stand for all.
const affinity = "spec.resourceOverrides.proxyDeployment.affinity."

// TestServersHaveEachField: what no server has, TestSameFacts does not compare.
func TestServersHaveEachField(t *testing.T) {
	needs(t, envCRDs)
	had := map[string]bool{}
	for _, srv := range servers(t) {
		addPaths(had, "spec", srv.Object["spec"])
	}
	fields := specFields(t)
	if len(fields) < 100 {
		t.Fatalf("only %d fields: is the CRD read?", len(fields))
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !had[field] && !strings.HasPrefix(field, affinity) {
			t.Errorf("%s: no server of testdata/servers.yaml has it", field)
		}
	}
}

// addPaths adds the path of each field of an object, those of items without their number.
func addPaths(found map[string]bool, at string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			found[at+"."+name] = true
			addPaths(found, at+"."+name, inner)
		}
	case []any:
		for _, item := range v {
			addPaths(found, at, item)
		}
	}
}

// specFields are the paths of all fields of spec in ToolHive's CRD.
func specFields(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv(envCRDs), "toolhive.stacklok.dev_mcpservers.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, version := range crd.Spec.Versions {
		if version.Name == "v1beta1" {
			addSchema(found, "spec", version.Schema.OpenAPIV3Schema.Properties["spec"])
		}
	}
	return found
}

func addSchema(found map[string]bool, at string, schema apiextensionsv1.JSONSchemaProps) {
	if schema.Items != nil && schema.Items.Schema != nil {
		schema = *schema.Items.Schema
	}
	for name, field := range schema.Properties {
		found[at+"."+name] = true
		addSchema(found, at+"."+name, field)
	}
}
