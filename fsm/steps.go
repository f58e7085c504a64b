package fsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
	"github.com/phasegate/phasegate/fsm/program"
)

// steps walks on from the step index; nil means that the last step is done.
func (r *Run) steps(ctx context.Context, p *program.Phase) *Decision {
	for int(r.st.StepIndex) < len(p.StepList) {
		s := &p.StepList[r.st.StepIndex]
		r.st.Step = s.Label
		if s.WaitFor > 0 && r.st.StepEnteredAt == nil {
			r.st.StepEnteredAt = new(r.now())
		}
		asked := r.truth(ctx, s.IfExpr)
		if asked.err != nil {
			return r.fail(ctx, Result{Err: fmt.Errorf("if %s: %w", s.If, asked.err), Class: program.ClassUnavailable}, s.Backoff, p)
		}
		if !asked.open {
			r.advance()
			continue
		}
		if d := r.oneStep(ctx, s, p); d != nil {
			return d
		}
	}
	return nil
}

func (r *Run) oneStep(ctx context.Context, s *program.Step, p *program.Phase) *Decision {
	switch {
	case s.WaitFor > 0:
		if left := s.WaitFor - r.input.Now().Sub(r.st.StepEnteredAt.Time); left > 0 {
			r.message = cmp.Or(s.Text.Render(r.value(ctx)), "Waiting "+s.Wait)
			return r.sleep(left)
		}
		r.advance()
		return nil
	case s.Undo != "":
		if len(r.st.Held) == 0 {
			r.advance()
			return nil
		}
		return r.undo(ctx, s, p)
	case s.Acquires != "" && !r.st.IsHeld(s.Acquires):
		return r.hold(ctx, s, p)
	}
	return r.call(ctx, s, p)
}

// call asks for the action of a step. Where it is about an effect that is held, what its
// parameters read is what they read when the effect was taken.
func (r *Run) call(ctx context.Context, s *program.Step, p *program.Phase) *Decision {
	fixed, err := r.fixed(s)
	var with expr.Params
	if err == nil {
		with, err = s.Bound.Params(r.value(ctx), fixed)
	}
	if err != nil {
		return r.fail(ctx, Result{Err: err, Class: program.ClassInvalid}, s.Backoff, p)
	}
	return r.act(&Decision{Do: RunAction, Action: s.Bound.Use, Step: s.Label, StepID: s.ID, With: with, External: s.Bound.Spec.External}, s)
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

// done takes the outcome of the action that Decide asked for.
func (r *Run) done(ctx context.Context, o Result) {
	d, p := r.acting, r.phase()
	r.acting = nil
	s := &p.StepList[r.st.StepIndex]
	if w, is := errors.AsType[*WaitError](o.Err); is {
		r.waits(ctx, s, w.Message, "the step is not done", expr.Clip(w.Message, v1alpha1.TextLimit), w.After)
		return
	}
	if o.Err == nil {
		if err := r.merge(o.Outputs); err != nil {
			o.Err = Terminal("BadOutputs", "%s: %w", d.Action, err)
		}
	}
	if o.Err != nil {
		r.fail(ctx, o, s.Backoff, p)
		return
	}
	r.resetBackoff()
	if d.Effect != "" {
		// Durable at once: a release that runs again after a later one succeeded
		// would meet a world that is restored already, and disturb it.
		r.removeHeld(d.Effect)
		r.due, r.called = time.Time{}, false
		r.message = "Released " + d.Effect
		r.commit(nil)
		return
	}
	r.removeHeld(s.Releases)
	asked := r.truth(ctx, s.UntilExpr)
	if !asked.open {
		r.waits(ctx, s, fmt.Sprintf("Waiting in step %s until %s", s.Label, s.Until), asked.because, asked.got, 0)
		return
	}
	r.recordRequests(ctx, s.UntilExpr)
	r.advance()
	if p.Kind != v1alpha1.PhaseSteady && r.input.Now().Sub(r.began) >= longStep {
		r.commit(nil)
	}
}

// waits ends the run at a step that is not done: by its own words, or by until.
func (r *Run) waits(ctx context.Context, s *program.Step, message, because, got string, after time.Duration) {
	r.resetBackoff()
	r.message = cmp.Or(s.Text.Render(r.value(ctx)), message)
	r.st.Blocked = []v1alpha1.Blocked{{Step: s.Label, Guard: because, Value: got}}
	after = cmp.Or(max(after, 0), s.PollEvery, defaultPoll)
	if r.called {
		r.polls(after)
	}
	r.next = r.sleep(after)
}

func (r *Run) advance() {
	r.st.StepIndex++
	r.st.Step, r.st.StepEnteredAt = "", nil
	r.resetBackoff()
	if r.called { // the next step was not
		r.due, r.called = time.Time{}, false
	}
}
