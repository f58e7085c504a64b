package rbac

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Merge is the shortest list of rules that is easy to read, and grants the needs
// and nothing else: those of a role for the whole cluster, so that namespaces do not
// count. A right to all objects of a resource makes one to a single of them needless,
// and one to all resources of a group ("*") those to a single resource.
func Merge(needs []Need) []rbacv1.PolicyRule {
	verbs := verbsOf(needs)
	for t := range verbs {
		for _, all := range []target{{group: t.group, resource: t.resource, url: t.url}, {group: t.group, resource: "*", url: t.url}} {
			if t != all {
				verbs[t] = slices.DeleteFunc(verbs[t], func(verb string) bool { return slices.Contains(verbs[all], verb) })
			}
		}
	}
	// Names that one verb list is for; then resources that one list of names is for.
	var rules, urls []rbacv1.PolicyRule
	for t, list := range verbs {
		switch {
		case len(list) == 0:
		case t.url != "":
			urls = append(urls, URL(strings.Join(list, " "), t.url))
		default:
			rules = append(rules, Rule(strings.Join(list, " "), t.group, t.resource, named(t.name)...))
		}
	}
	rules = join(rules, func(r *rbacv1.PolicyRule) *[]string { return &r.ResourceNames })
	rules = join(rules, func(r *rbacv1.PolicyRule) *[]string { return &r.Resources })
	return append(rules, join(urls, func(r *rbacv1.PolicyRule) *[]string { return &r.NonResourceURLs })...)
}

// target is what a right is to.
type target struct{ group, resource, name, url string }

// verbsOf are the verbs for each target, sorted.
func verbsOf(needs []Need) map[target][]string {
	verbs := map[target][]string{}
	for _, n := range needs {
		t := target{n.Group, n.Resource, n.Name, n.URL}
		if at, found := slices.BinarySearch(verbs[t], n.Verb); !found {
			verbs[t] = slices.Insert(verbs[t], at, n.Verb)
		}
	}
	return verbs
}

func named(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// join makes one rule of those that differ in one list only. A rule without names
// is about all objects, and is joined with others of its kind only.
func join(rules []rbacv1.PolicyRule, list func(*rbacv1.PolicyRule) *[]string) []rbacv1.PolicyRule {
	joined := map[string]*rbacv1.PolicyRule{}
	for _, rule := range rules {
		rest := rule
		*list(&rest) = nil
		key := describe(rest, len(rule.ResourceNames) > 0)
		if joined[key] == nil {
			joined[key] = &rest
		}
		into := list(joined[key])
		*into = append(*into, *list(&rule)...)
	}
	all := make([]rbacv1.PolicyRule, 0, len(joined))
	for _, rule := range joined {
		slices.Sort(*list(rule))
		all = append(all, *rule)
	}
	slices.SortFunc(all, func(a, b rbacv1.PolicyRule) int { return cmp.Compare(describe(a, true), describe(b, true)) })
	return all
}

// describe is a key: equal for equal rules, and sorted by what people look for.
func describe(r rbacv1.PolicyRule, hasNames bool) string {
	parts := []string{strings.Join(r.APIGroups, ","), strings.Join(r.Resources, ","), strings.Join(r.ResourceNames, ","), strings.Join(r.Verbs, ",")}
	if hasNames {
		parts = append(parts, "named")
	}
	return strings.Join(parts, "\x00")
}
