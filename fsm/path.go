package fsm

import (
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/program"
)

// HappyPath is the way on which all goes well from the initial phase: see PathFrom.
func (m *Machine) HappyPath() []string { return m.PathFrom(m.def.Spec.Initial) }

// PathFrom is the way on which all goes well from a phase: the shortest one by exits to a
// phase that ends in success, else to a steady one; a terminal phase is not passed, since
// only a request leads out of it. Where there is neither, it is the phase alone; it is
// empty where the machine does not have the phase.
func (m *Machine) PathFrom(from string) []string {
	if m.prog.Phases[from] == nil {
		return nil
	}
	order, into := m.prog.Walk(func(p *program.Phase, e program.Edge) bool {
		return e.Kind == program.EdgeNext && (p.Terminal == "" || p.Name == from)
	}, from)
	goal := slices.IndexFunc(order, func(p *program.Phase) bool { return p.Terminal == v1alpha1.PhaseSuccess })
	if goal < 0 {
		goal = slices.IndexFunc(order, func(p *program.Phase) bool { return p.Kind == v1alpha1.PhaseSteady })
	}
	path := []string{from}
	for _, e := range program.Way(into, order[max(goal, 0)].Name) {
		path = append(path, e.To)
	}
	return path
}
