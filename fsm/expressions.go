package fsm

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
)

// compile also notes what was compiled, and which guards of the program the file asks.
func (c *compiler) compile(text string) (*expr, []compileError) {
	e, errs := c.scope.compile(text)
	if !slices.Contains(c.prog.texts, text) {
		c.prog.texts = append(c.prog.texts, text)
	}
	for _, name := range e.reads(varGuards) {
		if !slices.Contains(c.prog.guards, name) {
			c.prog.guards = append(c.prog.guards, name)
		}
	}
	return e, errs
}

// expr compiles an expression; what it may see is what the scope says now.
func (c *compiler) expr(path, text string, wantBool bool) *expr {
	e, errs := c.compile(text)
	c.findIn(path, text, errs)
	if e != nil && wantBool && !e.isBool() {
		c.find(path, "PG007", fmt.Sprintf("guard %q is %s, not a boolean", text, e.out), "compare it with something")
	}
	return e
}

func (c *compiler) template(path, text string) *template {
	if text == "" {
		return nil
	}
	t, errs := parseTemplate(text, c.compile)
	c.findIn(path, text, errs)
	for _, part := range t.parts {
		if part.expr != nil && len(t.parts) > 1 {
			c.prog.inText[part.expr.text] = true
		}
	}
	return t
}

// findIn points into the text that stands at a path.
func (c *compiler) findIn(path, text string, errs []compileError) {
	for _, e := range errs {
		x := c.def.Finding(path, e.code, e.message, e.fix)
		x.Pos = c.def.Inside(path, text, e.offset)
		if e.severity != "" {
			x.Severity = e.severity
		}
		c.diags = append(c.diags, x)
	}
}

// typeOf is the type of a compiled expression; of one with a finding any, so that
// one mistake is one finding.
func typeOf(e *expr) *cel.Type {
	if e == nil {
		return cel.DynType
	}
	return e.out
}
