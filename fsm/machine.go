package fsm

import (
	"cmp"
	"slices"
	"sync"

	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Machine is a definition bound to actions and guards. It is immutable and
// safe for concurrent use by any number of runs.
type Machine struct {
	def      *program.Definition
	prog     *program.Program
	bindings program.Bindings
	infos    map[string]PhaseInfo
	// fsms are the state machines of looplab/fsm, by phase.
	fsms map[string]*sync.Pool
	// callbacks are those of each of them.
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
// Shown and Role follows from the machine.
type PhaseInfo struct {
	// Known is false where the machine does not have the phase; the rest is empty then.
	Known bool
	// Shown is its display name. status.phase shows it, unless an effect that is held has one.
	Shown string
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
		all[q.Name] = PhaseInfo{Known: true, Shown: cmp.Or(q.ShowAs, q.Name), Role: q.Role, Terminal: q.Terminal, Deletion: q.Deletion,
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

// Holds tells whether an effect is held that an action of the program takes. A status of an
// older revision is read by upgrade.effectMap.
func (m *Machine) Holds(st *v1alpha1.MachineStatus, action string) bool {
	return m.holds(st, func(e program.Effect) bool { return e.BoundAcquire.Use == action })
}

// HoldsRole tells whether an effect is held that has a role.
func (m *Machine) HoldsRole(st *v1alpha1.MachineStatus, role string) bool {
	return m.holds(st, func(e program.Effect) bool { return e.Role == role })
}

func (m *Machine) holds(st *v1alpha1.MachineStatus, is func(program.Effect) bool) bool {
	return slices.ContainsFunc(st.Held, func(h v1alpha1.HeldEffect) bool {
		e, known := m.prog.Effects[h.Effect()]
		if u := m.def.Spec.Upgrade; !known && u != nil {
			e, known = m.prog.Effects[u.EffectMap[h.Effect()]]
		}
		return known && is(e)
	})
}

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
	for _, e := range program.Way(into, from, order[max(goal, 0)].Name) {
		path = append(path, e.To)
	}
	return path
}
