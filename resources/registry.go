package resources

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

//go:embed kinds.yaml
var embedded []byte

// Registry is the list of kinds that a migration carries. It is immutable and safe for concurrent use.
type Registry struct {
	kinds  []*Kind
	lock   *Kind
	byName map[string]*Kind
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
	var read v1alpha1.KindRegistry
	if err := yaml.UnmarshalStrict(data, &read); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if read.APIVersion != v1alpha1.APIVersion || read.Kind != KindRegistry {
		return nil, fmt.Errorf("%s: apiVersion and kind are %q and %q, must be %q and %q", file, read.APIVersion, read.Kind, v1alpha1.APIVersion, KindRegistry)
	}
	entries := read.Spec.Kinds
	var errs []error
	for _, m := range Mistakes(entries) {
		errs = append(errs, fmt.Errorf("%s: %w", file, m))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	reg := &Registry{byName: map[string]*Kind{}}
	order, _ := copyOrder(entries)
	for _, i := range order {
		reg.add(newKind(entries[i]))
	}
	return reg, nil
}

func (r *Registry) add(kind *Kind) {
	r.byName[kind.Name()] = kind
	if kind.entry.Lock {
		r.lock = kind
		return
	}
	r.kinds = append(r.kinds, kind)
}

// Through is the registry whose requests for the v3 side go to another version that the v3 CRDs serve. It
// is the same storage; schemas, owner references and names stay those of v3.
func (r *Registry) Through(version string) *Registry {
	out := &Registry{byName: map[string]*Kind{}}
	for _, kind := range r.All() {
		through := *kind
		through.version = version
		out.add(&through)
	}
	return out
}

// Kinds are the kinds to copy, each behind the kinds it depends on, else in file order. The lock is
// not among them.
func (r *Registry) Kinds() []*Kind { return slices.Clone(r.kinds) }

// Lock is the kind of the datastore lock.
func (r *Registry) Lock() *Kind { return r.lock }

// All are the kinds to copy and the lock.
func (r *Registry) All() []*Kind { return append(r.Kinds(), r.lock) }

// Kind finds a kind, the lock included, by its v3 name.
func (r *Registry) Kind(name string) (*Kind, bool) {
	k, ok := r.byName[name]
	return k, ok
}

// copyOrder sorts entries behind their dependencies and otherwise leaves them as they are. Where after: goes
// round, cycle has the kinds along it, the first again at the end.
func copyOrder(entries []v1alpha1.RegistryKind) (order []int, cycle []string) {
	index := map[string]int{}
	for i, e := range entries {
		index[e.Kind] = i
	}
	const visiting, placed = 1, 2
	state := make([]int, len(entries))
	var place func(i int, path []string)
	place = func(i int, path []string) {
		path = append(slices.Clip(path), entries[i].Kind)
		if state[i] == visiting && cycle == nil {
			cycle = path
		}
		if state[i] != 0 {
			return
		}
		state[i] = visiting
		for _, dep := range entries[i].After {
			if at, known := index[dep]; known {
				place(at, path)
			}
		}
		state[i] = placed
		order = append(order, i)
	}
	for i := range entries {
		place(i, nil)
	}
	return order, cycle
}
