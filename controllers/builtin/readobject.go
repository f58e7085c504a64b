package builtin

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/fsm"
)

var readObjectSpec = fsm.ActionSpec{
	Doc:   "Reads fields of another object into result.object; changes nothing. It sees what the manager's role lets it see.",
	Check: kindOfTarget,
	Params: withTarget(map[string]fsm.Param{
		"fields": {Type: fsm.TypeStrings, Doc: "paths of the fields to keep, for example spec.replicas; default: metadata.generation and status"},
	}),
	Reads:   &fsm.Target{Param: "fields", Fields: readByDefault},
	Outputs: map[string]fsm.Type{"found": fsm.TypeBool, "object": fsm.TypeObject},
}

// readByDefault are the fields that are read where none are named.
var readByDefault = []string{"metadata.generation", "status"}

// maxObject is how many bytes of another object go into the result, which has
// room for 16 KiB.
const maxObject = 8 << 10

func readObject(ctx context.Context, c *call) (outputs, error) {
	obj, err := c.target()
	if err != nil {
		return nil, err
	}
	fields := c.with.Strings("fields")
	if fields == nil {
		fields = readByDefault
	}
	found, err := c.find(ctx, obj, "get")
	if err != nil {
		return nil, err
	}
	if !found {
		return outputs{"found": false, "object": map[string]any{}}, nil
	}
	kept := map[string]any{}
	for _, field := range fields {
		if err := keep(kept, obj, field); err != nil {
			return nil, err
		}
	}
	data, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	if len(data) > maxObject {
		return nil, fsm.Terminal("TooLarge", "the fields %v of %s are %d bytes, more than %d: name fewer fields", fields, title(obj), len(data), maxObject)
	}
	return outputs{"found": true, "object": kept}, nil
}

// keep copies a field that is there.
func keep(kept map[string]any, obj *unstructured.Unstructured, field string) error {
	path := strings.Split(field, ".")
	if gvk := obj.GroupVersionKind(); gvk.Group == "" && gvk.Kind == "Secret" && secret(path) {
		return fsm.Terminal("SecretRefused", "field %s of %s would be readable in the status: of a Secret, read type, or metadata such as metadata.labels",
			field, title(obj))
	}
	value, found, err := unstructured.NestedFieldNoCopy(obj.Object, path...)
	if err == nil && found {
		err = unstructured.SetNestedField(kept, runtime.DeepCopyJSONValue(value), path...)
	}
	if err != nil {
		return fsm.Terminal("BadParameter", "field %s of %s: %w: give a path that leads through objects only", field, title(obj), err)
	}
	return nil
}

// secret tells whether a field may hold what a Secret keeps. Annotations may:
// kubectl apply writes the whole manifest into one.
func secret(path []string) bool {
	if path[0] == "metadata" {
		return len(path) == 1 || path[1] == "annotations"
	}
	return path[0] != "type" && path[0] != "immutable"
}
