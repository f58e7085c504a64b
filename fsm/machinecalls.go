package fsm

import "github.com/phasegate/phasegate/fsm/expr"

// Call is one place of the file that calls an action of the program.
type Call struct {
	// Action is the program's name of it.
	Action string
	// By is the name of the step, or of the file's own action that releases an effect.
	By string
	// With are the parameters as the file has them: a text may hold ${…}.
	With expr.Params
	call *action
}

// Calls lists the calls of all steps and of all releases, in the order of the file.
func (m *Machine) Calls() []Call {
	var all []Call
	add := func(by string, a *action) {
		if a.use != "" {
			all = append(all, Call{Action: a.use, By: by, With: a.written(), call: a})
		}
	}
	for _, p := range m.prog.order {
		for _, s := range p.steps {
			add(s.name, s.action)
		}
	}
	for _, e := range m.def.Spec.Effects {
		add(e.Release, m.prog.effects[e.Name].release)
	}
	return all
}

// Place is where the file has what is at a path of With, such as manifest.kind, or what
// is next above it.
func (c Call) Place(path string) string { return c.call.place(path) }
