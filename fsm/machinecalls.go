package fsm

import (
	"github.com/phasegate/phasegate/fsm/expr"
	"github.com/phasegate/phasegate/fsm/program"
)

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
		add(e.Release, m.prog.Effects[e.Name].BoundRelease)
	}
	return all
}

// Place is where the file has what is at a path of With, such as manifest.kind, or what
// is next above it.
func (c Call) Place(path string) string { return c.call.Place(path) }
