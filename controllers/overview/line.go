package overview

import (
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// line is the shortest way from the initial phase to success, and the present phase: behind
// the one of that way that was left last, where it is not on it.
func line(m *fsm.Machine, st *v1alpha1.MachineStatus) []Phase {
	names := mainPath(m)
	present := st.Phase
	if present == "" && len(names) > 0 {
		present = names[0]
	}
	beside := !slices.Contains(names, present)
	if beside {
		left := lastOf(names, st) + 1
		if leadsAway(phaseOf(m, present), m) { // nothing of the rest is on its way
			names = names[:left]
		}
		names = slices.Insert(names, left, present)
	}
	all := make([]Phase, len(names))
	for i, name := range names {
		visited := slices.ContainsFunc(st.History, func(t v1alpha1.Transition) bool { return t.To == name || t.From == name })
		all[i] = Phase{Name: name, Present: name == present, Visited: visited, Beside: beside && name == present}
	}
	return all
}

// leadsAway tells that a phase is a failure, gives up or takes away: by itself it leads to
// failures and deletions only.
func leadsAway(p v1alpha1.Phase, m *fsm.Machine) bool {
	if p.Deletion || p.Terminal == "failure" {
		return true
	}
	return len(p.Next) > 0 && !slices.ContainsFunc(p.Next, func(x v1alpha1.Exit) bool { return phaseOf(m, x.To).Terminal != "failure" })
}

// lastOf is where in the way the object was last; -1 where it never was.
func lastOf(names []string, st *v1alpha1.MachineStatus) int {
	for _, t := range slices.Backward(st.History) {
		if i := slices.Index(names, t.To); i >= 0 {
			return i
		}
	}
	return -1
}

// mainPath is the shortest way over exits to a terminal phase of success; the initial phase
// alone where there is none.
func mainPath(m *fsm.Machine) []string {
	spec := &m.Definition().Spec
	from := map[string]string{spec.Initial: ""}
	for queue := []string{spec.Initial}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if phaseOf(m, at).Terminal == "success" {
			return walk(from, at)
		}
		for _, e := range m.Edges() {
			if _, seen := from[e.To]; e.From == at && e.Kind == fsm.EdgeNext && !seen {
				from[e.To] = at
				queue = append(queue, e.To)
			}
		}
	}
	return []string{spec.Initial}
}

// walk lists the way that ends at a phase.
func walk(from map[string]string, at string) []string {
	var way []string
	for ; at != ""; at = from[at] {
		way = append(way, at)
	}
	slices.Reverse(way)
	return way
}
