// Package v1alpha1 is the version of the MCPServer API that the first releases
// of the peer served. It is served still, deprecated, and identical to v1beta1
// on the wire: no conversion is needed, and the same validations hold whichever
// version a client writes. Only v1beta1 gains fields by hand.
//
// +kubebuilder:object:generate=true
// +groupName=toolhive.stacklok.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: v1beta1.GroupVersion.Group, Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme registers the types of this package. It may be called twice.
var AddToScheme = schemeBuilder.AddToScheme

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &MCPServer{}, &MCPServerList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
