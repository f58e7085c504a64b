package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// checkTakenAgain finds steps that take what an earlier phase may hold, with values that are found anew. It is held with
// those of before, so the machine would stop there.
func (f *flow) checkTakenAgain(p *program.Phase) {
	held := f.at[p.Name]
	for i := range p.StepList {
		s := &p.StepList[i]
		if again := f.acquired(s) & held; again != 0 && s.Loop == nil && f.c.whileHeld(s.IfExpr, s.Acquires) != expr.Never {
			if name := f.c.foundAnew(s.Bound); name != "" {
				e := f.via[carried{p.Name, again}]
				f.c.findOnWay(s.Path, "PG021", fmt.Sprintf("%s is entered while %s may be held, and step %s takes it with %s, which is found anew", p.Name, s.Acquires, s.Label, name),
					fmt.Sprintf("release %s before, on every way that leads back to %s", s.Acquires, p.Name), f.trace(e, again))
			}
		}
		held &^= f.released(s, held)
	}
}

// foundAnew is a parameter that reads what steps have found in this visit; empty: none does.
func (c *linter) foundAnew(a *program.Action) string {
	for name := range a.Written() {
		found := false
		a.With[name].Each(func(e *expr.Expr) { found = found || len(c.outputsOf(e)) > 0 })
		if found {
			return name
		}
	}
	return ""
}

// checkCounts finds steps that compute the next value of a field of the object from the field itself: any step may be
// called again, after a crash or with its phase, and would count twice.
func (c *linter) checkCounts(p *program.Phase) {
	for i := range p.StepList {
		s := &p.StepList[i]
		for _, w := range c.writes(s) {
			if !c.isSelf(w) {
				continue
			}
			for _, v := range s.Bound.With {
				v.Each(func(e *expr.Expr) {
					for _, read := range c.computes(e) {
						if slices.ContainsFunc(w.fields, func(f []string) bool { return within(read, f) || within(f, read) }) {
							c.find(s.Path, "PG106", fmt.Sprintf("step %s computes %s from itself: called again, after a crash or with its phase, it computes it from what it has written", s.Label, strings.Join(read, ".")),
								"compute it from what no step of the phase changes, or write it only while it is not there")
						}
					}
				})
			}
		}
	}
}

// isSelf: it is the object that the machine drives.
func (c *linter) isSelf(t touched) bool {
	group, _, versioned := strings.Cut(c.def.Spec.For.APIVersion, "/")
	if !versioned {
		group = ""
	}
	return t.group == group && t.kind == c.def.Spec.For.Kind && t.namespace == "" && t.name == "${self.metadata.name}"
}

// computes are the fields of the object that an expression computes with, be it through variables.
func (c *linter) computes(e *expr.Expr) (fields [][]string) {
	c.through(e, func(e *expr.Expr) {
		fields = append(fields, e.Computes(expr.VarSelf)...)
		for _, variable := range e.Computes(expr.VarVariables) {
			c.through(c.prog.Variables[variable[0]], func(v *expr.Expr) { fields = append(fields, v.Paths(expr.VarSelf)...) })
		}
	})
	return fields
}
