package lint

import (
	"fmt"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

type linter struct {
	def   *program.Definition
	prog  *program.Program
	diags diag.Diagnostics
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

// resultsOf are the outputs that an expression reads, be it through variables.
func (c *linter) resultsOf(e *expr.Expr) (names []string) {
	c.through(e, func(e *expr.Expr) { names = append(names, e.Reads(expr.VarResult)...) })
	return names
}
