package expr

import (
	"slices"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// AnnotationOf finds the annotation of the object that an expression reads first.
func AnnotationOf(text string) string {
	tree := Parse(text)
	if tree == nil {
		return ""
	}
	found := ""
	celast.PreOrderVisit(tree.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		path := Selected(e)
		if found == "" && len(path) == 4 && slices.Equal(path[:3], []string{VarSelf, "metadata", "annotations"}) {
			found = path[3]
		}
	}))
	return found
}

// Selected reads a.b, a.?b, a["b"] and a[?"b"] alike: the names from the outside
// in; nil of any other expression.
func Selected(e celast.Expr) []string {
	var operand celast.Expr
	var name string
	switch e.Kind() {
	case celast.IdentKind:
		return []string{e.AsIdent()}
	case celast.SelectKind:
		operand, name = e.AsSelect().Operand(), e.AsSelect().FieldName()
	case celast.CallKind:
		call := e.AsCall()
		if !slices.Contains([]string{operators.Index, operators.OptIndex, operators.OptSelect}, call.FunctionName()) ||
			call.Args()[1].Kind() != celast.LiteralKind {
			return nil
		}
		operand = call.Args()[0]
		name, _ = call.Args()[1].AsLiteral().Value().(string)
	}
	if operand == nil || name == "" {
		return nil
	}
	if path := Selected(operand); path != nil {
		return append(path, name)
	}
	return nil
}
