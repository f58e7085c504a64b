package expr

import (
	"context"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// Expr is a compiled expression; it is safe for concurrent use.
type Expr struct {
	Text string
	// prog counts what it costs, watch remembers what each part came to: the library
	// observes one of the two only.
	prog, watch cel.Program
	Out         *cel.Type
	// refs are the maximal selections that begin at one of our roots: result.conflicts.
	refs []exprRef
	// cause finds the part that made it true or false.
	cause *cause
	// PerItem: it reads the item of a forEach.
	PerItem bool
}

// exprRef is a selection such as result.conflicts.
type exprRef struct {
	root, field string
	// names are the root and what is selected of it; offsets is where each begins.
	names   []string
	offsets []int
	// text is how it is told to people.
	text string
	// maybe is the first of the names of which it is asked whether it is there, or what there is if it is; 0: none.
	maybe int
	id    int64
	// chain are the ids of the selections in it.
	chain []int64
}

// nameless references are refused: only a name written out can be checked, called
// lazily and recorded.
func (r exprRef) nameless() bool {
	return r.field == "" && slices.Contains([]string{VarVariables, VarRequest, VarGuards, VarState, VarSteps}, r.root)
}

// Problem is a finding inside an expression.
type Problem struct {
	Code, Message, Fix string
	Severity           diag.Severity
	// Offset counts characters from 0.
	Offset int
	id     int64
}

// IsBool tells whether it can be a guard.
func (e *Expr) IsBool() bool {
	return slices.Contains([]types.Kind{types.BoolKind, types.DynKind, types.AnyKind}, e.Out.Kind())
}

// Reads lists the names after a root: reads("guards") of `guards.a && guards.b` is a, b.
func (e *Expr) Reads(root string) []string {
	if e == nil {
		return nil
	}
	var names []string
	for _, r := range e.refs {
		if r.root == root && r.field != "" && !slices.Contains(names, r.field) {
			names = append(names, r.field)
		}
	}
	return names
}

// Paths are what is read after a root, in names: [spec replicas] of self.spec.replicas.
func (e *Expr) Paths(root string) (paths [][]string) {
	for _, r := range e.refs {
		if r.root == root && len(r.names) > 1 {
			paths = append(paths, r.names[1:])
		}
	}
	return paths
}

// Needs are those of Reads that must be there: the expression does not ask for them with has(), nor read them by .?name.
func (e *Expr) Needs(root string) []string {
	return slices.DeleteFunc(e.Reads(root), func(name string) bool {
		return slices.ContainsFunc(e.refs, func(r exprRef) bool { return r.root == root && r.field == name && r.maybe > 0 })
	})
}

// TypeOf is the type of a compiled expression; of one with a finding any, so that
// one mistake is one finding.
func TypeOf(e *Expr) *cel.Type {
	if e == nil {
		return cel.DynType
	}
	return e.Out
}

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
	if e == nil || len(e.refs) > 0 || e.PerItem {
		return nil, false
	}
	v, _, _ = e.prog.Eval(cel.NoVars()) // an error is a value
	return v, true
}

// ReadsBeside tells whether it reads anything that is not known: known gets a root and the name after it, if there is one.
func (e *Expr) ReadsBeside(known func(root, name string) bool) bool {
	return slices.ContainsFunc(e.refs, func(r exprRef) bool { return !known(r.root, r.field) })
}
