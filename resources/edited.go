package resources

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Edited is what of Diff others than manager have done to have since manager wrote it: fields that
// another manager owns now, and, if unchanged says that want is what manager wrote then, what is no
// longer there. What is left is the work of manager's own write: v1 as it was, or what admission made
// of it, which nobody owns. Writers of the status are nobody here.
func Edited(kind *Kind, schema *Schema, want, have *unstructured.Unstructured, manager string, unchanged bool) []FieldDiff {
	var others []map[string]any
	for _, entry := range have.GetManagedFields() {
		if fields := fieldsOf(entry); entry.Manager != manager && entry.Subresource == "" && len(fields) > 0 {
			others = append(others, fields)
		}
	}
	return shownAll(slices.DeleteFunc(differences(kind, schema, want, have), func(d difference) bool {
		theirs := slices.ContainsFunc(others, func(fields map[string]any) bool { return owns(fields, d.steps) })
		return !theirs && !(unchanged && d.lost())
	}))
}

func fieldsOf(entry metav1.ManagedFieldsEntry) map[string]any {
	fields := map[string]any{}
	if entry.FieldsV1 != nil {
		_ = json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) // what the server wrote; nothing of it is nobody's
	}
	return fields
}

// owns tells whether fields, in the form of managedFields, has something at the end of the steps. Of
// the items of a list it tells no more than that there is one.
func owns(fields map[string]any, steps []string) bool {
	for _, step := range steps {
		if len(fields) == 0 {
			return true // owned as a whole
		}
		child, ok := fields["f:"+step].(map[string]any)
		if !ok {
			return hasItems(fields)
		}
		fields = child
	}
	return true
}

func hasItems(fields map[string]any) bool {
	for key := range fields {
		if key != "." && !strings.HasPrefix(key, "f:") {
			return true
		}
	}
	return false
}

// lost tells whether something that is wanted is not there; another value in its place is there.
func (d difference) lost() bool {
	if _, gone := d.have.(absent); gone {
		return true
	}
	have, isList := d.have.([]any)
	want, wasList := d.want.([]any)
	if !isList || !wasList {
		return false
	}
	for _, item := range want {
		if !slices.ContainsFunc(have, func(other any) bool { return slices.Equal(encoded(item), encoded(other)) }) {
			return true
		}
	}
	return false
}

// Altered is what of Diff somebody has to know who takes have for a copy of want: all but what was added to the metadata.
func Altered(kind *Kind, schema *Schema, want, have *unstructured.Unstructured) []FieldDiff {
	return shownAll(slices.DeleteFunc(differences(kind, schema, want, have), func(d difference) bool {
		return d.steps[0] == "metadata" && d.added()
	}))
}

// added tells whether all that is wanted is there, and something else besides.
func (d difference) added() bool {
	_, none := d.want.(absent)
	_, isList := d.want.([]any)
	return none || isList && !d.lost()
}

func isIndex(step string) bool { return strings.HasPrefix(step, "[") }
