package expr

import (
	"slices"

	celast "github.com/google/cel-go/common/ast"
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
func Selected(e celast.Expr) (path []string) {
	for _, l := range chainOf(e) {
		path = append(path, l.name)
	}
	return path
}
