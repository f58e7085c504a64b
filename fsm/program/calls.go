package program

import (
	"cmp"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm/diag"
	"github.com/phasegate/phasegate/fsm/expr"
)

// Written are the parameters with their expressions as texts.
func (a *Action) Written() expr.Params {
	all := expr.Params{}
	for name, v := range a.With {
		all[name] = v.Written()
	}
	return all
}

// Place is the path in the file of a path in the parameters.
func (a *Action) Place(path string) string {
	name, rest, _ := strings.Cut(path, ".")
	if v := a.With[name]; v != nil {
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
func (c *compiler) together(a *Action, at string) {
	if a.Spec.Check == nil {
		return
	}
	for _, flaw := range a.Spec.Check(a.Written()) {
		x := c.def.Misfit(cmp.Or(a.Place(flaw.Path), at), flaw)
		same := func(d diag.Diagnostic) bool { return d.Pos == x.Pos && d.Message == x.Message }
		if !slices.ContainsFunc(c.diags, same) {
			c.diags = append(c.diags, x)
		}
	}
}
