package expr

import (
	"github.com/google/cel-go/common"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/parser"
)

// Truth is what can be said of an expression without evaluating it.
type Truth int

// What can be said.
const (
	Perhaps Truth = iota
	Never
	Always
)

// Certainly is what is known of a fact.
func Certainly(yes bool) Truth {
	if yes {
		return Always
	}
	return Never
}

func (v Truth) not() Truth {
	switch v {
	case Never:
		return Always
	case Always:
		return Never
	}
	return Perhaps
}

// Parse is the tree of an expression, unchecked; nil when it is none.
func Parse(text string) *celast.AST {
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

// Decide follows &&, ||, ! and ?: and asks only about what they connect.
func Decide(e celast.Expr, atom func(celast.Expr) Truth) Truth {
	switch e.Kind() {
	case celast.LiteralKind:
		if b, ok := e.AsLiteral().Value().(bool); ok {
			return Certainly(b)
		}
	case celast.CallKind:
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.LogicalNot:
			return Decide(call.Args()[0], atom).not()
		case operators.LogicalAnd:
			return strongest(Never, call.Args(), atom)
		case operators.LogicalOr:
			return strongest(Always, call.Args(), atom)
		case operators.Conditional:
			return conditional(call.Args(), atom)
		}
	}
	return atom(e)
}

// strongest is what one operand is enough for, else what all of them say.
func strongest(enough Truth, args []celast.Expr, atom func(celast.Expr) Truth) Truth {
	all := enough.not()
	for _, a := range args {
		switch Decide(a, atom) {
		case enough:
			return enough
		case Perhaps:
			all = Perhaps
		}
	}
	return all
}

func conditional(args []celast.Expr, atom func(celast.Expr) Truth) Truth {
	yes, no := Decide(args[1], atom), Decide(args[2], atom)
	switch Decide(args[0], atom) {
	case Always:
		return yes
	case Never:
		return no
	}
	if yes == no {
		return yes
	}
	return Perhaps
}
