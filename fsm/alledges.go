package fsm

import (
	"maps"
	"slices"
)

// Edges lists every way between two phases: those of each phase in document
// order, then those of upgrade.phaseMap. It is the one source of the events of
// looplab/fsm, of the reachability checks and of drawings.
func (m *Machine) Edges() []Edge {
	var all []Edge
	for _, p := range m.prog.order {
		all = append(all, p.edges()...)
	}
	if u := m.def.Spec.Upgrade; u != nil {
		for _, old := range slices.Sorted(maps.Keys(u.PhaseMap)) {
			all = append(all, Edge{Event: reasonReplaced, From: old, To: u.PhaseMap[old],
				Kind: EdgeUpgrade, Path: "spec.upgrade.phaseMap." + old})
		}
	}
	return all
}
