package expr

import (
	"context"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// variables answer what an expression reads, by the name of its root: self, result, held. They are asked only for what is
// read. It is the interface of CEL itself, so that nothing is made around them for each evaluation.
type variables = interpreter.Activation

// Eval answers the value, and what it cost to find it.
func (e *Expr) Eval(ctx context.Context, vars variables) (v ref.Val, cost uint64, err error) {
	v, details, err := e.prog.ContextEval(ctx, vars)
	if actual := details.ActualCost(); actual != nil {
		cost = *actual
	}
	return v, cost, err
}

// Partly evaluates with some of what could be read. What is not there is an error, and CEL lets && and || be decided in
// spite of one: a value is what the expression comes to whatever is not known.
func (e *Expr) Partly(known map[string]any) (ref.Val, error) {
	v, _, err := e.prog.Eval(known)
	return v, err
}

// Constant is the value of an expression that reads nothing; ok is false of any other.
func (e *Expr) Constant() (v ref.Val, ok bool) {
	if e == nil || len(e.refs) > 0 {
		return nil, false
	}
	v, _, _ = e.prog.Eval(cel.NoVars()) // an error is a value
	return v, true
}

// ReadsBeside tells whether it reads anything that is not known: known gets a root and the name after it, if there is one.
func (e *Expr) ReadsBeside(known func(root, name string) bool) bool {
	return slices.ContainsFunc(e.refs, func(r exprRef) bool { return !known(r.root, r.field) })
}
