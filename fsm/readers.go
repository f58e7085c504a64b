package fsm

import (
	"maps"
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
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

// Fields lists what the expressions of the file read of the object, each field once.
func (m *Machine) Fields() []expr.Field {
	return expr.Fields(m.prog.Texts, m.prog.InText)
}

// Call is one place of the file that calls an action of the program.
type Call struct {
	// Action is the program's name of it.
	Action string
	// By is the name of the step, or of the file's own action that releases an effect.
	By string
	// With are the parameters as the file has them: a text may hold ${…}.
	With expr.Params
	call *program.Action
}

// Calls lists the calls of all steps and of all releases, in the order of the file.
func (m *Machine) Calls() []Call {
	var all []Call
	add := func(by string, a *program.Action) {
		if a.Use != "" {
			all = append(all, Call{Action: a.Use, By: by, With: a.Written(), call: a})
		}
	}
	for _, p := range m.prog.Order {
		for _, s := range p.StepList {
			add(s.Label, s.Bound)
		}
	}
	for _, e := range m.def.Spec.Effects {
		e := m.prog.Effects[e.Name]
		add(e.ReleasedBy(), e.BoundRelease)
	}
	return all
}

// Place is where the file has what is at a path of With, such as manifest.kind, or what
// is next above it.
func (c Call) Place(path string) string { return c.call.Place(path) }

// Traits are what is special about a phase of the machine, in a few words each.
func (m *Machine) Traits(p *v1alpha1.Phase) []string {
	var all []string
	add := func(is bool, words string) {
		if is {
			all = append(all, words)
		}
	}
	add(p.Name == m.def.Spec.Initial, "initial")
	add(p.Kind != "" && p.Kind != v1alpha1.PhaseProgressing, string(p.Kind))
	add(p.Terminal != "", "terminal: "+string(p.Terminal))
	add(p.Deletion, "deletion")
	add(p.End, "end")
	add(p.PointOfNoReturn, "point of no return")
	add(p.ShowAs != "", "shown as "+p.ShowAs)
	return all
}

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
