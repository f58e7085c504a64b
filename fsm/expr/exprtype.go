package expr

import "github.com/google/cel-go/cel"

// TypeOf is the type of a compiled expression; of one with a finding any, so that
// one mistake is one finding.
func TypeOf(e *Expr) *cel.Type {
	if e == nil {
		return cel.DynType
	}
	return e.Out
}
