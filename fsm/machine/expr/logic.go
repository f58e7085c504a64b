package expr

import (
	"slices"

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

// NeedsSelf tells what is so of an expression where there is no object: that it fails, whatever else is known; else, that it is
// never true, as its other parts can only make it false.
func (e *Expr) NeedsSelf() (fails, neverTrue bool) {
	if len(e.Paths(VarSelf)) == 0 {
		return false, false
	}
	tree := Parse(e.Text)
	if tree == nil {
		return false, false
	}
	return needsSelf(tree.Expr()), Decide(tree.Expr(), func(e celast.Expr) Truth {
		if needsSelf(e) {
			return Never
		}
		return Perhaps
	}) == Never
}

// needsSelf follows what CEL evaluates in any case: not what && and || can do without, nor what is done for each item of a list.
func needsSelf(e celast.Expr) bool {
	if links := chainOf(e); len(links) > 0 {
		maybe := slices.ContainsFunc(links, func(l link) bool { return l.test || l.optional })
		return links[0].name == VarSelf && len(links) > 1 && !maybe
	}
	switch e.Kind() {
	case celast.SelectKind:
		return needsSelf(e.AsSelect().Operand())
	case celast.ListKind:
		return slices.ContainsFunc(e.AsList().Elements(), needsSelf)
	case celast.ComprehensionKind:
		return needsSelf(e.AsComprehension().IterRange())
	case celast.CallKind:
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr:
			return false
		case operators.Conditional:
			return needsSelf(call.Args()[0])
		}
		return slices.ContainsFunc(call.Args(), needsSelf) || call.IsMemberFunction() && needsSelf(call.Target())
	}
	return false
}
