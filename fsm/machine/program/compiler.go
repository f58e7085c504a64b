package program

import (
	"fmt"
	"slices"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// findings is what is wrong in a file.
type findings struct {
	def   *Definition
	diags diag.Diagnostics
	// declared is where each name was declared first, by what it is of.
	declared map[string]string
}

// compiler makes a program of a file.
type compiler struct {
	*findings
	b     Bindings
	scope *expr.Scope
	prog  *Program
	// stateRead are the state values that something reads besides their own assignments.
	stateRead map[string]bool
}

func (f *findings) find(path, code, message, fix string) {
	f.diags = append(f.diags, f.def.Finding(path, code, message, fix))
}

func (f *findings) warn(path, code, message, fix string) {
	x := f.def.Finding(path, code, message, fix)
	x.Severity = diag.SeverityWarning
	f.diags = append(f.diags, x)
}

// compile also notes what was compiled, and which guards of the program the file asks.
func (c *compiler) compile(text string) (*expr.Expr, []expr.Problem) {
	e, errs := c.scope.Compile(text)
	if !slices.Contains(c.prog.Texts, text) {
		c.prog.Texts = append(c.prog.Texts, text)
	}
	for _, name := range e.Reads(expr.VarState) {
		c.stateRead[name] = true
	}
	for _, name := range e.Reads(expr.VarSteps) {
		c.prog.StepsRead[name] = true
	}
	for _, name := range e.Reads(expr.VarGuards) {
		if !slices.Contains(c.prog.Guards, name) {
			c.prog.Guards = append(c.prog.Guards, name)
		}
	}
	return e, errs
}

// expr compiles an expression; what it may see is what the scope says now. Without a text there is none.
func (c *compiler) expr(path, text string, wantBool bool) *expr.Expr {
	if text == "" {
		return nil
	}
	e, errs := c.compile(text)
	c.findIn(path, text, errs)
	if e != nil && wantBool && !e.IsBool() {
		c.find(path, "PG007", fmt.Sprintf("guard %q is %s, not a boolean", text, e.Out), "compare it with something")
	}
	return e
}

func (c *compiler) template(path, text string) *expr.Template {
	if text == "" {
		return nil
	}
	t, errs := expr.ParseTemplate(text, c.compile)
	c.findIn(path, text, errs)
	for _, e := range t.Within() {
		c.prog.InText[e] = true
	}
	return t
}

// findIn points into the text that stands at a path.
func (f *findings) findIn(path, text string, errs []expr.Problem) {
	for _, e := range errs {
		x := f.def.Finding(path, e.Code, e.Message, e.Fix)
		x.Pos = f.def.Inside(path, text, e.Offset)
		if e.Severity != "" {
			x.Severity = e.Severity
		}
		f.diags = append(f.diags, x)
	}
}
