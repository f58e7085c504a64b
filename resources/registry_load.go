package resources

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

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
