package fsm

import (
	"maps"
	"slices"

	"github.com/phasegate/phasegate/fsm/program"
)

// Edges lists every way between two phases: those of each phase in document
// order, then those of upgrade.phaseMap. It is the one source of the events of
// looplab/fsm, of the reachability checks and of drawings.
func (m *Machine) Edges() []program.Edge {
	var all []program.Edge
	for _, p := range m.prog.Order {
		all = append(all, p.Edges()...)
	}
	if u := m.def.Spec.Upgrade; u != nil {
		for _, old := range slices.Sorted(maps.Keys(u.PhaseMap)) {
			all = append(all, program.Edge{Event: program.ReasonReplaced, From: old, To: u.PhaseMap[old],
				Kind: program.EdgeUpgrade, Path: "spec.upgrade.phaseMap." + old})
		}
	}
	return all
}
