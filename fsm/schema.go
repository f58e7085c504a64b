package fsm

import (
	"encoding/json"
	"fmt"

	openapi "k8s.io/kube-openapi/pkg/validation/spec"
)

// Schema is the type of the objects that a machine drives.
type Schema struct {
	object *openapi.Schema
}

// NewSchema reads the openAPIV3Schema of a CRD's version, as JSON.
func NewSchema(openAPIV3Schema []byte) (*Schema, error) {
	s := &openapi.Schema{}
	if err := json.Unmarshal(openAPIV3Schema, s); err != nil {
		return nil, fmt.Errorf("read the schema of a CRD: %w", err)
	}
	return &Schema{object: s}, nil
}
