package statusview

import (
	"cmp"
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// line are the phases that were passed, in the order in which each was left last, then the
// present one, then the way to success that is ahead. Each is there once.
func line(m *fsm.Machine, st *v1alpha1.MachineStatus) []Phase {
	present := cmp.Or(st.Phase, m.Definition().Spec.Initial)
	passed := slices.DeleteFunc(passed(m, st), func(name string) bool { return name == present })
	way := m.HappyPath()
	var all []Phase
	for _, name := range passed {
		all = append(all, Phase{Name: name, Visited: true, Beside: !slices.Contains(way, name)})
	}
	all = append(all, Phase{Name: present, Present: true, Visited: st.Phase != "", Beside: !slices.Contains(way, present)})
	for _, name := range ahead(m, present, passed) {
		if name != present && !slices.Contains(passed, name) {
			all = append(all, Phase{Name: name})
		}
	}
	return all
}

// passed are the phases that the object was in since it was made, or since a request led it
// out of an end: then it began anew. They are told from the history, which forgets the oldest:
// what is missing is taken from the way on which all goes well.
func passed(m *fsm.Machine, st *v1alpha1.MachineStatus) []string {
	history := st.History
	for i, t := range history {
		if phaseOf(m, t.From).Terminal != "" {
			history = history[i:]
		}
	}
	var names []string
	enter := func(name string) {
		name = renamed(m, name)
		names = slices.DeleteFunc(names, func(other string) bool { return other == name })
		names = append(names, name)
	}
	if len(history) > 0 && history[0].From != "" && phaseOf(m, history[0].From).Terminal == "" {
		way, first := m.HappyPath(), renamed(m, history[0].From)
		for _, name := range way[:max(1, slices.Index(way, first))] {
			enter(name)
		}
		enter(first)
	}
	for _, t := range history {
		enter(t.To)
	}
	return names
}

// renamed is the name that a phase has in this machine; that which it had where it is gone.
func renamed(m *fsm.Machine, name string) string {
	if u := m.Definition().Spec.Upgrade; u != nil && !slices.Contains(m.Phases(), name) {
		return cmp.Or(u.PhaseMap[name], name)
	}
	return name
}

// ahead is the way to success from the present phase; where the machine does not have it,
// from the last one that it has. A way that does not lead to success is not told.
func ahead(m *fsm.Machine, present string, passed []string) []string {
	from := present
	for i := len(passed) - 1; i >= 0 && m.PathFrom(from) == nil; i-- {
		from = passed[i]
	}
	way := m.PathFrom(from)
	if len(way) == 0 || phaseOf(m, from).Terminal != "" || phaseOf(m, from).Kind == v1alpha1.PhaseSteady {
		return nil
	}
	return way
}
