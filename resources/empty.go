package resources

import (
	"maps"
	"regexp"
	"slices"
	"sync"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// withoutEmpty returns the value without the empty optional fields that the schema refuses, and whether
// anything was left out. It copies only the way down to what it changes; the argument stays as it is.
func withoutEmpty(value any, schema *structuralschema.Structural) (any, bool) {
	switch value := value.(type) {
	case map[string]any:
		return mapWithoutEmpty(value, schema)
	case []any:
		return listWithoutEmpty(value, schema.Items)
	}
	return value, false
}

func mapWithoutEmpty(value map[string]any, schema *structuralschema.Structural) (any, bool) {
	out, changed := value, false
	own := func() {
		if !changed {
			out, changed = maps.Clone(value), true
		}
	}
	for field, child := range value {
		if isScalar(child) && !isEmptyScalar(child) {
			continue // there is something in it, and nothing below it
		}
		sub, optional := fieldSchema(schema, field)
		if sub == nil {
			continue
		}
		if optional && refusesEmpty(child, sub) {
			own()
			delete(out, field)
			continue
		}
		if cleaned, did := withoutEmpty(child, sub); did {
			own()
			out[field] = cleaned
		}
	}
	return out, changed
}

// listWithoutEmpty keeps every item: leaving one out would move those behind it.
func listWithoutEmpty(value []any, items *structuralschema.Structural) (any, bool) {
	if items == nil {
		return value, false
	}
	out, changed := value, false
	for i, item := range value {
		cleaned, did := withoutEmpty(item, items)
		if !did {
			continue
		}
		if !changed {
			out, changed = slices.Clone(value), true
		}
		out[i] = cleaned
	}
	return out, changed
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
