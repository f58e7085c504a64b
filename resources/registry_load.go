package resources

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// KindRegistry is the kind of a registry file.
const KindRegistry = "KindRegistry"

const (
	scopeCluster    = "Cluster"
	scopeNamespaced = "Namespaced"
)

// rawRegistry is a KindRegistry whose entries are decoded one by one, so that an error can name the
// entry it is in.
type rawRegistry struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   v1alpha1.FileMeta `json:"metadata"`
	Spec       struct {
		Kinds []json.RawMessage `json:"kinds"`
	} `json:"spec"`
}

func decodeRegistry(file string, data []byte) ([]v1alpha1.RegistryKind, error) {
	var raw rawRegistry
	if err := yaml.UnmarshalStrict(data, &raw); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if raw.APIVersion != v1alpha1.APIVersion || raw.Kind != KindRegistry {
		return nil, fmt.Errorf("%s: apiVersion and kind are %q and %q, must be %q and %q",
			file, raw.APIVersion, raw.Kind, v1alpha1.APIVersion, KindRegistry)
	}
	var entries []v1alpha1.RegistryKind
	var errs []error
	for i, rawEntry := range raw.Spec.Kinds {
		var entry v1alpha1.RegistryKind
		if err := yaml.UnmarshalStrict(rawEntry, &entry); err != nil {
			var named struct {
				Kind string `json:"kind"`
			}
			_ = json.Unmarshal(rawEntry, &named) // the name only makes the error easier to find
			errs = append(errs, fmt.Errorf("%s: spec.kinds[%d] (%s): %w", file, i, named.Kind, err))
			continue
		}
		entries = append(entries, entry)
	}
	return entries, errors.Join(errs...)
}

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
	if cycle := findCycle(entries); cycle != nil {
		c.list("after: is cyclic: %s", strings.Join(cycle, " -> "))
	}
	return c.found
}

func checkEntries(file string, entries []v1alpha1.RegistryKind) error {
	var errs []error
	for _, p := range Mistakes(entries) {
		errs = append(errs, fmt.Errorf("%s: %w", file, p))
	}
	return errors.Join(errs...)
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
func newNames(e v1alpha1.RegistryKind) *Kind { return &Kind{entry: e, version: V3Version} }

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

// findCycle returns the kinds along one cycle of after:, the first again at the end, or nil.
func findCycle(entries []v1alpha1.RegistryKind) []string {
	after := map[string][]string{}
	for _, e := range entries {
		after[e.Kind] = e.After
	}
	const visiting, done = 1, 2
	state := map[string]int{}
	var path []string
	var visit func(kind string) []string
	visit = func(kind string) []string {
		path = append(path, kind)
		defer func() { path = path[:len(path)-1] }()
		if state[kind] == visiting {
			return append([]string(nil), path...)
		}
		if state[kind] == done {
			return nil
		}
		state[kind] = visiting
		for _, dep := range after[kind] {
			if cycle := visit(dep); cycle != nil {
				return cycle
			}
		}
		state[kind] = done
		return nil
	}
	for _, e := range entries {
		if cycle := visit(e.Kind); cycle != nil {
			return cycle
		}
	}
	return nil
}
