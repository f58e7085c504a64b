package lint

import (
	"fmt"
	"strings"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

type linter struct {
	def  *program.Definition
	prog *program.Program
	// objects is the type of self, if it is known.
	objects *expr.Schema
	diags   diag.Diagnostics
	// whileHolding is what whileHeld has found, by expression and effect.
	whileHolding map[[2]string]expr.Truth
}

func (c *linter) find(path, code, message, fix string) {
	c.diags = append(c.diags, c.def.Finding(path, code, message, fix))
}

func (c *linter) findOnWay(path, code, message, fix string, trace []string) {
	x := c.def.Finding(path, code, message, fix)
	x.Trace = trace
	c.diags = append(c.diags, x)
}

func arrow(e program.Edge) string { return fmt.Sprintf("%s → %s (%s)", e.From, e.To, e.Kind) }

// through visits an expression, and those of the variables that it reads, be it through others.
func (c *linter) through(e *expr.Expr, visit func(*expr.Expr)) {
	if e == nil {
		return
	}
	visit(e)
	for _, name := range e.Reads(expr.VarVariables) {
		c.through(c.prog.Variables[name], visit)
	}
}

// evaluated visits whatever is evaluated in a phase but texts for people, in which a value that is not there shows as "?".
func (c *linter) evaluated(p *program.Phase, look func(path string, e *expr.Expr)) {
	look(p.Path+".timeout.after", p.TimeoutExpr)
	for i, r := range p.Requirements {
		look(fmt.Sprintf("%s.require[%d].when", p.Path, i), r.WhenExpr)
	}
	for i := range p.StepList {
		c.evaluatedIn(&p.StepList[i], look)
	}
	for i, x := range p.Exits {
		look(fmt.Sprintf("%s.next[%d].when", p.Path, i), x.WhenExpr)
		for _, a := range x.Assigns {
			look(a.Path, a.Expr)
		}
	}
}

func (c *linter) evaluatedIn(s *program.Step, look func(path string, e *expr.Expr)) {
	look(s.Path+".if", s.IfExpr)
	look(s.Path+".keys", s.KeysExpr)
	if l := s.Loop; l != nil {
		look(s.Path+".forEach.in", l.In)
		look(s.Path+".forEach.key", l.Key)
		look(s.Path+".forEach.parallel", l.ParallelExpr)
	}
	look(s.Path+".wait", s.WaitExpr)
	look(s.Path+".timeout", s.LimitExpr)
	look(s.Path+".failWhen", s.FailWhenExpr)
	look(s.Path+".until", s.UntilExpr)
	actions := []*program.Action{s.Bound}
	switch {
	case s.Acquires != "": // what would release it is put on record first
		actions = append(actions, c.prog.Effects[s.Acquires].BoundRelease)
	case s.Releases != "": // from what is on record
		actions = nil
	}
	for _, a := range actions {
		for _, v := range a.With {
			v.Each(func(e *expr.Expr) { look(s.Path, e) })
		}
	}
}

// output is one that an expression reads: as the last of its name in result, or by the name of its step. Without a name it is
// all that the step has said.
type output struct{ step, name string }

func (o output) String() string {
	if o.step == "" {
		return expr.VarResult + "." + o.name
	}
	return strings.TrimSuffix(expr.VarSteps+"."+o.step+"."+o.name, ".")
}

// isOf tells whether it is an output of a step; last: no later one has replaced it in result.
func (o output) isOf(step, name string, last bool) bool {
	return o.step == "" && last && o.name == name || o.step == step && (o.name == "" || o.name == name)
}

// outputsOf are the outputs that an expression reads, be it through variables.
func (c *linter) outputsOf(e *expr.Expr) (all []output) {
	c.through(e, func(e *expr.Expr) {
		for _, name := range e.Reads(expr.VarResult) {
			all = append(all, output{name: name})
		}
		for _, path := range e.Paths(expr.VarSteps) {
			all = append(all, output{path[0], append(path, "")[1]})
		}
	})
	return all
}
