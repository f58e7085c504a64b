package fsm

import (
	"cmp"
	"context"
	"fmt"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

// admit checks the preconditions, then puts the finalizer in place: nothing
// that needs undoing may happen before. A finalizer that is there already proves
// nothing: it may come from a manifest or a backup, or from an earlier visit.
func (r *Run) admit(ctx context.Context, p *program.Phase) *Decision {
	if p.Deletion || p.Terminal != "" || r.input.Deleting || r.input.Gone {
		return nil
	}
	if d := r.require(ctx, p); d != nil {
		return d
	}
	if r.input.Finalizer || r.m.def.Spec.Finalizer == "" {
		return nil
	}
	return &Decision{Do: AddFinalizer}
}

// require is asked before the first step, while nothing is held.
func (r *Run) require(ctx context.Context, p *program.Phase) *Decision {
	if r.begun() {
		return nil
	}
	for _, q := range p.Requirements {
		asked := r.truth(ctx, q.WhenExpr)
		if asked.err != nil {
			return r.fail(ctx, Result{Err: fmt.Errorf("checking whether %s: %w", q.When, asked.err), Class: program.ClassUnavailable}, p.Backoff, p)
		}
		if !asked.open {
			return r.take(ctx, program.RequireEvent(q.Require), firing{message: cmp.Or(q.Text.Render(r.value(ctx)), asked.got)})
		}
	}
	if !r.bypassing() { // it is the step that failed, of a phase that begins anew
		r.resetBackoff()
	}
	return nil
}
