package lint

import (
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/phasegate/phasegate/fsm/expr"
)

// whileHeld tells what a guard comes to while an effect is held; nil is always true.
func (c *linter) whileHeld(e *expr.Expr, effect string) expr.Truth {
	if e == nil {
		return expr.Always
	}
	key := [2]string{e.Text, effect}
	if known, ok := c.whileHolding[key]; ok {
		return known
	}
	found := c.decideHeld(e, effect)
	c.whileHolding[key] = found
	return found
}

func (c *linter) decideHeld(e *expr.Expr, effect string) expr.Truth {
	tree := expr.Parse(e.Text)
	if tree == nil {
		return expr.Perhaps
	}
	var atom func(celast.Expr) expr.Truth
	atom = func(e celast.Expr) expr.Truth {
		if r := expr.Selected(e); len(r) == 2 && r[0] == expr.VarVariables {
			if variable := c.prog.Variables[r[1]]; variable != nil {
				if tree := expr.Parse(variable.Text); tree != nil {
					return expr.Decide(tree.Expr(), atom)
				}
			}
		}
		return asksHeld(e, effect)
	}
	return expr.Decide(tree.Expr(), atom)
}

// asksHeld knows `"effect" in held` and comparisons of held's size with 0.
func asksHeld(e celast.Expr, effect string) expr.Truth {
	if e.Kind() != celast.CallKind || len(e.AsCall().Args()) != 2 {
		return expr.Perhaps
	}
	call := e.AsCall()
	left, right := call.Args()[0], call.Args()[1]
	if call.FunctionName() == operators.In {
		if isIdent(right, expr.VarHeld) && isLiteral(left, effect) {
			return expr.Always
		}
		return expr.Perhaps
	}
	if !isSizeOfHeld(left) || !isLiteral(right, int64(0)) {
		return expr.Perhaps
	}
	switch call.FunctionName() {
	case operators.Greater, operators.NotEquals:
		return expr.Always
	case operators.Equals, operators.LessEquals:
		return expr.Never
	}
	return expr.Perhaps
}

func isIdent(e celast.Expr, name string) bool {
	return e.Kind() == celast.IdentKind && e.AsIdent() == name
}

func isLiteral(e celast.Expr, value any) bool {
	return e.Kind() == celast.LiteralKind && e.AsLiteral().Value() == value
}

// isSizeOfHeld reads size(held) and held.size().
func isSizeOfHeld(e celast.Expr) bool {
	if e.Kind() != celast.CallKind || e.AsCall().FunctionName() != "size" {
		return false
	}
	call := e.AsCall()
	return call.IsMemberFunction() && isIdent(call.Target(), expr.VarHeld) ||
		len(call.Args()) == 1 && isIdent(call.Args()[0], expr.VarHeld)
}
