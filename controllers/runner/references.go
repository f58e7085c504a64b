package runner

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// references are which objects name which others, as the last pass over each has read it. A spec that nobody has
// read yet needs no entry: the pass that it waits for reads what it names.
type references struct {
	// read are the functions of Reference, by kind.
	read map[schema.GroupKind]func(*unstructured.Unstructured) string

	mu sync.Mutex
	by map[reference]map[types.NamespacedName]bool
	of map[types.NamespacedName][]reference
}

// reference is what a spec names.
type reference struct {
	schema.GroupKind
	types.NamespacedName
}

func newReferences[T Object[T]](kinds []Reference[T]) *references {
	r := &references{read: map[schema.GroupKind]func(*unstructured.Unstructured) string{},
		by: map[reference]map[types.NamespacedName]bool{}, of: map[types.NamespacedName][]reference{}}
	for _, k := range kinds {
		r.read[schema.FromAPIVersionAndKind(k.APIVersion, k.Kind).GroupKind()] = k.Read
	}
	return r
}

// put forgets an object that names nothing; r may be nil.
func (r *references) put(key types.NamespacedName, now []reference) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(r.of[key], now) {
		return
	}
	for _, ref := range r.of[key] {
		if delete(r.by[ref], key); len(r.by[ref]) == 0 {
			delete(r.by, ref)
		}
	}
	delete(r.of, key)
	for _, ref := range now {
		if r.by[ref] == nil {
			r.by[ref] = map[types.NamespacedName]bool{}
		}
		r.by[ref][key], r.of[key] = true, now
	}
}

// naming are the objects that name another one.
func (r *references) naming(ref reference) (keys []types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.by[ref] {
		keys = append(keys, key)
	}
	return keys
}

// readOf is nil for a kind that no spec names; r may be nil.
func (r *references) readOf(kind schema.GroupKind) func(*unstructured.Unstructured) string {
	if r == nil {
		return nil
	}
	return r.read[kind]
}

// Reference is a kind of objects that specs name, each in the namespace of its own object.
type Reference[T Object[T]] struct {
	APIVersion, Kind string
	// Names are those that the spec of an object names.
	Names func(T) []string
	// Read is what actions read of a named object besides its spec: no other change of its status or metadata wakes
	// anybody.
	Read func(*unstructured.Unstructured) string
}
