package fsm

import (
	"cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/program"
)

// PhaseInfo is about a phase by its name, also by one that upgrade.phaseMap has.
func (m *Machine) PhaseInfo(name string) PhaseInfo {
	p := m.prog.Phases[name]
	if u := m.def.Spec.Upgrade; p == nil && u != nil {
		p = m.prog.Phases[u.PhaseMap[name]]
	}
	if p == nil {
		return PhaseInfo{}
	}
	return m.infos[p.Name]
}

// PhaseShown is the phase that status.phase shows as a name: of those that show it the one
// that is called so, else the first. It is the name itself where no phase shows it.
func (m *Machine) PhaseShown(shown string) string {
	first := ""
	for _, p := range m.prog.Order {
		switch {
		case cmp.Or(p.ShowAs, p.Name) != shown:
		case p.Name == shown:
			return shown
		default:
			first = cmp.Or(first, p.Name)
		}
	}
	return cmp.Or(first, shown)
}

func infosOf(p *program.Program, initial string) map[string]PhaseInfo {
	_, before := p.Walk(func(_ *program.Phase, e program.Edge) bool {
		to := p.Phases[e.To]
		return to != nil && !to.PointOfNoReturn && to.Terminal != v1alpha1.PhaseSuccess
	}, initial)
	var points []string
	for _, q := range p.Order {
		if q.PointOfNoReturn {
			points = append(points, q.Name)
		}
	}
	_, after := p.Walk(func(*program.Phase, program.Edge) bool { return true }, points...)
	all := map[string]PhaseInfo{}
	for _, q := range p.Order {
		_, isBefore := before[q.Name]
		_, isAfter := after[q.Name]
		all[q.Name] = PhaseInfo{Known: true, Role: q.Role, Terminal: q.Terminal, Deletion: q.Deletion,
			Failing: endsInFailure(p, q), NoReturn: isAfter && !isBefore}
	}
	return all
}

// endsInFailure: it ends, and in nothing but a failure.
func endsInFailure(p *program.Program, q *program.Phase) bool {
	if q.Deletion {
		return false
	}
	fails := false
	ahead, _ := p.Walk(func(at *program.Phase, e program.Edge) bool { return at.Terminal == "" && e.Kind != program.EdgeDelete }, q.Name)
	for _, at := range ahead {
		if at.Terminal == v1alpha1.PhaseSuccess || at.Kind == v1alpha1.PhaseSteady || at.End {
			return false
		}
		fails = fails || at.Terminal == v1alpha1.PhaseFailure
	}
	return fails
}
