// Package v1 is the stored version of the DatastoreMigration API.
//
// Names, columns and bounds are compatible with the CRD that Calico's own
// migration controller installs, so that scripts and dashboards written for it
// go on working. The package holds data and its bounds only: what a phase does
// is decided by the machine in phases/datastore-migration.yaml, which this
// package must not know.
//
// +groupName=migration.projectcalico.org
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "migration.projectcalico.org", Version: "v1"}

// AddToScheme registers the types of this package. It may be called twice.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &DatastoreMigration{}, &DatastoreMigrationList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
