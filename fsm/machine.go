package fsm

import (
	"slices"

	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/program"
)

// Machine is a definition bound to actions and guards. It is immutable and
// safe for concurrent use by any number of runs.
type Machine struct {
	def      *program.Definition
	prog     *program.Program
	bindings program.Bindings
	infos    map[string]PhaseInfo
	// callbacks are those of every pass.
	callbacks looplab.Callbacks
}

// Name of the machine, from its file.
func (m *Machine) Name() string { return m.def.Metadata.Name }

// Revision is a hash of what the machine file says.
func (m *Machine) Revision() string { return m.def.Revision }

// File is where the machine was loaded from.
func (m *Machine) File() string { return m.def.File }

// For is the kind whose objects the machine drives.
func (m *Machine) For() v1alpha1.ObjectKind { return m.def.Spec.For }

// Finalizer is the machine's finalizer; empty when it has none.
func (m *Machine) Finalizer() string { return m.def.Spec.Finalizer }

// Definition is the file behind the machine.
func (m *Machine) Definition() *program.Definition { return m.def }

// Program is the file behind the machine as it was compiled. Nobody may change it.
func (m *Machine) Program() *program.Program { return m.prog }

// Bindings are what the machine was bound to: the program that it can call.
func (m *Machine) Bindings() program.Bindings { return m.bindings }

// Guards lists the guards of the program that the file asks, each once.
func (m *Machine) Guards() []string { return slices.Clone(m.prog.Guards) }

// Records lists the annotations that show which requests were acted on last, and
// what they should say for a stored status.
func (m *Machine) Records(st *v1alpha1.MachineStatus) map[string]string {
	out := map[string]string{}
	for _, q := range st.Requests {
		if known := m.prog.Requests[q.Name]; known != nil && known.Record != nil {
			out[known.Record.Annotation] = q.Token
		}
	}
	return out
}

// Phases lists the phases in document order.
func (m *Machine) Phases() []string { return m.prog.Names() }

// Rests tells whether nothing is on its way in a phase: it is terminal, the end, or steady. A
// new object, and one in a phase that is not here, is on its way.
func (m *Machine) Rests(phase string) bool {
	p := m.prog.Phases[phase]
	return p != nil && (p.Terminal != "" || p.End || p.Kind == v1alpha1.PhaseSteady)
}

// Watches lists the other objects whose changes may move a run, each once.
func (m *Machine) Watches() []v1alpha1.Watch {
	all := slices.Clone(m.def.Spec.Watch)
	for _, p := range m.prog.Order {
		all = append(all, p.Watch...)
	}
	var each []v1alpha1.Watch
	for _, w := range all {
		if !slices.Contains(each, w) {
			each = append(each, w)
		}
	}
	return each
}

// PhaseInfo is what a machine says of a phase to programs that know none of its names. All but
// Role follows from the machine.
type PhaseInfo struct {
	// Known is false where the machine does not have the phase; the rest is empty then.
	Known bool
	// Role is the one that the file gives.
	Role string
	// Terminal is success, failure or empty.
	Terminal v1alpha1.PhaseEnd
	// Deletion is true in the phases of a deletion.
	Deletion bool
	// Failing is true where only a failure is ahead, or is there: without a request and
	// without a deletion, every way ends in a phase of failure.
	Failing bool
	// NoReturn is true from a point of no return on: in the phases that are reached only
	// through one, or in success.
	NoReturn bool
}
