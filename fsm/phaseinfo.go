package fsm

import (
	"cmp"
	"slices"

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
	before := reach(p, []string{initial}, func(_ *program.Phase, e program.Edge) bool {
		to := p.Phases[e.To]
		return to != nil && !to.PointOfNoReturn && to.Terminal != v1alpha1.PhaseSuccess
	})
	var points []string
	for _, q := range p.Order {
		if q.PointOfNoReturn {
			points = append(points, q.Name)
		}
	}
	after := reach(p, points, func(*program.Phase, program.Edge) bool { return true })
	all := map[string]PhaseInfo{}
	for _, q := range p.Order {
		all[q.Name] = PhaseInfo{Known: true, Role: q.Role, Terminal: q.Terminal, Deletion: q.Deletion,
			Failing: endsInFailure(p, q), NoReturn: after[q.Name] && !before[q.Name]}
	}
	return all
}

// reach are the phases from which edges lead on, with those where it begins.
func reach(p *program.Program, from []string, follow func(*program.Phase, program.Edge) bool) map[string]bool {
	seen := map[string]bool{}
	for queue := slices.Clone(from); len(queue) > 0; queue = queue[1:] {
		q := p.Phases[queue[0]]
		if q == nil || seen[q.Name] {
			continue
		}
		seen[q.Name] = true
		for _, e := range q.Edges() {
			if follow(q, e) {
				queue = append(queue, e.To)
			}
		}
	}
	return seen
}

// endsInFailure: it ends, and in nothing but a failure.
func endsInFailure(p *program.Program, q *program.Phase) bool {
	if q.Deletion {
		return false
	}
	fails := false
	for name := range reach(p, []string{q.Name}, func(at *program.Phase, e program.Edge) bool { return at.Terminal == "" && e.Kind != program.EdgeDelete }) {
		at := p.Phases[name]
		if at.Terminal == v1alpha1.PhaseSuccess || at.Kind == v1alpha1.PhaseSteady || at.End {
			return false
		}
		fails = fails || at.Terminal == v1alpha1.PhaseFailure
	}
	return fails
}
