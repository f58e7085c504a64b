package program

import (
	"fmt"
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// BuiltInInvariants are the names of those that are proved of every machine.
var BuiltInInvariants = []string{"ledger", "noLeak", "deletable", "released", "noReturn", "legal", "releasedWhenGone", "patient"}

// InvariantState is what invariants are about.
type InvariantState struct {
	// Phase is empty before the first, and where the machine has none of that name.
	Phase string
	// Held is the ledger, InPlace what is really there.
	Held, InPlace  []string
	Deleting, Gone bool
}

// Holds is false also where it cannot be evaluated.
func (inv *Invariant) Holds(p *Program, s InvariantState) bool {
	ph := &v1alpha1.Phase{}
	if at := p.Phases[s.Phase]; at != nil {
		ph = at.Phase
	}
	return inv.expr.IsTrue(ph, s.Held, s.InPlace, s.Deleting, s.Gone)
}

// invariants are compiled last: they may name every phase and effect.
func (c *compiler) invariants(all []v1alpha1.Named) {
	for i, n := range all {
		path := fmt.Sprintf("spec.invariants[%d]", i)
		c.unique(path, "invariant", n.Name)
		c.selectable(path, "an invariant", n.Name)
		if slices.Contains(BuiltInInvariants, n.Name) {
			c.find(path+".name", "PG000", fmt.Sprintf("%s is proved of every machine", n.Name), "choose another name")
		}
		c.invariant(path+".expr", n)
	}
}

func (c *compiler) invariant(path string, n v1alpha1.Named) {
	e, errs := expr.CompileInvariant(n.Expr)
	c.findIn(path, n.Expr, errs)
	if e == nil {
		return
	}
	if !e.IsBool() {
		c.find(path, "PG007", fmt.Sprintf("invariant %q is %s, not a boolean", n.Expr, e.Out), "compare it with something")
		return
	}
	inv := Invariant{Name: n.Name, Path: path, Text: n.Expr, expr: e}
	c.invariantNames(&inv)
	c.prog.Invariants = append(c.prog.Invariants, inv)
}

// invariantNames checks the texts that mean a phase or an effect: with a name
// that nothing has, an invariant could hold for no reason.
func (c *compiler) invariantNames(inv *Invariant) {
	for _, m := range inv.expr.Mentions {
		switch {
		case m.OfPhase && m.Name != "" && c.prog.Phases[m.Name] == nil:
			c.findIn(inv.Path, inv.Text, []expr.Problem{{Code: "PG001", Offset: m.Offset,
				Message: fmt.Sprintf("phase %q does not exist", m.Name), Fix: c.prog.knownPhases(m.Name)}})
		case m.OfEffect:
			if c.prog.Effects[m.Name].Name == "" {
				c.findIn(inv.Path, inv.Text, []expr.Problem{{Code: "PG005", Offset: m.Offset,
					Message: fmt.Sprintf("effect %q is not declared", m.Name), Fix: "declare it under spec.effects"}})
			} else {
				inv.Effects = append(inv.Effects, m.Name)
			}
		}
	}
}
