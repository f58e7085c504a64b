package expr

import celast "github.com/google/cel-go/common/ast"

// isFree tells whether an expression reads a name, and not a variable that a macro in it has given the name.
func isFree(e celast.Expr, name string) bool {
	switch e.Kind() {
	case celast.IdentKind:
		return e.AsIdent() == name
	case celast.ComprehensionKind:
		c := e.AsComprehension()
		if isFree(c.IterRange(), name) || isFree(c.AccuInit(), name) {
			return true
		}
		if c.IterVar() == name || c.IterVar2() == name || c.AccuVar() == name {
			return false
		}
		return isFree(c.LoopCondition(), name) || isFree(c.LoopStep(), name) || isFree(c.Result(), name)
	}
	for _, part := range celast.NavigateExpr(nil, e).Children() {
		if isFree(part, name) {
			return true
		}
	}
	return false
}
