package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// The methods below are how the runner reaches the parts of a status that every
// machine-driven kind has. They hand out the object's own memory.

// MachineStatus returns the block that the engine keeps.
func (m *DatastoreMigration) MachineStatus() *v1alpha1.MachineStatus { return &m.Status.Machine }

// Conditions returns the conditions for reading and changing.
func (m *DatastoreMigration) Conditions() *[]metav1.Condition { return &m.Status.Conditions }

// SetObservedGeneration notes the generation that the status is about.
func (m *DatastoreMigration) SetObservedGeneration(generation int64) {
	m.Status.ObservedGeneration = generation
}

// SetDisplay sets what `kubectl get` shows. A message longer than
// MaxMessageLength is cut, since one status field that is too long would make
// the API server refuse the whole write, the transition included.
func (m *DatastoreMigration) SetDisplay(phase, message string) {
	m.Status.Phase = phase
	m.Status.Message = v1alpha1.Shorten(message, MaxMessageLength)
}

// CopyStatusFrom makes the status a deep copy of another migration's.
func (m *DatastoreMigration) CopyStatusFrom(other *DatastoreMigration) {
	other.Status.DeepCopyInto(&m.Status)
}
