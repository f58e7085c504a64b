package resources

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	testUID    = "0e5e3214-5bda-429e-8d53-2f1b77363286"
	reversedID = "707a4c28-da5b-4279-8dca-f4d8ee6c4c61"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// object reads YAML the way a client reads JSON: integers become int64.
func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := utilyaml.ToJSON([]byte(text))
	if err != nil {
		t.Fatalf("test object: %v\n%s", err, text)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(data); err != nil {
		t.Fatalf("test object: %v\n%s", err, text)
	}
	return obj
}

// v1Object is a v1 object of a kind with the usual server-set metadata; body follows `metadata:` fields
// at indent 2 and then top-level fields.
func v1Object(t testing.TB, kind *Kind, name, body string) *unstructured.Unstructured {
	t.Helper()
	obj := object(t, "apiVersion: crd.projectcalico.org/v1\nkind: "+kind.V1Kind()+"\nmetadata:\n  uid: "+testUID+
		"\n  resourceVersion: \"7\"\n  generation: 3\n  creationTimestamp: \"2024-01-01T00:00:00Z\"\n"+body)
	obj.SetName(name)
	return obj
}

func mustKind(t testing.TB, name string) *Kind {
	t.Helper()
	kind, ok := Default().Kind(name)
	if !ok {
		t.Fatalf("no kind %s", name)
	}
	return kind
}

// schemaOf compiles the schema of a spec.
func schemaOf(t testing.TB, spec string) *Schema {
	t.Helper()
	var props apiextensionsv1.JSONSchemaProps
	if err := yaml.Unmarshal([]byte(spec), &props); err != nil {
		t.Fatalf("test schema: %v\n%s", err, spec)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: V3Version, Schema: &apiextensionsv1.CustomResourceValidation{
		OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type:       "object",
			Required:   []string{"spec"},
			Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": props},
		}}}}
	schema, err := NewSchema(crd, V3Version)
	if err != nil {
		t.Fatalf("test schema: %v\n%s", err, spec)
	}
	return schema
}

func v3Object(t testing.TB, kind *Kind, body string) *unstructured.Unstructured {
	t.Helper()
	return object(t, "apiVersion: projectcalico.org/v3\nkind: "+kind.Name()+"\n"+body)
}
