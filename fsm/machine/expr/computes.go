package expr

import (
	"slices"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// arithmetic makes another value of what it is given.
var arithmetic = []string{operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate}

// Computes are those of Paths that are computed with: [spec replicas] of `self.spec.replicas + 1`.
func (e *Expr) Computes(root string) (paths [][]string) {
	tree := Parse(e.Text)
	if tree == nil {
		return nil
	}
	celast.PreOrderVisit(tree.Expr(), celast.NewExprVisitor(func(x celast.Expr) {
		if x.Kind() != celast.CallKind || !slices.Contains(arithmetic, x.AsCall().FunctionName()) {
			return
		}
		for _, r := range references(e.Text, tree, x, func(name string) bool { return name == root }) {
			if len(r.names) > 1 {
				paths = append(paths, r.names[1:])
			}
		}
	}))
	return paths
}
