package resources

import (
	_ "embed"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

//go:embed kinds.yaml
var embedded []byte

// Registry is the list of kinds that a migration carries. It is immutable and safe for concurrent use.
type Registry struct {
	kinds  []*Kind
	lock   *Kind
	byName map[string]*Kind
	byV1   map[string]*Kind
}

// Default is the registry that is built in.
var Default = sync.OnceValue(func() *Registry {
	reg, err := LoadRegistry("kinds.yaml", embedded)
	if err != nil {
		panic(err) // the embedded file is part of the program; a test loads it
	}
	return reg
})

// LoadRegistry reads a registry file strictly. The error names the file, the entry and the field.
func LoadRegistry(file string, data []byte) (*Registry, error) {
	entries, err := decodeRegistry(file, data)
	if err != nil {
		return nil, err
	}
	if err := checkEntries(file, entries); err != nil {
		return nil, err
	}
	reg := &Registry{byName: map[string]*Kind{}, byV1: map[string]*Kind{}}
	for _, i := range copyOrder(entries) {
		reg.add(newKind(entries[i]))
	}
	return reg, nil
}

func (r *Registry) add(kind *Kind) {
	r.byName[kind.Name()] = kind
	r.byV1[kind.V1Kind()] = kind
	if kind.entry.Lock {
		r.lock = kind
		return
	}
	r.kinds = append(r.kinds, kind)
}

// Through is the registry whose requests for the v3 side go to another version that the v3 CRDs serve. It
// is the same storage; schemas, owner references and names stay those of v3.
func (r *Registry) Through(version string) *Registry {
	out := &Registry{byName: map[string]*Kind{}, byV1: map[string]*Kind{}}
	for _, kind := range r.All() {
		through := *kind
		through.version = version
		out.add(&through)
	}
	return out
}

// Kinds are the kinds to copy, each behind the kinds it depends on, else in file order. The lock is
// not among them.
func (r *Registry) Kinds() []*Kind { return append([]*Kind(nil), r.kinds...) }

// Lock is the kind of the datastore lock.
func (r *Registry) Lock() *Kind { return r.lock }

// All are the kinds to copy and the lock.
func (r *Registry) All() []*Kind { return append(r.Kinds(), r.lock) }

// Kind finds a kind, the lock included, by its v3 name.
func (r *Registry) Kind(name string) (*Kind, bool) {
	k, ok := r.byName[name]
	return k, ok
}

// ByGVK finds a kind, the lock included, by its name in either group, whatever the version.
func (r *Registry) ByGVK(gvk schema.GroupVersionKind) (*Kind, bool) {
	switch gvk.Group {
	case V3Group:
		return r.Kind(gvk.Kind)
	case V1Group:
		k, ok := r.byV1[gvk.Kind]
		return k, ok
	}
	return nil, false
}

// copyOrder sorts entries behind their dependencies and otherwise leaves them as they are. The entries
// were checked: every dependency exists and there is no cycle.
func copyOrder(entries []v1alpha1.RegistryKind) []int {
	index := map[string]int{}
	for i, e := range entries {
		index[e.Kind] = i
	}
	var order []int
	placed := make([]bool, len(entries))
	var place func(i int)
	place = func(i int) {
		if placed[i] {
			return
		}
		placed[i] = true
		for _, dep := range entries[i].After {
			place(index[dep])
		}
		order = append(order, i)
	}
	for i := range entries {
		place(i)
	}
	return order
}
