package expr

import (
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// StatusField is the JSON type of a field of the status; empty: it may be any, as far as the schema says. It is not known
// where the API server would drop it.
func (s *Schema) StatusField(name string) (jsonType string, known bool) {
	status, has := s.root.Properties()["status"]
	if !has {
		return "", s.root.IsXPreserveUnknownFields()
	}
	if field, has := status.Properties()[name]; has {
		if field.IsXIntOrString() || field.IsXPreserveUnknownFields() && field.Type() == "" {
			return "", true
		}
		return field.Type(), true
	}
	if values := status.AdditionalProperties(); values != nil && values.Schema() != nil {
		return values.Schema().Type(), true
	}
	return "", status.IsXPreserveUnknownFields()
}

// kindsOfJSON are the kinds of CEL types whose values are of a JSON type, as Native makes them.
var kindsOfJSON = map[string][]types.Kind{
	"string":  {types.StringKind, types.BytesKind, types.TimestampKind, types.DurationKind},
	"integer": {types.IntKind, types.UintKind},
	"number":  {types.IntKind, types.UintKind, types.DoubleKind},
	"boolean": {types.BoolKind},
	"array":   {types.ListKind},
	"object":  {types.MapKind, types.StructKind},
}

// FitsJSON tells whether a value of a type may be one of a JSON type; empty: of any. Null and nothing are left out where they are
// shown.
func FitsJSON(t *cel.Type, jsonType string) bool {
	switch {
	case jsonType == "" || t.Kind() == types.DynKind || t.Kind() == types.AnyKind || t.Kind() == types.NullTypeKind:
		return true
	case t.IsExactType(numberType):
		return jsonType == "number" || jsonType == "integer"
	case t.Kind() == types.OpaqueKind && len(t.Parameters()) == 1: // an optional
		return FitsJSON(t.Parameters()[0], jsonType)
	}
	return slices.Contains(kindsOfJSON[jsonType], t.Kind())
}
