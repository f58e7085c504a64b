package rbac

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Access is what somebody must be allowed to do with objects of a kind.
type Access struct {
	// APIVersion and Kind are empty where they are not known before it is done.
	APIVersion, Kind string
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
// is not known to the API server when it asks.
func (a Access) Needs(who string, resources Resources) []Need {
	group, resource := resources(a.APIVersion, a.Kind)
	var needs []Need
	for _, verb := range a.Verbs {
		n := Need{Group: group, Resource: resource, Name: a.Name, Namespace: a.Namespace, Verb: verb, For: []string{who}}
		if verb == "create" {
			n.Name = ""
		}
		needs = append(needs, n)
	}
	return needs
}
