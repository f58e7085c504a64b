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

// resultsOf are the outputs that an expression reads, be it through variables.
func (c *linter) resultsOf(e *expr.Expr) []string {
	if e == nil {
		return nil
	}
	names := e.Reads(expr.VarResult)
	for _, f := range e.Reads(expr.VarVariables) {
		names = append(names, c.resultsOf(c.prog.Variables[f])...)
	}
	return names
}
