package resources

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FieldDiff is one field in which two objects differ. The values are short forms for people; an absent
// field is "(absent)".
type FieldDiff struct {
	Path string
	Want string // as converted from v1
	Have string // as it is in v3
	// Fixed tells that the API server does not let this field of the v3 object change.
	Fixed bool
}

// maxShown is the length in bytes that a value in a FieldDiff is cut to.
const maxShown = 80

// String is path: want != have.
func (d FieldDiff) String() string {
	text := fmt.Sprintf("%s: %s in v1, %s in v3", d.Path, d.Want, d.Have)
	if d.Fixed {
		text += ", which cannot be changed: delete the v3 object, and it is copied again"
	}
	return text
}

// Diff compares the converted v1 object with the live v3 object and returns the fields in which they
// mean something different, sorted by path; nothing means equal. What admission has added where want says nothing is no
// difference. The schema is that of the v3 CRD, or nil. Owner references are compared as they are: map those of want
// first.
func Diff(kind *Kind, schema *Schema, want, have *unstructured.Unstructured) []FieldDiff {
	return shownAll(differences(kind, schema, want, have))
}

func differences(kind *Kind, schema *Schema, want, have *unstructured.Unstructured) []difference {
	return compare(nil, nil, canonical(kind, schema, want, nil), canonical(kind, schema, have, added(want, have)))
}

// DiffStatus is Diff of two statuses that take a write of their own.
func DiffStatus(schema *Schema, want, have map[string]any) []FieldDiff {
	return shownAll(compare(nil, []string{"status"}, canonicalStatus(schema, want), canonicalStatus(schema, have)))
}

// difference is one field in which two objects differ.
type difference struct {
	steps      []string // down to it; an item of a list is "[i]"
	want, have any
}

func shownAll(all []difference) (out []FieldDiff) {
	for _, d := range all {
		out = append(out, FieldDiff{Path: shownPath(d.steps), Want: shown(d.want), Have: shown(d.have)})
	}
	return out
}

func shownPath(steps []string) (path string) {
	for _, step := range steps {
		path = join(path, step)
	}
	return path
}

// absent stands for a field that is not there; no JSON value equals it.
type absent struct{}

// compare adds to found the fields below steps in which two values differ.
func compare(found []difference, steps []string, want, have any) []difference {
	if want, ok := want.(map[string]any); ok {
		if have, ok := have.(map[string]any); ok {
			names := maps.Clone(want)
			maps.Copy(names, have)
			for _, name := range slices.Sorted(maps.Keys(names)) {
				found = compare(found, below(steps, name), fieldOf(want, name), fieldOf(have, name))
			}
			return found
		}
	}
	if want, ok := want.([]any); ok {
		if have, ok := have.([]any); ok && len(want) == len(have) {
			for i := range want {
				found = compare(found, below(steps, fmt.Sprintf("[%d]", i)), want[i], have[i])
			}
			return found
		}
	}
	_, wantAbsent := want.(absent)
	_, haveAbsent := have.(absent)
	if wantAbsent == haveAbsent && bytes.Equal(encoded(want), encoded(have)) {
		return found
	}
	return append(found, difference{steps: steps, want: want, have: have})
}

// below never shares the array of steps, which several fields have in common.
func below(steps []string, step string) []string { return append(slices.Clip(steps), step) }

func fieldOf(m map[string]any, name string) any {
	if value, ok := m[name]; ok {
		return value
	}
	return absent{}
}

// join quotes names that a dotted path could not hold, such as label keys.
func join(path, name string) string {
	if strings.HasPrefix(name, "[") { // an index
		return path + name
	}
	if strings.ContainsAny(name, "./[]") {
		return fmt.Sprintf("%s[%q]", path, name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func shown(value any) string {
	if _, ok := value.(absent); ok {
		return "(absent)"
	}
	s := string(encoded(value))
	if len(s) > maxShown {
		return strings.ToValidUTF8(s[:maxShown], "") + "..."
	}
	return s
}

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

// OwnsStatus tells that the entry is of a write of the status, by whichever path.
func OwnsStatus(entry metav1.ManagedFieldsEntry) bool {
	_, owns := fieldsOf(entry)["f:status"]
	return owns || entry.Subresource == "status"
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
