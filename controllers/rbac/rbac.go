// Package rbac is what a program must be allowed to do, as data: which right, who
// needs it, the rules of a role that grant it, and the question to an API server
// what of it is missing.
//
// It knows no controller and no machine: those say what they need next to the work
// that needs it (runner.Action, runner.Guard, runner.Program).
package rbac

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Need is one right, and who needs it.
type Need struct {
	Group string
	// Resource is a plural, with its subresource if it has one: "pods/attach".
	Resource string
	// Name of the one object that the right is about; empty: of all.
	Name string
	// Namespace is the only one in which the right is needed; empty: in all. Roles
	// of a cluster cannot say it; Missing asks with it.
	Namespace string
	Verb      string
	// URL is a path of the API server that is no resource, such as "/metrics"; the others are empty then.
	URL string
	// For names those who need it: actions, guards, watches.
	For []string
}

// String is the right in words: "delete customresourcedefinitions.apiextensions.k8s.io
// tiers.crd.projectcalico.org".
func (n Need) String() string {
	text := n.Verb + " " + n.Resource + n.URL
	if n.Group != "" {
		text += "." + n.Group
	}
	if n.Name != "" {
		text += " " + n.Name
	}
	if n.Namespace != "" {
		text += " in namespace " + n.Namespace
	}
	return text
}

// Rule is a rule for one resource. Verbs are separated by blanks.
func Rule(verbs, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: strings.Fields(verbs)}
}

// URL is a rule for a path of the API server that is no resource.
func URL(verbs, url string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{NonResourceURLs: []string{url}, Verbs: strings.Fields(verbs)}
}

// Flatten lists the single rights that rules give, for who.
func Flatten(who string, rules ...rbacv1.PolicyRule) []Need {
	var needs []Need
	for _, rule := range rules {
		for _, url := range rule.NonResourceURLs {
			for _, verb := range rule.Verbs {
				needs = append(needs, Need{URL: url, Verb: verb, For: []string{who}})
			}
		}
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						needs = append(needs, Need{Group: group, Resource: resource, Name: name, Verb: verb, For: []string{who}})
					}
				}
			}
		}
	}
	return needs
}

// Union sorts needs, and leaves each once, for all who need it.
func Union(lists ...[]Need) []Need {
	sorted := slices.Concat(lists...)
	slices.SortStableFunc(sorted, compare)
	return fold(sorted, func(a, b Need) bool { return compare(a, b) == 0 })
}

// Without are the needs that others do not have, whoever needs them.
func Without(needs, others []Need) []Need {
	return slices.DeleteFunc(slices.Clone(needs), func(n Need) bool {
		return slices.ContainsFunc(others, func(o Need) bool { return o.String() == n.String() })
	})
}

// ByTarget makes one of those that are about the same objects and stand beside each
// other, with all verbs: for people.
func ByTarget(needs []Need) []Need {
	return fold(needs, func(a, b Need) bool {
		a.Verb, b.Verb = "", ""
		return compare(a, b) == 0
	})
}

// fold makes one of those that are the same and stand beside each other, with all verbs, for all who need it.
func fold(needs []Need, same func(a, b Need) bool) []Need {
	var all []Need
	for _, n := range needs {
		n.For = slices.Clone(n.For)
		if last := len(all) - 1; last >= 0 && same(all[last], n) {
			if n.For = append(all[last].For, n.For...); n.Verb != all[last].Verb {
				n.Verb = all[last].Verb + ", " + n.Verb
			}
			all = all[:last]
		}
		slices.Sort(n.For)
		n.For = slices.Compact(n.For)
		all = append(all, n)
	}
	return all
}

// Only are the needs that nobody but who has, and the others.
func Only(needs []Need, who ...string) (only, others []Need) {
	for _, n := range needs {
		if slices.ContainsFunc(n.For, func(other string) bool { return !slices.Contains(who, other) }) {
			others = append(others, n)
		} else {
			only = append(only, n)
		}
	}
	return only, others
}

// compare leaves out who needs it.
func compare(a, b Need) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.URL, b.URL), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Verb, b.Verb))
}

// Access is what somebody must be allowed to do with objects of a kind.
type Access struct {
	// APIVersion and Kind are empty where they are not known before it is done.
	APIVersion, Kind string
	// Subresource is the part of the objects that is meant, such as status; empty: they themselves.
	Subresource string
	// Name of the one object; empty: any.
	Name string
	// Namespace of the objects; empty: any.
	Namespace string
	Verbs     []string
}

// Resources answers the API group and the plural of a kind.
type Resources func(apiVersion, kind string) (group, resource string)

// Guess answers what Kubernetes would guess from a kind. No API server is asked, so a
// CRD with a plural of its own choice is missed.
func Guess(apiVersion, kind string) (group, resource string) {
	guess, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(apiVersion, kind))
	return guess.Group, guess.Resource
}

// Served answers what an API server serves, and a guess for any other kind.
func Served(mapper meta.RESTMapper) Resources {
	return func(apiVersion, kind string) (group, resource string) {
		gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return Guess(apiVersion, kind)
		}
		return mapping.Resource.Group, mapping.Resource.Resource
	}
}

// Needs are the rights of an access, for who. The name of an object that is to be created
// is not known to the API server when it asks; that of one whose subresource is created is.
func (a Access) Needs(who string, resources Resources) []Need {
	group, resource := resources(a.APIVersion, a.Kind)
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	var needs []Need
	for _, verb := range a.Verbs {
		n := Need{Group: group, Resource: resource, Name: a.Name, Namespace: a.Namespace, Verb: verb, For: []string{who}}
		if verb == "create" && a.Subresource == "" {
			n.Name = ""
		}
		needs = append(needs, n)
	}
	return needs
}
