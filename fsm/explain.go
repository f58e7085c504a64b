package fsm

import (
	"context"
	"fmt"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
)

// GuardResult is how one guard of a phase stands.
type GuardResult struct {
	// Path is where the guard stands in the file, Guard is how it is written.
	Path, Guard string
	Open        bool
	// Because is the part of the guard that decided, Got are the values seen in
	// it: the words of status.machine.blocked.
	Because, Got string
	// Err says why it could not be evaluated; it is not open then.
	Err error
}

// Explain evaluates all guards of the phase that a status is in, in document
// order, and says of each what decided it. It is empty where the machine does not
// have the phase. The view must have Now and Guard; nothing is changed, and it may
// be called any number of times.
func (m *Machine) Explain(ctx context.Context, st v1alpha1.MachineStatus, v Input) []GuardResult {
	r := m.Run(st, v)
	p := r.phase()
	if p == nil {
		return nil
	}
	var all []GuardResult
	add := func(path string, e *expr.Expr) {
		if e == nil {
			return
		}
		s := r.activation(ctx)
		x := r.decide(e, s)
		r.explain(e, s, &x)
		all = append(all, GuardResult{Path: p.Path + path, Guard: e.Text, Open: x.open, Because: x.because, Got: x.got, Err: x.err})
	}
	for i, q := range p.Requirements {
		add(fmt.Sprintf(".require[%d].when", i), q.WhenExpr)
	}
	for i, s := range p.StepList {
		add(fmt.Sprintf(".steps[%d].if", i), s.IfExpr)
		add(fmt.Sprintf(".steps[%d].until", i), s.UntilExpr)
	}
	for i, x := range p.Exits {
		add(fmt.Sprintf(".next[%d].when", i), x.WhenExpr)
	}
	return all
}
