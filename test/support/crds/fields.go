package crds

import (
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Fields are the paths of all fields below some parts of a CRD, such as spec, in the version that is stored: those of the
// items of a list without a number, and * for the keys of a map.
func Fields(file string, parts ...string) (map[string]bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	found := map[string]bool{}
	for _, version := range crd.Spec.Versions {
		for _, part := range parts {
			if version.Storage {
				addFields(found, part, version.Schema.OpenAPIV3Schema.Properties[part])
			}
		}
	}
	return found, nil
}

func addFields(found map[string]bool, at string, schema apiextensionsv1.JSONSchemaProps) {
	if schema.Items != nil && schema.Items.Schema != nil {
		schema = *schema.Items.Schema
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		addFields(found, at+".*", *schema.AdditionalProperties.Schema)
	}
	for name, field := range schema.Properties {
		found[at+"."+name] = true
		addFields(found, at+"."+name, field)
	}
}
