package fakeapiserver

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/resources"
)

const groupVersion = resources.V3Group + "/" + resources.V3Version

// apiGroup and apiResources are the unaggregated discovery documents. kube-apiserver asks for the
// aggregated form first and falls back to these when the answer has another content type.
func apiGroup() metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: groupVersion, Version: resources.V3Version}
	return metav1.APIGroup{
		TypeMeta:         metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"},
		Name:             resources.V3Group,
		Versions:         []metav1.GroupVersionForDiscovery{version},
		PreferredVersion: version,
	}
}

func apiGroupList() metav1.APIGroupList {
	return metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   []metav1.APIGroup{apiGroup()},
	}
}

func apiResources(reg *resources.Registry) metav1.APIResourceList {
	list := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: groupVersion,
	}
	for _, k := range reg.All() {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.V3Plural(), Kind: k.Name(), Namespaced: k.Namespaced(),
			Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
		})
		if k.HasStatus(nil) {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.V3Plural() + "/status", Kind: k.Name(), Namespaced: k.Namespaced(),
				Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
	}
	list.APIResources = append(list.APIResources, metav1.APIResource{Name: profiles, Kind: "Profile", Verbs: metav1.Verbs{"get", "list"}})
	return list
}

// profiles are what Calico's server makes of namespaces and service accounts: no CRD has them, so whoever is still told of
// them is told of a server that does not serve any more.
const profiles = "profiles"

func profileList() map[string]any {
	return map[string]any{"apiVersion": groupVersion, "kind": "ProfileList", "metadata": map[string]any{}, "items": []any{
		map[string]any{"apiVersion": groupVersion, "kind": "Profile", "metadata": map[string]any{"name": "projectcalico-default-allow"}, "spec": map[string]any{}},
	}}
}
