package datastoremigration

import (
	"fmt"
	"slices"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/phasegate/phasegate/resources"
)

// apis asks what the API server serves.
type apis struct {
	cluster

	discovery discovery.DiscoveryInterface
}

// discover answers what a group serves: the versions of each resource, the best first.
func (a *apis) discover(group string) (map[string][]metav1.APIResource, error) {
	groups, err := a.discovery.ServerGroups()
	if err != nil {
		return nil, fmt.Errorf("ask which API groups are served: %w", err)
	}
	i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == group })
	if i < 0 {
		return nil, nil
	}
	served := map[string][]metav1.APIResource{}
	for _, version := range groups.Groups[i].Versions {
		list, err := a.discovery.ServerResourcesForGroupVersion(version.GroupVersion)
		if apierrs.IsNotFound(err) {
			continue // its last CRD went a moment ago
		}
		if err != nil {
			return nil, fmt.Errorf("ask what %s serves: %w", version.GroupVersion, err)
		}
		for _, r := range list.APIResources {
			r.Group, r.Version = group, version.Version
			served[r.Name] = append(served[r.Name], r)
		}
	}
	return served, nil
}

// foreignV1 are the resources of the v1 group that no entry of the registry covers,
// by plural.
func (a *apis) foreignV1() (map[string]schema.GroupVersionKind, error) {
	served, err := a.discover(resources.V1Group)
	if err != nil {
		return nil, err
	}
	known := namesOf(a.registry.All(), (*resources.Kind).V1Plural)
	foreign := map[string]schema.GroupVersionKind{}
	for plural, versions := range served {
		if best := versions[0]; !slices.Contains(known, plural) && slices.Contains(best.Verbs, "list") { // subresources cannot be listed
			foreign[plural] = schema.GroupVersionKind{Group: best.Group, Version: best.Version, Kind: best.Kind}
		}
	}
	return foreign, nil
}
