package resources

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
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

// KindRegistry is the kind of a registry file.
const KindRegistry = "KindRegistry"

const (
	scopeCluster    = "Cluster"
	scopeNamespaced = "Namespaced"
)

// Mistake is something wrong with the entries of a registry file.
type Mistake struct {
	// Path is the field that is wrong, such as spec.kinds[3].after.
	Path    string
	Message string
	place   string
}

// Error names the entry by its kind too, for those who see no file.
func (m Mistake) Error() string { return m.place + ": " + m.Message }

// Mistakes lists every mistake, not only the first; none when the entries can be used.
func Mistakes(entries []v1alpha1.RegistryKind) []Mistake {
	c := entryChecker{seen: map[string]int{}, names: map[string]bool{}}
	locks := 0
	for _, e := range entries {
		c.names[e.Kind] = true
		if e.Lock {
			locks++
		}
	}
	for i := range entries {
		c.check(i, entries[i])
	}
	if locks != 1 {
		c.list("%d entries say lock: true, exactly one must", locks)
	}
	if _, cycle := copyOrder(entries); cycle != nil {
		c.list("after: is cyclic: %s", strings.Join(cycle, " -> "))
	}
	return c.found
}

type entryChecker struct {
	seen  map[string]int
	names map[string]bool
	found []Mistake
}

// list is about no single entry.
func (c *entryChecker) list(format string, args ...any) {
	c.found = append(c.found, Mistake{Path: "spec.kinds", Message: fmt.Sprintf(format, args...), place: "spec.kinds"})
}

var (
	kindPattern   = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	pluralPattern = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	pathPattern   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\[\])?(\.[A-Za-z_][A-Za-z0-9_]*(\[\])?)*$`)
)

func (c *entryChecker) check(i int, e v1alpha1.RegistryKind) {
	fail := func(field, format string, args ...any) {
		c.found = append(c.found, Mistake{Path: fmt.Sprintf("spec.kinds[%d].%s", i, field), Message: fmt.Sprintf(format, args...),
			place: fmt.Sprintf("spec.kinds[%d] (%s): %s", i, e.Kind, field)})
	}
	c.checkNames(i, e, fail)
	if e.Scope != scopeCluster && e.Scope != scopeNamespaced {
		fail("scope", "is %q, must be %s or %s", e.Scope, scopeCluster, scopeNamespaced)
	}
	if e.Order != "" && e.Order != v1alpha1.OrderCreation {
		fail("order", "is %q, must be %s or absent", e.Order, v1alpha1.OrderCreation)
	}
	for _, dep := range e.After {
		if !c.names[dep] {
			fail("after", "%q is no kind of this file", dep)
		}
	}
	if e.List.PageSize < 0 {
		fail("list.pageSize", "is %d, must not be negative", e.List.PageSize)
	}
	if _, err := labels.Parse(e.List.Selector); err != nil {
		fail("list.selector", "%v", err)
	}
	checkReferences(e, fail)
}

// checkReferences looks at what an entry names inside this package.
func checkReferences(e v1alpha1.RegistryKind, fail func(field, format string, args ...any)) {
	for _, name := range e.Converters {
		if converters[name] == nil {
			fail("converters", "unknown converter %q; known are %s", name, knownNames(converters))
		}
	}
	if _, known := needs[e.Needs]; e.Needs != "" && !known {
		fail("needs", "unknown rule %q; known are %s", e.Needs, knownNames(needs))
	}
	for _, name := range e.Compare.AdmissionDefaults {
		if admissionDefaults[name] == nil {
			fail("compare.admissionDefaults", "unknown name %q; known are %s", name, knownNames(admissionDefaults))
		}
	}
	for _, path := range e.Compare.AbsentIsZero {
		if !pathPattern.MatchString(path) {
			fail("compare.absentIsZero", "%q is no field path such as spec.list[].field", path)
		}
	}
}

func (c *entryChecker) checkNames(i int, e v1alpha1.RegistryKind, fail func(field, format string, args ...any)) {
	kind := newNames(e)
	for _, n := range []struct {
		field, value string
		pattern      *regexp.Regexp
		unique       string
	}{
		{"kind", e.Kind, kindPattern, "v3 kind "},
		{"plural", e.Plural, pluralPattern, "v3 plural "},
		{"v1.kind", kind.V1Kind(), kindPattern, "v1 kind "},
		{"v1.plural", kind.V1Plural(), pluralPattern, "v1 plural "},
	} {
		if !n.pattern.MatchString(n.value) {
			fail(n.field, "is %q, must match %s", n.value, n.pattern)
			continue
		}
		if first, dup := c.seen[n.unique+n.value]; dup {
			fail(n.field, "%q is already that of spec.kinds[%d]", n.value, first)
			continue
		}
		c.seen[n.unique+n.value] = i
	}
}

// newNames is a Kind good only for its names.
func newNames(e v1alpha1.RegistryKind) *Kind {
	v1 := ptr.Deref(e.V1, v1alpha1.RegistryV1Names{})
	return &Kind{entry: e, version: V3Version, v1Kind: cmp.Or(v1.Kind, e.Kind), v1Plural: cmp.Or(v1.Plural, e.Plural)}
}

// newKind needs an entry that was checked.
func newKind(e v1alpha1.RegistryKind) *Kind {
	k := newNames(e)
	k.selector, _ = labels.Parse(e.List.Selector)
	for _, name := range e.Converters {
		k.converters = append(k.converters, converters[name])
	}
	for _, path := range e.Compare.AbsentIsZero {
		k.absentZero = append(k.absentZero, strings.Split(path, "."))
	}
	return k
}
