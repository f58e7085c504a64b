package fsm

import "github.com/phasegate/phasegate/fsm/program"

// Broken names the invariants of the file that are not true of a situation. One that
// cannot be evaluated is not true. It may be called any number of times.
func (m *Machine) Broken(s program.InvariantState) []string {
	var names []string
	for i := range m.prog.Invariants {
		if inv := &m.prog.Invariants[i]; !inv.Holds(m.prog, s) {
			names = append(names, inv.Name)
		}
	}
	return names
}
