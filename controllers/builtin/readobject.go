package builtin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/controllers/builtin/kubetypes"
	"github.com/phasegate/phasegate/fsm"
)

var readObjectSpec = fsm.ActionSpec{
	Doc:   "Reads fields of another object into result.object; changes nothing. They are at most 8 KiB together, else the step fails (TooLarge). It sees what the manager's role lets it see.",
	Check: fieldsToRead,
	Params: withTarget(map[string]fsm.Param{
		"fields": {Type: fsm.TypeStrings, Doc: "paths of the fields to keep, for example spec.replicas, or spec.containers[*].image; default: metadata.generation and status"},
	}),
	Reads:   &fsm.Target{Param: "fields", Fields: readByDefault},
	Outputs: map[string]fsm.Type{"found": fsm.TypeBool, "object": fsm.TypeObject},
	Shapes:  shapeOfRead,
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
	fields := fieldsOfRead(c.with)
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
	if isSecret(obj.GetAPIVersion(), obj.GetKind()) && secret(path) {
		return fsm.Terminal("SecretRefused", "field %s of %s would be readable in the status: of a Secret, read type, or metadata such as metadata.labels",
			field, title(obj))
	}
	if err := copyField(kept, obj.Object, path); err != nil {
		return fsm.Terminal("BadParameter", "field %s of %s: %w: give a path through objects, and write NAME[*] for each of a list", field, title(obj), err)
	}
	return nil
}

// copyField copies what is at a path. With NAME[*] it goes on in each object of a list; several fields of one list come
// together in its objects.
func copyField(into, from map[string]any, path []string) error {
	at, list := slices.IndexFunc(path, func(name string) bool { return strings.HasSuffix(name, eachOf) }), path
	if at >= 0 {
		list = slices.Clone(path[:at+1])
		list[at] = strings.TrimSuffix(list[at], eachOf)
	}
	value, found, err := unstructured.NestedFieldNoCopy(from, list...)
	if err != nil || !found {
		return err
	}
	if at < 0 || at == len(path)-1 {
		return unstructured.SetNestedField(into, runtime.DeepCopyJSONValue(value), list...)
	}
	items, isList := value.([]any)
	if !isList {
		return fmt.Errorf("%s is no list", strings.Join(list, "."))
	}
	kept, _, err := unstructured.NestedFieldNoCopy(into, list...)
	if err == nil {
		kept, err = copyEach(kept, items, path[at+1:])
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(list, "."), err)
	}
	return unstructured.SetNestedField(into, kept, list...)
}

// copyEach copies what is at a path in each object of a list; kept is what other fields have left of them.
func copyEach(kept any, items []any, path []string) (any, error) {
	copies, _ := kept.([]any)
	for i, item := range items {
		if i >= len(copies) {
			copies = append(copies, map[string]any{})
		}
		object, isObject := item.(map[string]any)
		copied, isCopy := copies[i].(map[string]any)
		if !isObject || !isCopy {
			return nil, errors.New("it holds no objects")
		}
		if err := copyField(copied, object, path); err != nil {
			return nil, err
		}
	}
	return copies, nil
}

// eachOf stands behind the name of a list in a path.
const eachOf = "[*]"

func isSecret(apiVersion, kind string) bool { return apiVersion == "v1" && kind == "Secret" }

func fieldsOfRead(with fsm.Params) []string {
	if fields := with.Strings("fields"); fields != nil {
		return fields
	}
	return readByDefault
}

// fieldsToRead finds fields that no object of the kind has, or that are refused when they are read.
func fieldsToRead(with fsm.Params) []fsm.Misfit {
	all := kindOfTarget(with)
	apiVersion, kind := with.String("apiVersion", ""), with.String("kind", "")
	for i, field := range fieldsOfRead(with) {
		at := "kind"
		if with["fields"] != nil {
			at = fmt.Sprintf("fields.[%d]", i)
		}
		path := strings.Split(field, ".")
		switch {
		case known(field) == "":
		case isSecret(apiVersion, kind) && secret(path):
			return append(all, fsm.Misfit{Path: at, Message: fmt.Sprintf("field %s of a Secret would be readable in the status, and is refused: read type, or metadata such as metadata.labels", field)})
		case with["fields"] == nil: // not every kind has a status
		default:
			if flaw := kubetypes.PathMisfit(apiVersion, kind, path); flaw != nil {
				flaw.Misfit.Path = at
				all = append(all, flaw.Misfit)
			}
		}
	}
	return all
}

// shapeOfRead is what result.object can have: the fields that are read, as far as the kind has them.
func shapeOfRead(with fsm.Params) map[string]fsm.Shape {
	if _, isText := with["fields"].(string); isText {
		return nil // one expression
	}
	apiVersion, kind, fields := with.String("apiVersion", ""), with.String("kind", ""), fieldsOfRead(with)
	return map[string]fsm.Shape{"object": func(path []string) *fsm.Misshape {
		if flaw := kubetypes.PathMisfit(apiVersion, kind, path); flaw != nil {
			return &fsm.Misshape{At: flaw.At, Message: "result.object: " + flaw.Message, Fix: flaw.Fix()}
		}
		if slices.ContainsFunc(fields, func(field string) bool { return known(field) == "" || reads(strings.Split(field, "."), path) }) {
			return nil
		}
		name := strings.Join(path, ".")
		return &fsm.Misshape{Message: fmt.Sprintf("result.object never has %s: the step reads %s", name, strings.Join(fields, ", ")),
			Fix: fmt.Sprintf("add %s to fields: of the step", name)}
	}}
}

// reads tells whether a field that is read has a path in it, or is in what the path leads to. No path goes into a list.
func reads(field, path []string) bool {
	for i := range min(len(field), len(path)) {
		name, isList := strings.CutSuffix(field[i], eachOf)
		if name != path[i] || isList {
			return name == path[i]
		}
	}
	return true
}

// secret tells whether a field may hold what a Secret keeps. Annotations may:
// kubectl apply writes the whole manifest into one.
func secret(path []string) bool {
	if path[0] == "metadata" {
		return len(path) == 1 || path[1] == "annotations"
	}
	return path[0] != "type" && path[0] != "immutable"
}
