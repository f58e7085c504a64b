package resources

import (
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Schema is the schema of one version of a CRD, compiled. A nil *Schema is permissive: it knows no
// field, sets no default and refuses nothing. Safe for concurrent use.
type Schema struct {
	structural *structuralschema.Structural
	// checks compiles OpenAPI validation and CEL rules at the first use: it is slow, and only
	// planning validates.
	checks func() (*checks, error)
}

type checks struct {
	openAPI validation.SchemaValidator
	rules   *schemacel.Validator // nil without rules
}

// NewSchema compiles the schema of the named version of a CRD. It returns nil without error when that
// version has no schema, and an error when it does not exist or its schema is not structural.
func NewSchema(crd *apiextensionsv1.CustomResourceDefinition, version string) (*Schema, error) {
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Name != version {
			continue
		}
		schema := crd.Spec.Versions[i].Schema
		if schema == nil || schema.OpenAPIV3Schema == nil {
			return nil, nil
		}
		compiled, err := newSchema(schema.OpenAPIV3Schema)
		if err != nil {
			return nil, fmt.Errorf("crd %s, version %s: %w", crd.Name, version, err)
		}
		return compiled, nil
	}
	return nil, fmt.Errorf("crd %s has no version %s", crd.Name, version)
}

func newSchema(props *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, internal, nil); err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, fmt.Errorf("read structural schema: %w", err)
	}
	return &Schema{
		structural: structural,
		checks: sync.OnceValues(func() (*checks, error) {
			openAPI, _, err := validation.NewSchemaValidator(internal)
			if err != nil {
				return nil, fmt.Errorf("compile schema: %w", err)
			}
			return &checks{openAPI: openAPI, rules: schemacel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
		}),
	}, nil
}
