package fsm

import (
	"slices"
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
)

// OnDelete says what a deletion of an object in this state would do, as
// MachineStatus.OnDelete does, whose field not every CRD keeps. known is false where the
// machine has no such phase: another revision of it does.
func (m *Machine) OnDelete(st v1alpha1.MachineStatus) (does *v1alpha1.DeletionStatus, known bool) {
	r := Run{m: m, st: st}
	return r.onDelete(), st.Phase == "" || r.phase() != nil
}

// Deletion says for people what a deletion does, as the status has it, else as the machine
// says: with what is given back on the way. It is nil where nobody has looked at the object, and
// where the machine does not know.
func (m *Machine) Deletion(st v1alpha1.MachineStatus) *v1alpha1.DeletionStatus {
	does := st.OnDelete
	if does == nil && st.Phase != "" {
		if now, known := m.OnDelete(st); known {
			does = now
		}
	}
	if does == nil || does.Mode != v1alpha1.DeletionTransition || len(st.Held) == 0 || !m.undoes(does.To) {
		return does
	}
	releases := st.HeldNames()
	slices.Reverse(releases)
	return &v1alpha1.DeletionStatus{Mode: does.Mode, To: does.To, Message: expr.Clip("releases "+strings.Join(releases, ", "), 512)}
}

func (m *Machine) undoes(phase string) bool {
	p := m.prog.Phases[phase]
	return p != nil && slices.ContainsFunc(p.Steps, func(s v1alpha1.Step) bool { return s.Undo != "" })
}
