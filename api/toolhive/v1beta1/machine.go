package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// The methods below let a machine drive an MCPServer, whatever runs it.

// MachineStatus is the part of the status that belongs to the machine. It hands
// out the object's own memory.
func (s *MCPServer) MachineStatus() *v1alpha1.MachineStatus { return &s.Status.Machine }

// Conditions hands out the object's own memory, for reading and changing.
func (s *MCPServer) Conditions() *[]metav1.Condition { return &s.Status.Conditions }

// SetDisplay sets what `kubectl get` shows of the machine; a message longer than
// MaxMessageLength is cut.
func (s *MCPServer) SetDisplay(phase, message string) {
	s.Status.Phase, s.Status.Message = phase, v1alpha1.Shorten(message, MaxMessageLength)
}

// ObservedGeneration is the generation that the status is about; 0 or less: not known.
func (s *MCPServer) ObservedGeneration() *int64 { return &s.Status.ObservedGeneration }

// CopyStatusFrom makes the status a deep copy of another object's.
func (s *MCPServer) CopyStatusFrom(other *MCPServer) { other.Status.DeepCopyInto(&s.Status) }

// historyShown is how many transitions leave room for the spec and the conditions.
const historyShown = 2

// Abridge takes out of the status what people need not see in the object, so that kubectl
// describe prints at most 78 lines: the MachineState has it.
func (s *MCPServer) Abridge() {
	st := &s.Status.Machine
	st.ShowHistory(historyShown)
	st.Result, st.Requests = "", nil
}
