package check

import (
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type schema = apiextensionsv1.JSONSchemaProps

// schemaOf is empty where a version has none.
func schemaOf(v *apiextensionsv1.CustomResourceDefinitionVersion) *schema {
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return &schema{}
	}
	return v.Schema.OpenAPIV3Schema
}

// ours tells whether a CRD is of the chart, of any release: a peer's has no status.machine.
func ours(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		_, has := schemaOf(&v).Properties["status"].Properties["machine"]
		return has
	})
}

// status is the schema of the status in the version that is stored.
func status(crd *apiextensionsv1.CustomResourceDefinition) *schema {
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Storage {
			field := schemaOf(&crd.Spec.Versions[i]).Properties["status"]
			return &field
		}
	}
	return &schema{}
}

// keepsAll tells whether fields that a schema does not name are stored.
func keepsAll(s *schema) bool {
	return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields || s.AdditionalProperties != nil
}

// Keeps tells whether a field is stored, by its path.
func Keeps(s *schema, path string) bool {
	for _, name := range strings.Split(path, ".") {
		field, named := s.Properties[name]
		if !named {
			return keepsAll(s)
		}
		s = &field
	}
	return true
}

// walk compares two schemas field by field, and answers the first path that says no. found
// is nil for a field that the first one does not have.
func walk(is, want *schema, path string, fits func(is, want *schema) bool) string {
	if !fits(is, want) {
		return path
	}
	if is == nil {
		return ""
	}
	if is.Items != nil && want.Items != nil && is.Items.Schema != nil && want.Items.Schema != nil {
		if no := walk(is.Items.Schema, want.Items.Schema, path+"[]", fits); no != "" {
			return no
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.Properties)) {
		field, wanted := is.Properties[name], want.Properties[name]
		next := &field
		if _, has := is.Properties[name]; !has {
			if keepsAll(is) {
				continue
			}
			next = nil
		}
		if no := walk(next, &wanted, strings.TrimPrefix(path+"."+name, "."), fits); no != "" {
			return no
		}
	}
	return ""
}

// pruned is the first field that one schema has and another would prune; empty if none.
func pruned(is, want *schema, path string) string {
	return walk(is, want, path, func(is, _ *schema) bool { return is != nil })
}

// narrower is the first field in which a schema allows less than another; empty if none.
func narrower(is, want *schema, path string) string {
	less := func(is, want *int64) bool { return is != nil && (want == nil || *is < *want) }
	return walk(is, want, path, func(is, want *schema) bool {
		return is == nil || is.Type == want.Type && !less(is.MaxLength, want.MaxLength) && !less(is.MaxItems, want.MaxItems) && !less(is.MaxProperties, want.MaxProperties)
	})
}
