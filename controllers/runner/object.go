package runner

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// MachineObject is an object of whatever kind with a machine's status. Its methods hand out the object's own memory.
type MachineObject interface {
	client.Object
	MachineStatus() *v1alpha1.MachineStatus
	Conditions() *[]metav1.Condition
}

// Object is a kind whose status a machine drives; T is the kind itself.
type Object[T any] interface {
	MachineObject
	// ObservedGeneration hands out memory, too. It is 0 or less where it is not known, as on CRDs of others.
	ObservedGeneration() *int64
	// SetDisplay sets what `kubectl get` shows.
	SetDisplay(phase, message string)
	// CopyStatusFrom makes the status a deep copy of another object's.
	CopyStatusFrom(T)
}

// FieldShower is a kind whose status has fields that machine files define.
type FieldShower interface {
	// ShowFields takes fields that the kind itself does not have out of the status where they are stale, and sets some.
	ShowFields(stale func(name string) bool, fields map[string]any)
	// OtherFields are those of the status that the kind itself does not have; nobody may change them.
	OtherFields() map[string]any
}
