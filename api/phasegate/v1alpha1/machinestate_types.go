package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// MachineStateCRD is the name of the CustomResourceDefinition of MachineState.
	MachineStateCRD = "machinestates.phasegate.dev"
	// HeldFinalizer is on a MachineState while something is held, so that neither a deletion
	// of all states nor that of their CRD loses what releases it.
	HeldFinalizer = "phasegate.dev/held"
	// ObjectAnnotation on a MachineState is the namespace and name of its object, as
	// NAMESPACE/NAME, for those who see metadata only.
	ObjectAnnotation = "phasegate.dev/object"
	// MachineLabel on a MachineState is the name of the machine, for those who list the
	// states of one.
	MachineLabel = "phasegate.dev/machine"
)

// MachineState is the state of one object that a machine drives, and the truth about it:
// phase, position, what is held and how it is released. It is written by the manager
// only, before the status of the object, which is a view of it. It outlives the object
// while something is held.
//
// It has no status subresource: the finalizer and what is held change in one request.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=machinestates,shortName=mstate,categories=phasegate
// +kubebuilder:printcolumn:name=Machine,type=string,JSONPath=`.spec.machine`
// +kubebuilder:printcolumn:name=Namespace,type=string,JSONPath=`.spec.object.namespace`
// +kubebuilder:printcolumn:name=Object,type=string,JSONPath=`.spec.object.name`
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=Entered,type=date,JSONPath=`.status.enteredAt`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Held,type=string,JSONPath=`.status.held`,priority=1
type MachineState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says of which object this is the state.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec cannot be changed: a state belongs to one object for good"
	Spec MachineStateSpec `json:"spec"`
	// Status is the state.
	// +optional
	Status MachineStateStatus `json:"status,omitempty"`
}

// MachineStateList is a list of states.
//
// +kubebuilder:object:root=true
type MachineStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MachineState `json:"items"`
}

// MachineStateSpec says of which object a state is, and by which machine.
type MachineStateSpec struct {
	// Machine is the name of the machine, from metadata.name of its file.
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine"`
	// Object is the object that the machine drives.
	Object ObjectReference `json:"object"`
}

// ObjectReference names one object, and no other that bears its name later.
type ObjectReference struct {
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Namespace is empty for cluster-scoped kinds.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +kubebuilder:validation:MaxLength=253
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// MachineStateStatus is all that must outlive a crash.
//
// +kubebuilder:object:generate=true
type MachineStateStatus struct {
	// MachineStatus is where the machine stands, without blocked and onDelete, which the
	// status of the object tells.
	MachineStatus `json:",inline"`
	// Manager is the installation that drives the object, as NAMESPACE/NAME of the lease that its
	// processes share. Another one that takes the object over says so here first.
	// +kubebuilder:validation:MaxLength=317
	// +optional
	Manager string `json:"manager,omitempty"`
	// Finalizer is the one that keeps the object, as the machine named it when the object was begun. A later revision
	// with another name removes this one at the end.
	// +kubebuilder:validation:MaxLength=317
	// +optional
	Finalizer string `json:"finalizer,omitempty"`
	// Saved is what actions keep for later ones, by name: JSON or another text. What the
	// status of the kind holds besides the machine and must not be lost is in it under
	// SavedStatus.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	Saved map[string]SavedText `json:"saved,omitempty"`
}

// SavedStatus is the entry of MachineStateStatus.Saved for fields of the object's own
// status that must outlive a crash, as a JSON object.
const SavedStatus = "status"

// SavedText is one entry of MachineStateStatus.Saved.
//
// +kubebuilder:validation:MaxLength=65536
type SavedText string

// MachineStateName is the name of the state of an object.
func MachineStateName(machine string, uid types.UID) string { return machine + "." + string(uid) }
