// Package v1alpha1 holds the file kinds that an operator author edits (Machine and
// KindRegistry), MachineState, the kind in which the runner stores what a machine
// holds and where it stands, and MachineDefinition, which shows the machine in force.
//
// The types are data only: what they mean is decided by packages fsm, resources and
// controllers/runner, which this package must not know.
//
// +groupName=phasegate.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// Group is the API group of all these kinds.
	Group = "phasegate.dev"
	// APIVersion is what `apiVersion:` of a machine or registry file must say.
	APIVersion = Group + "/v1alpha1"
	// KindMachine is the kind of a machine file.
	KindMachine = "Machine"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// AddToScheme registers MachineState and MachineDefinition; the file kinds are not served by
// an API server. It may be called twice.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &MachineState{}, &MachineStateList{}, &MachineDefinition{}, &MachineDefinitionList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
