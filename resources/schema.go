package resources

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Schema is the schema of one version of a CRD, compiled. A nil *Schema is permissive: it knows no
// field, sets no default and refuses nothing. Safe for concurrent use.
type Schema struct {
	structural *structuralschema.Structural
	// statusSubresource: a write of the object drops the status, which has a path of its own.
	statusSubresource bool
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
	schema, err := apihelpers.GetSchemaForVersion(crd, version)
	if err != nil {
		return nil, fmt.Errorf("crd %s has no version %s", crd.Name, version)
	}
	if schema == nil || schema.OpenAPIV3Schema == nil {
		return nil, nil
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema.OpenAPIV3Schema, internal, nil); err != nil {
		return nil, fmt.Errorf("crd %s, version %s: read schema: %w", crd.Name, version, err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, fmt.Errorf("crd %s, version %s: read structural schema: %w", crd.Name, version, err)
	}
	subresources, err := apihelpers.GetSubresourcesForVersion(crd, version)
	if err != nil {
		return nil, fmt.Errorf("crd %s, version %s: read subresources: %w", crd.Name, version, err)
	}
	return &Schema{
		structural:        structural,
		statusSubresource: subresources != nil && subresources.Status != nil,
		checks: sync.OnceValues(func() (*checks, error) {
			openAPI, _, err := validation.NewSchemaValidator(internal)
			if err != nil {
				return nil, fmt.Errorf("compile schema: %w", err)
			}
			return &checks{openAPI: openAPI, rules: schemacel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
		}),
	}, nil
}

// maxReported bounds how many mistakes of one object a message lists.
const maxReported = 5

// Validate tells what the API server would refuse of obj, or silently drop from it, if it were created
// under the schema: metadata, unknown fields, OpenAPI validation, list sets, CEL rules. It returns a
// Problem that bears the name of obj, or nil. The error is about the schema, not about the object.
// Webhooks and admission policies are not asked.
func Validate(ctx context.Context, kind *Kind, obj *unstructured.Unstructured, schema *Schema) (*Problem, error) {
	problem := &Problem{Kind: kind.Name(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
	errs := apimachineryvalidation.ValidateObjectMetaAccessor(obj, kind.Namespaced(),
		apimachineryvalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if schema != nil {
		content := obj.DeepCopy().Object
		// This prunes content as a side effect.
		if unknown := pruning.PruneWithOptions(content, schema.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
			problem.Reason = ReasonUnknownField
			problem.Message = "the v3 CRD does not know, and would drop, " + listed(unknown)
			problem.Remedy = "install the v3 CRDs that fit the Calico version, or remove the fields from the v1 object"
			return problem, nil
		}
		schemaErrs, err := schema.validate(ctx, content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind.V3CRDName(), err)
		}
		errs = append(errs, schemaErrs...)
	}
	if len(errs) == 0 {
		return nil, nil
	}
	problem.Reason = ReasonInvalid
	problem.Message = "v3 refuses it: " + listed(messages(errs))
	problem.Remedy = "change the v1 object so that it is valid in v3"
	return problem, nil
}

// fillIn sets defaults as the API server does, in place.
func fillIn(content map[string]any, schema *structuralschema.Structural) {
	defaulting.PruneNonNullableNullsWithoutDefaults(content, schema)
	defaulting.Default(content, schema)
}

func (s *Schema) validate(ctx context.Context, content map[string]any) (field.ErrorList, error) {
	checks, err := s.checks()
	if err != nil {
		return nil, err
	}
	fillIn(content, s.structural)
	errs := validation.ValidateCustomResource(nil, content, checks.openAPI)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, content)...)
	if len(errs) == 0 && checks.rules != nil { // rules may not be evaluated on malformed content
		ruleErrs, _ := checks.rules.Validate(ctx, nil, s.structural, content, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, ruleErrs...)
	}
	return errs, nil
}

func messages(errs field.ErrorList) []string {
	out := make([]string, len(errs))
	for i, err := range errs {
		out[i] = strings.TrimPrefix(err.Error(), "<nil>: ") // a rule of the whole object has no field
	}
	return out
}

func listed(items []string) string {
	if len(items) <= maxReported {
		return strings.Join(items, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(items[:maxReported], "; "), len(items)-maxReported)
}
