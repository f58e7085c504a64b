package fsm

import (
	"cmp"
	"context"
	"reflect"
	"time"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// call asks for the action of a step. Where it is about an effect that is held, what its
// parameters read is what they read when the effect was taken.
func (r *Run) call(ctx context.Context, s *program.Step, p *program.Phase) *Decision {
	fixed, err := r.fixed(s)
	var with expr.Params
	if err == nil {
		err = r.differs(ctx, s, fixed)
	}
	if err == nil {
		with, err = s.Bound.Params(r.value(ctx), fixed)
	}
	if err != nil {
		return r.fail(ctx, Result{Err: err, Class: program.ClassInvalid}, s.Backoff, p)
	}
	return r.act(&Decision{Do: RunAction, Action: s.Bound.Use, Step: s.Label, StepID: s.ID, With: with, Releases: s.Releases != "", External: s.Bound.Spec.External}, s)
}

// act asks for an action, once it is due.
func (r *Run) act(d *Decision, s *program.Step) *Decision {
	r.began = r.input.Now()
	if d.External {
		if early := r.notDue(s); early != nil {
			return early
		}
		d.Due = new(r.began.Add(cmp.Or(s.PollEvery, defaultPoll)))
	}
	r.acting = d
	return d
}

// Asks tells whether the action that runs would be asked for in the same way of the object as it is by
// now, at the same moment: whether what the step reads of it is unchanged. It is for the time in which Apply calls it.
func (r *Run) Asks(ctx context.Context, self func() (map[string]any, error)) bool {
	if r.acting == nil {
		return false
	}
	s := &r.phase().StepList[r.st.StepIndex]
	if s.Undo != "" {
		return true // by what is on record
	}
	before, now := *r, *r
	before.input.Now = func() time.Time { return r.began }
	now.input.Now, now.input.Self, now.self = before.input.Now, self, nil
	if !now.truth(ctx, s.IfExpr).open {
		return false
	}
	fixed, err := r.fixed(s)
	if err != nil {
		return false
	}
	asked, errBefore := s.Bound.Params(before.value(ctx), fixed)
	asks, errNow := s.Bound.Params(now.value(ctx), fixed)
	return errBefore == nil && errNow == nil && reflect.DeepEqual(asked, asks)
}
