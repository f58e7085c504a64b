package resources

import (
	"regexp"
	"slices"
	"sync"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
)

// withoutEmpty returns the value without the empty optional fields that the schema refuses. The argument stays as it
// is; it is the result where there are none.
func withoutEmpty(value any, schema *structuralschema.Structural) any {
	if dropEmpty(value, schema, false) {
		value = runtime.DeepCopyJSONValue(value)
		dropEmpty(value, schema, true)
	}
	return value
}

// dropEmpty tells whether there are such fields, and takes them out if it is to.
func dropEmpty(value any, schema *structuralschema.Structural, drop bool) (found bool) {
	switch value := value.(type) {
	case map[string]any:
		for field := range value {
			found = dropField(value, field, schema, drop) || found
		}
	case []any:
		if schema.Items == nil {
			return false
		}
		for _, item := range value { // every item stays: leaving one out would move those behind it
			found = dropEmpty(item, schema.Items, drop) || found
		}
	}
	return found
}

func dropField(fields map[string]any, field string, schema *structuralschema.Structural, drop bool) (found bool) {
	child := fields[field]
	if isScalar(child) && !isEmptyScalar(child) {
		return false // there is something in it, and nothing below it
	}
	sub, optional := fieldSchema(schema, field)
	if sub == nil {
		return false
	}
	if !optional || !refusesEmpty(child, sub) {
		return dropEmpty(child, sub, drop)
	}
	if drop {
		delete(fields, field)
	}
	return true
}

// fieldSchema returns nil for a field that the schema does not know. The keys of a map are data: they
// are never optional.
func fieldSchema(schema *structuralschema.Structural, field string) (sub *structuralschema.Structural, optional bool) {
	if sub, ok := schema.Properties[field]; ok {
		v := schema.ValueValidation
		return &sub, v == nil || !slices.Contains(v.Required, field)
	}
	if schema.AdditionalProperties != nil {
		return schema.AdditionalProperties.Structural, false
	}
	return nil, false
}

// refusesEmpty tells whether value is "" or 0 and the schema allows no such value.
func refusesEmpty(value any, schema *structuralschema.Structural) bool {
	v := schema.ValueValidation
	if v == nil || !isEmptyScalar(value) {
		return false
	}
	if len(v.Enum) > 0 {
		return !slices.ContainsFunc(v.Enum, func(allowed structuralschema.JSON) bool { return isEmptyScalar(allowed.Object) })
	}
	if value != "" {
		return false // a number without an enum: 0 is a value like any other
	}
	return v.Format != "" || v.Pattern != "" && !matchesEmpty(v.Pattern) || v.MinLength != nil && *v.MinLength > 0
}

func isScalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

func isEmptyScalar(value any) bool {
	return value == "" || value == int64(0) || value == float64(0)
}

var compiledPatterns sync.Map // pattern -> bool, whether it matches the empty string

func matchesEmpty(pattern string) bool {
	if known, ok := compiledPatterns.Load(pattern); ok {
		return known.(bool)
	}
	re, err := regexp.Compile(pattern)
	matches := err == nil && re.MatchString("")
	compiledPatterns.Store(pattern, matches)
	return matches
}
