package fsm

import (
	"github.com/google/cel-go/common"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/parser"
)

// verdict is what can be said of an expression without evaluating it.
type verdict int

const (
	perhaps verdict = iota
	never
	always
)

func certainly(yes bool) verdict {
	if yes {
		return always
	}
	return never
}

func (v verdict) not() verdict {
	switch v {
	case never:
		return always
	case always:
		return never
	}
	return perhaps
}

// syntax is the tree of an expression, unchecked; nil when it is none.
func syntax(text string) *celast.AST {
	p, err := parser.NewParser(parser.EnableOptionalSyntax(true), parser.Macros(parser.AllMacros...), parser.PopulateMacroCalls(true))
	if err != nil {
		return nil
	}
	tree, errs := p.Parse(common.NewTextSource(text))
	if len(errs.GetErrors()) > 0 {
		return nil
	}
	return tree
}

// decide follows &&, ||, ! and ?: and asks only about what they connect.
func decide(e celast.Expr, atom func(celast.Expr) verdict) verdict {
	switch e.Kind() {
	case celast.LiteralKind:
		if b, ok := e.AsLiteral().Value().(bool); ok {
			return certainly(b)
		}
	case celast.CallKind:
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.LogicalNot:
			return decide(call.Args()[0], atom).not()
		case operators.LogicalAnd:
			return strongest(never, call.Args(), atom)
		case operators.LogicalOr:
			return strongest(always, call.Args(), atom)
		case operators.Conditional:
			return conditional(call.Args(), atom)
		}
	}
	return atom(e)
}

// strongest is what one operand is enough for, else what all of them say.
func strongest(enough verdict, args []celast.Expr, atom func(celast.Expr) verdict) verdict {
	all := enough.not()
	for _, a := range args {
		switch decide(a, atom) {
		case enough:
			return enough
		case perhaps:
			all = perhaps
		}
	}
	return all
}

func conditional(args []celast.Expr, atom func(celast.Expr) verdict) verdict {
	yes, no := decide(args[1], atom), decide(args[2], atom)
	switch decide(args[0], atom) {
	case always:
		return yes
	case never:
		return no
	}
	if yes == no {
		return yes
	}
	return perhaps
}

// whileHeld tells what a guard comes to while an effect is held; nil is always true.
func (c *compiler) whileHeld(e *expr, effect string) verdict {
	if e == nil {
		return always
	}
	key := [2]string{e.text, effect}
	if known, ok := c.whileHolding[key]; ok {
		return known
	}
	found := c.decideHeld(e, effect)
	c.whileHolding[key] = found
	return found
}

func (c *compiler) decideHeld(e *expr, effect string) verdict {
	tree := syntax(e.text)
	if tree == nil {
		return perhaps
	}
	var atom func(celast.Expr) verdict
	atom = func(e celast.Expr) verdict {
		if r := selected(e); len(r) == 2 && r[0] == varFacts {
			if fact := c.prog.facts[r[1]]; fact != nil {
				if tree := syntax(fact.text); tree != nil {
					return decide(tree.Expr(), atom)
				}
			}
		}
		return asksHeld(e, effect)
	}
	return decide(tree.Expr(), atom)
}

// asksHeld knows `"effect" in held` and comparisons of held's size with 0.
func asksHeld(e celast.Expr, effect string) verdict {
	if e.Kind() != celast.CallKind || len(e.AsCall().Args()) != 2 {
		return perhaps
	}
	call := e.AsCall()
	left, right := call.Args()[0], call.Args()[1]
	if call.FunctionName() == operators.In {
		if isIdent(right, varHeld) && isLiteral(left, effect) {
			return always
		}
		return perhaps
	}
	if !isSizeOfHeld(left) || !isLiteral(right, int64(0)) {
		return perhaps
	}
	switch call.FunctionName() {
	case operators.Greater, operators.NotEquals:
		return always
	case operators.Equals, operators.LessEquals:
		return never
	}
	return perhaps
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
	return call.IsMemberFunction() && isIdent(call.Target(), varHeld) ||
		len(call.Args()) == 1 && isIdent(call.Args()[0], varHeld)
}
