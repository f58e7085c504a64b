package builtin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/fsm"
)

// found is the record of one object: the fields that this owner has set, and what was there before.
type found struct {
	// UID is that of the patched object: a copy of it has the annotation, too.
	UID    types.UID    `json:"uid"`
	Fields []foundField `json:"fields"`
}

type foundField struct {
	Path []string `json:"path"`
	// Found was there before, and Set is there since; nil: no such field.
	Found any `json:"found,omitempty"`
	Set   any `json:"set,omitempty"`
	// Made is how many of the objects around the field were not there.
	Made int `json:"made,omitempty"`
}

func (f found) text() (string, error) {
	if len(f.Fields) == 0 {
		return "", nil
	}
	data, err := json.Marshal(f)
	return string(data), err
}

// patched is the record with what a patch is about to replace in obj. A field that has what was set before keeps what was found
// then: it is our own value. One that has another value was changed since, or never set: that value is what was found.
func (f found) patched(obj, patch map[string]any) (found, error) {
	next := found{UID: f.UID}
	mine := map[string]bool{}
	for _, x := range leaves(nil, patch) {
		mine[fieldName(x.Path)] = true
		now, missing, err := fieldAt(obj, x.Path)
		if err != nil {
			return f, err
		}
		old := f.field(x.Path)
		switch {
		case old != nil && (same(now, old.Set) || includes(now, x.Set)):
			x.Found, x.Made = old.Found, old.Made
			if includes(old.Set, x.Set) { // as the API server has stored it
				x.Set = old.Set
			}
		case same(now, x.Set):
			continue
		default:
			x.Found, x.Made = now, missing
		}
		next.Fields = append(next.Fields, x)
	}
	for _, x := range f.Fields { // of another effect of this owner
		if !mine[fieldName(x.Path)] {
			next.Fields = append(next.Fields, x)
		}
	}
	slices.SortFunc(next.Fields, func(a, b foundField) int { return slices.Compare(a.Path, b.Path) })
	return next, nil
}

// stored is the record with the values as obj has them, which is what the API server has made of a patch.
func (f found) stored(obj map[string]any) found {
	next := found{UID: f.UID, Fields: slices.Clone(f.Fields)}
	for i := range next.Fields {
		if now, _, err := fieldAt(obj, next.Fields[i].Path); err == nil && includes(now, next.Fields[i].Set) {
			next.Fields[i].Set = now
		}
	}
	return next
}

// putBack changes obj to what was found in the fields of a patch. It answers the rest of the record, and the fields that have
// neither what was set nor what was found.
func (f found) putBack(obj, patch map[string]any) (rest found, changed []string) {
	rest = found{UID: f.UID}
	back := map[string]bool{}
	for _, x := range leaves(nil, patch) {
		back[fieldName(x.Path)] = true
	}
	for _, x := range f.Fields {
		now, _, err := fieldAt(obj, x.Path)
		switch {
		case !back[fieldName(x.Path)]:
			rest.Fields = append(rest.Fields, x)
		case err == nil && same(now, x.Found):
		case err != nil || !same(now, x.Set):
			changed = append(changed, fieldName(x.Path))
		case x.Found == nil:
			remove(obj, x.Path, x.Made)
		default:
			if unstructured.SetNestedField(obj, x.Found, x.Path...) != nil { // what was an object is something else
				changed = append(changed, fieldName(x.Path))
			}
		}
	}
	return rest, changed
}

func (f found) field(path []string) *foundField {
	for i := range f.Fields {
		if slices.Equal(f.Fields[i].Path, path) {
			return &f.Fields[i]
		}
	}
	return nil
}

// leaves are the fields that a merge patch sets: what is no object is set whole.
func leaves(above []string, patch map[string]any) (all []foundField) {
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		path := append(slices.Clone(above), key)
		if fields, is := patch[key].(map[string]any); is {
			all = append(all, leaves(path, fields)...)
		} else {
			all = append(all, foundField{Path: path, Set: patch[key]})
		}
	}
	return all
}

// fieldAt is the value at a path, nil for none, and how many of the objects around it are missing.
func fieldAt(obj map[string]any, path []string) (value any, missing int, err error) {
	for i, key := range path {
		value = obj[key]
		if i == len(path)-1 || value == nil {
			return value, len(path) - 1 - i, nil
		}
		fields, is := value.(map[string]any)
		if !is {
			return nil, 0, fsm.Terminal("InvalidPatch", "%s is no object there: it cannot be put back field by field: patch it whole, or name a release that says the values", fieldName(path[:i+1]))
		}
		obj = fields
	}
	return nil, 0, nil
}

// remove removes a field, and as many of the objects around it as are empty then.
func remove(obj map[string]any, path []string, around int) {
	last := len(path) - 1
	parent := obj
	for _, key := range path[:last] {
		parent, _ = parent[key].(map[string]any)
	}
	if delete(parent, path[last]); around > 0 && len(parent) == 0 {
		remove(obj, path[:last], around-1)
	}
}

func fieldName(path []string) string { return strings.Join(path, ".") }

func same(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

// includes tells whether the API server may have made a value of what was set: with defaults in the objects of a list, or with a
// number or quantity in another form.
func includes(now, set any) bool {
	switch s := set.(type) {
	case map[string]any:
		n, is := now.(map[string]any)
		for key, value := range s {
			is = is && includes(n[key], value)
		}
		return is
	case []any:
		n, is := now.([]any)
		is = is && len(n) == len(s)
		for i := range s {
			is = is && includes(n[i], s[i])
		}
		return is
	}
	return sameAmount(fmt.Sprint(now), fmt.Sprint(set))
}

// sameAmount tells whether two values are written alike, or are one quantity: 1 and 1000m.
func sameAmount(now, set string) bool {
	a, notOne := resource.ParseQuantity(now)
	b, notOther := resource.ParseQuantity(set)
	return now == set || notOne == nil && notOther == nil && a.Cmp(b) == 0
}
