package fsm

import (
	"cmp"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm/diag"
	"github.com/phasegate/phasegate/fsm/expr"
)

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

// written are the parameters with their expressions as texts.
func (a *action) written() expr.Params {
	all := expr.Params{}
	for name, v := range a.with {
		all[name] = v.Written()
	}
	return all
}

// place is the path in the file of a path in the parameters.
func (a *action) place(path string) string {
	name, rest, _ := strings.Cut(path, ".")
	if v := a.with[name]; v != nil {
		return v.Place(rest)
	}
	return ""
}

// Misfit is the finding about something that does not fit at a path.
func (d *Definition) Misfit(path string, m Misfit) diag.Diagnostic {
	return d.Finding(path, "PG018", m.Message, m.fix())
}

func (m Misfit) fix() string {
	switch near := diag.Nearest(m.Name, m.Known); {
	case m.Name == "":
		return "correct the value"
	case near != "":
		return "did you mean " + near + "?"
	default:
		return "remove it, or write one of " + strings.Join(m.Known, ", ")
	}
}

// together asks the action what of all its parameters it could do nothing with. What
// stands in spec.actions is said once, however many steps name it.
func (c *compiler) together(a *action, at string) {
	if a.spec.Check == nil {
		return
	}
	for _, flaw := range a.spec.Check(a.written()) {
		x := c.def.Misfit(cmp.Or(a.place(flaw.Path), at), flaw)
		same := func(d diag.Diagnostic) bool { return d.Pos == x.Pos && d.Message == x.Message }
		if !slices.ContainsFunc(c.diags, same) {
			c.diags = append(c.diags, x)
		}
	}
}
