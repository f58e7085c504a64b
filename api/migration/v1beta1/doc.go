// Package v1beta1 is the version of the DatastoreMigration API that the first
// release of the peer served. It is served still, deprecated, and identical to
// v1 on the wire: no conversion is needed, and the same validations hold
// whichever version a client writes. Only version v1 gains fields by hand.
//
// +kubebuilder:object:generate=true
// +groupName=migration.projectcalico.org
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/phasegate/phasegate/api/migration/v1"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: v1.GroupVersion.Group, Version: "v1beta1"}

var schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme registers the types of this package. It may be called twice.
var AddToScheme = schemeBuilder.AddToScheme

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &DatastoreMigration{}, &DatastoreMigrationList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
