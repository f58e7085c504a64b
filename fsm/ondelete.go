package fsm

import "github.com/phasegate/phasegate/api/phasegate/v1alpha1"

// OnDelete says what a deletion of an object in this state would do, as
// MachineStatus.OnDelete does, whose field not every CRD keeps. known is false where the
// machine has no such phase: another revision of it does.
func (m *Machine) OnDelete(st v1alpha1.MachineStatus) (text string, known bool) {
	r := Run{m: m, st: st}
	return r.onDelete(), st.Phase == "" || r.phase() != nil
}
