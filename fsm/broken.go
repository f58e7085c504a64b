package fsm

// Broken names the invariants of the file that are not true of a situation. One that
// cannot be evaluated is not true. It may be called any number of times.
func (m *Machine) Broken(s InvariantState) []string {
	var names []string
	for i := range m.prog.invariants {
		if inv := &m.prog.invariants[i]; !inv.holds(m.prog, s) {
			names = append(names, inv.name)
		}
	}
	return names
}
