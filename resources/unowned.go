package resources

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// unowned are the fields of a v3 object that no client has written, as paths from the top, in no order. Admission has
// added them: the API server notes whose it is what a client sends, before it asks admission. A list counts as a
// whole. Nothing is known of an object that nobody owns anything of.
func unowned(obj *unstructured.Unstructured) (paths [][]string) {
	owned := &fieldpath.Set{}
	for _, entry := range obj.GetManagedFields() {
		set, err := fieldSet(entry)
		if err != nil {
			return nil
		}
		owned = owned.Union(set)
	}
	if owned.Empty() {
		return nil
	}
	for field, value := range obj.Object {
		switch field {
		case "apiVersion", "kind", "status":
		case "metadata":
			paths = unownedMetadata(paths, value, owned)
		default:
			paths = unownedBelow(paths, nil, field, value, owned)
		}
	}
	return paths
}

// unownedMetadata looks at what clients write, but for owners, which are repaired by themselves. Of a map it takes the
// entries: the map means nothing.
func unownedMetadata(paths [][]string, value any, owned *fieldpath.Set) [][]string {
	meta, _ := value.(map[string]any)
	in := descend(owned, "metadata")
	for _, field := range []string{"labels", "annotations"} {
		entries, _ := meta[field].(map[string]any)
		for key, value := range entries {
			paths = unownedBelow(paths, []string{"metadata", field}, key, value, descend(in, field))
		}
	}
	if list, there := meta["finalizers"]; there {
		paths = unownedBelow(paths, []string{"metadata"}, "finalizers", list, in)
	}
	return paths
}

// unownedBelow looks at one field. What is owned, and nothing of it, may be a map that is owned as a whole.
func unownedBelow(paths [][]string, parent []string, field string, value any, owned *fieldpath.Set) [][]string {
	element := fieldpath.FieldNameElement(field)
	below, some := owned.Children.Get(element)
	path := append(slices.Clip(parent), field)
	if !some {
		if owned.Members.Has(element) {
			return paths
		}
		return append(paths, path)
	}
	fields, _ := value.(map[string]any)
	for name, child := range fields {
		paths = unownedBelow(paths, path, name, child, below)
	}
	return paths
}

func descend(set *fieldpath.Set, field string) *fieldpath.Set {
	if below, some := set.Children.Get(fieldpath.FieldNameElement(field)); some {
		return below
	}
	return &fieldpath.Set{}
}

// added are the fields that admission has added to have, and that want does not have.
func added(want, have *unstructured.Unstructured) [][]string {
	return slices.DeleteFunc(unowned(have), func(path []string) bool {
		value, _, _ := unstructured.NestedFieldNoCopy(want.Object, path...)
		return value != nil
	})
}

// Added are the fields of the content that admission has added to have, a copy of want; sorted.
func Added(want, have *unstructured.Unstructured) (out []Filled) {
	for _, path := range added(want, have) {
		if path[0] != "metadata" {
			value, _, _ := unstructured.NestedFieldNoCopy(have.Object, path...)
			out = append(out, Filled{Field: shownPath(path), Value: shown(value)})
		}
	}
	slices.SortFunc(out, func(a, b Filled) int { return slices.Compare([]string{a.Field}, []string{b.Field}) })
	return out
}

// KeepAdded gives obj, which is to take the place of live, the fields that admission has added to live: it may add them
// to new objects only. A field below one that obj does not have goes with it. It may be called again.
func KeepAdded(obj, live *unstructured.Unstructured) {
	for _, path := range added(obj, live) {
		parent := path[:len(path)-1]
		if _, there, _ := unstructured.NestedMap(obj.Object, parent...); !there && path[0] != "metadata" {
			continue
		}
		if value, there, _ := unstructured.NestedFieldNoCopy(live.Object, path...); there {
			_ = unstructured.SetNestedField(obj.Object, runtime.DeepCopyJSONValue(value), path...) // the parent is a map
		}
	}
}
