package resources

import (
	"crypto/sha256"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
)

const (
	// MigratedByAnnotation marks a v3 object that a migration created; its value is the migration's UID.
	MigratedByAnnotation = "migration.projectcalico.org/migrated-by"
	// CopiedVersionAnnotation on a v3 object that a migration created tells of which v1 object it is a copy, see
	// CopiedVersion. It is how a change of v1, or of our rules, is told from a change of the copy.
	CopiedVersionAnnotation = "migration.projectcalico.org/copied-version"
)

// Bookkeeping are annotations that say how an object was written, not what it is.
var Bookkeeping = []string{MigratedByAnnotation, CopiedVersionAnnotation, migrationv1.AnnotationBarrier, "kubectl.kubernetes.io/last-applied-configuration"}

// canonical is what two v3 objects that mean the same have in common, without some fields. It is for comparison only:
// nothing of it is ever written. The argument stays as it is.
func canonical(kind *Kind, schema *Schema, obj *unstructured.Unstructured, without [][]string) map[string]any {
	content := contentOf(kind, schema, obj)
	meta := canonicalMetadata(kind, obj)
	content["metadata"] = meta // a default may belong into the labels
	for _, path := range without {
		unstructured.RemoveNestedField(content, path...)
	}
	var structural *structuralschema.Structural
	if schema != nil {
		structural = schema.structural
		fillIn(content, structural)
	}
	if spec, ok := content["spec"].(map[string]any); ok {
		for _, name := range kind.entry.Compare.AdmissionDefaults {
			admissionDefaults[name](content, spec)
		}
		if spec["stagedAction"] == stagedDelete { // nobody reads its types, and admission writes some
			delete(spec, "types")
			delete(spec, "policyTypes")
		}
	}
	delete(content, "metadata")
	if kind.HasStatus(schema) {
		delete(content, "status") // a schema may have a default for it
	}
	for _, path := range kind.absentZero {
		dropZero(content, path)
	}
	out := canonicalValue(content, structural).(map[string]any)
	out["metadata"] = meta
	return out
}

// canonicalStatus is canonical of a status that takes a write of its own.
func canonicalStatus(schema *Schema, status map[string]any) map[string]any {
	own := runtime.DeepCopyJSON(status)
	if own == nil {
		own = map[string]any{}
	}
	var structural *structuralschema.Structural
	if schema != nil {
		if of, known := schema.structural.Properties["status"]; known {
			structural = &of
			fillIn(own, structural)
		}
	}
	return canonicalValue(own, structural).(map[string]any)
}

// StatusDigest is Digest of a status that takes a write of its own.
func StatusDigest(schema *Schema, status map[string]any) [sha256.Size]byte {
	return sha256.Sum256(encoded(canonicalStatus(schema, status)))
}

// contentOf is a deep copy of what is neither metadata nor a status with writers of its own.
func contentOf(kind *Kind, schema *Schema, obj *unstructured.Unstructured) map[string]any {
	content := make(map[string]any, len(obj.Object))
	for field, value := range obj.Object {
		if field == "apiVersion" || field == "kind" || field == "metadata" || field == "status" && kind.HasStatus(schema) {
			continue
		}
		content[field] = runtime.DeepCopyJSONValue(value)
	}
	return content
}

// canonicalMetadata keeps the metadata that matters: labels, annotations, finalizers and owners. A map
// without an entry is there all the same, so that a difference is named by the entry.
func canonicalMetadata(kind *Kind, obj *unstructured.Unstructured) map[string]any {
	annotations := obj.GetAnnotations()
	for _, key := range Bookkeeping {
		delete(annotations, key)
	}
	meta := map[string]any{
		"labels": toAnyMap(obj.GetLabels()), "annotations": toAnyMap(annotations),
		"ownerReferences": canonicalOwners(obj.GetOwnerReferences()),
	}
	finalizers := slices.DeleteFunc(obj.GetFinalizers(), kind.ControllerFinalizer)
	if len(finalizers) > 0 {
		slices.Sort(finalizers)
		meta["finalizers"] = toAny(finalizers)
	}
	return meta
}

// canonicalOwners is keyed by UID: the order of owners means nothing.
func canonicalOwners(refs []metav1.OwnerReference) map[string]any {
	out := map[string]any{}
	for _, ref := range refs {
		out[string(ref.UID)] = map[string]any{
			"apiVersion": ref.APIVersion, "kind": ref.Kind, "name": ref.Name,
			"controller":         ref.Controller != nil && *ref.Controller,
			"blockOwnerDeletion": ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion,
		}
	}
	return out
}

// canonicalValue drops null fields, brings numbers and times to one form and sorts sets, in place.
func canonicalValue(value any, schema *structuralschema.Structural) any {
	switch value := value.(type) {
	case map[string]any:
		for field, child := range value {
			if child == nil {
				delete(value, field)
				continue
			}
			value[field] = canonicalValue(child, subSchema(schema, field, child))
		}
		return value
	case []any:
		var items *structuralschema.Structural
		if schema != nil {
			items = schema.Items
		}
		for i := range value {
			value[i] = canonicalValue(value[i], items)
		}
		if schema != nil && schema.XListType != nil && *schema.XListType == "set" {
			slices.SortFunc(value, func(a, b any) int { return slices.Compare(encoded(a), encoded(b)) })
		}
		return value
	case float64:
		return canonicalNumber(value)
	case string:
		return canonicalTime(value)
	}
	return value
}

// subSchema answers nil for a scalar as well: its form depends on no schema, and most fields are scalars.
func subSchema(schema *structuralschema.Structural, field string, child any) *structuralschema.Structural {
	if schema == nil || isScalar(child) {
		return nil
	}
	sub, _ := fieldSchema(schema, field)
	return sub
}

// canonicalNumber makes 1e+06 and 1000000 equal. Beyond 2^53 a float no longer names one integer.
func canonicalNumber(f float64) any {
	const exact = 1 << 53
	if f == math.Trunc(f) && math.Abs(f) <= exact {
		return int64(f)
	}
	return f
}

// canonicalTime makes two spellings of one instant equal. Anything that reads as a time with a zone is
// taken for one: two strings that name the same instant mean the same in any field of a Calico object.
func canonicalTime(s string) string {
	const shortest = len("2006-01-02T15:04:05Z")
	if len(s) < shortest || s[4] != '-' || s[10] != 'T' {
		return s
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return s
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// dropZero removes the field at path, for every item where the path goes through a list, if its value
// is the zero of its type.
func dropZero(value any, path []string) {
	fields, ok := value.(map[string]any)
	if !ok {
		return
	}
	name, isList := strings.CutSuffix(path[0], "[]")
	child, ok := fields[name]
	switch {
	case !ok:
	case len(path) == 1:
		if isZero(child) {
			delete(fields, name)
		}
	case isList:
		items, _ := child.([]any)
		for _, item := range items {
			dropZero(item, path[1:])
		}
	default:
		dropZero(child, path[1:])
	}
}

func isZero(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return isEmptyScalar(value)
}

// Digest is equal for two v3 objects that mean the same under the same schema, and only for them. What admission has
// added is no part of it.
func Digest(kind *Kind, schema *Schema, obj *unstructured.Unstructured) [sha256.Size]byte {
	return sha256.Sum256(encoded(canonical(kind, schema, obj, unowned(obj))))
}

// encoded sorts the keys of maps. It cannot fail: the value came out of JSON.
func encoded(value any) []byte {
	data, _ := json.Marshal(value)
	return data
}

func toAny(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}
