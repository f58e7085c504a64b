package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// MachineDefinitionCRD is the name of the CustomResourceDefinition of MachineDefinition.
	MachineDefinitionCRD = "machinedefinitions.phasegate.dev"
	// ManagerLabel on a MachineDefinition is ManagerKey of the installation that runs the machine.
	ManagerLabel = "phasegate.dev/manager"
)

// MachineDefinition is a machine file that is in force: the text that a manager runs at this
// moment. The manager writes it for programs that show where objects are and that make
// requests. No manager reads it: an edit of it changes nothing, and is reverted.
//
// There is one for each machine and each installation that runs it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=machinedefinitions,shortName=mdef,categories=phasegate
// +kubebuilder:printcolumn:name=Machine,type=string,JSONPath=`.spec.machine`
// +kubebuilder:printcolumn:name=Kind,type=string,JSONPath=`.spec.for.kind`
// +kubebuilder:printcolumn:name=Manager,type=string,JSONPath=`.spec.manager`
// +kubebuilder:printcolumn:name=Revision,type=string,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type MachineDefinition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the machine in force.
	// +kubebuilder:validation:XValidation:rule="self.machine == oldSelf.machine",message="spec.machine cannot be changed: each machine has a MachineDefinition of its own"
	Spec MachineDefinitionSpec `json:"spec"`
}

// MachineDefinitionList is a list of machines in force.
//
// +kubebuilder:object:root=true
type MachineDefinitionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MachineDefinition `json:"items"`
}

// MachineDefinitionSpec is a machine in force.
type MachineDefinitionSpec struct {
	// Machine is the name of the machine, from metadata.name of its file.
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine"`
	// For is the kind whose objects the machine drives.
	For ObjectKind `json:"for"`
	// Manager is the installation that runs the machine, as in status.manager of a MachineState:
	// NAMESPACE/NAME of the lease that its processes share. Empty where they share none.
	// +kubebuilder:validation:MaxLength=317
	// +optional
	Manager string `json:"manager,omitempty"`
	// Revision is what status.revision of a MachineState says of an object that this text drives.
	// +kubebuilder:validation:MaxLength=80
	Revision string `json:"revision"`
	// File is where the manager has the text from.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	File string `json:"file,omitempty"`
	// Text is the machine file.
	// +kubebuilder:validation:MaxLength=262144
	Text string `json:"text"`
}

// ManagerKey is a short name of an installation, which may be a part of a name and the value of a label.
func ManagerKey(manager string) string {
	sum := sha256.Sum256([]byte(manager))
	return hex.EncodeToString(sum[:5])
}

// MachineDefinitionName is the name of the MachineDefinition of a machine that an installation runs.
func MachineDefinitionName(machine, manager string) string {
	return machine + "." + ManagerKey(manager)
}
