package expr

import (
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// Missing are the fields of self that an object of the schema may be without, and that the expression cannot do without, as
// texts: self.spec.a. One that it asks for with has(), or reads by .?name, is not among them.
func (e *Expr) Missing(s *Schema) (fields []string) {
	for _, r := range e.refs {
		n := s.maybeMissing(r.names[1:])
		if r.root != VarSelf || n == 0 || r.maybe > 0 && r.maybe <= n {
			continue
		}
		asked := func(other exprRef) bool {
			return other.root == VarSelf && other.maybe > 0 && other.maybe <= n && slices.Equal(other.names[:other.maybe+1], r.names[:other.maybe+1])
		}
		if text := strings.Join(r.names[:n+1], "."); !slices.ContainsFunc(e.refs, asked) && !slices.Contains(fields, text) {
			fields = append(fields, text)
		}
	}
	return fields
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
		return callNeedsSelf(e.AsCall())
	}
	return false
}

func callNeedsSelf(call celast.CallExpr) bool {
	switch call.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr:
		return false
	case operators.Conditional:
		return needsSelf(call.Args()[0])
	}
	return slices.ContainsFunc(call.Args(), needsSelf) || call.IsMemberFunction() && needsSelf(call.Target())
}
