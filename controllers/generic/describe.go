package generic

import (
	"encoding/json"
	"fmt"

	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// described are the fields of Object, as schemas. The CRD says what is in the spec; the others are what the program keeps,
// whatever the CRD says.
var described = map[string]string{
	"apiVersion": "{}", "kind": "{}", "metadata": "{}", "spec": "",
	"status": `{"type": "object", "properties": {
		"phase": {"type": "string"}, "message": {"type": "string"}, "observedGeneration": {"type": "integer"},
		"conditions": {"type": "array", "items": {"type": "object", "properties": {
			"type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"}, "message": {"type": "string"},
			"observedGeneration": {"type": "integer"}, "lastTransitionTime": {"type": "string"}}}},
		"machine": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}`,
}

// Describe is what expressions read of objects of a kind, as far as its CRD says: of an Object, nothing else is known. It
// takes the openAPIV3Schema of a version, as JSON.
func Describe(openAPIV3Schema []byte) (*expr.Schema, error) {
	var crd struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(openAPIV3Schema, &crd); err != nil {
		return nil, fmt.Errorf("read the schema of a CRD: %w", err)
	}
	fields := map[string]json.RawMessage{}
	for name, schema := range described {
		if schema != "" {
			fields[name] = json.RawMessage(schema)
		} else if crd.Properties[name] != nil {
			fields[name] = crd.Properties[name]
		}
	}
	object, err := json.Marshal(map[string]any{"type": "object", "properties": fields})
	if err != nil {
		return nil, err // not reached: it came out of JSON
	}
	return expr.Describe(object)
}
