package fsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// steps walks on from the step index; nil means that the last step is done.
func (r *Run) steps(ctx context.Context, p *program.Phase) *Decision {
	for int(r.st.StepIndex) < len(p.StepList) {
		s := &p.StepList[r.st.StepIndex]
		r.st.Step = s.Label
		if (s.WaitFor > 0 || s.TimeLimit > 0) && r.st.StepEnteredAt == nil {
			r.st.StepEnteredAt = new(r.now())
		}
		r.limit(ctx, s)
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
		return r.wait(ctx, s, p)
	case s.Undo != "":
		return r.undoNext(ctx, s, p)
	case s.Loop != nil:
		return r.loop(ctx, s, p)
	}
	switch d := r.outOfTime(ctx, s, p); {
	case d != nil:
		return d
	case s.Acquires != "" && !r.st.IsHeld(s.Acquires):
		return r.hold(ctx, s, p)
	}
	return r.call(ctx, s, p)
}

func (r *Run) undoNext(ctx context.Context, s *program.Step, p *program.Phase) *Decision {
	at, err := r.nextUndo(ctx, s)
	switch {
	case err != nil:
		return r.fail(ctx, Result{Err: err, Class: program.ClassInvalid}, s.Backoff, p)
	case at < 0:
		r.advance()
		return nil
	}
	if d := r.outOfTime(ctx, s, p); d != nil {
		return d
	}
	return r.undo(ctx, s, p, r.st.Held[at])
}

func (r *Run) wait(ctx context.Context, s *program.Step, p *program.Phase) *Decision {
	d, err := r.waitOf(ctx, s)
	if err != nil {
		return r.fail(ctx, Result{Err: err, Class: program.ClassInvalid}, s.Backoff, p)
	}
	left := d - r.input.Now().Sub(r.st.StepEnteredAt.Time)
	if left <= 0 {
		r.advance()
		return nil
	}
	r.resetBackoff()
	text := s.Wait
	if s.WaitExpr != nil {
		text = d.String()
	}
	r.message = cmp.Or(s.Text.Render(r.value(ctx)), "Waiting "+text)
	return r.sleep(left)
}

// done takes the outcome of the action that Decide asked for.
func (r *Run) done(ctx context.Context, o Result) {
	d, p := r.acting, r.phase()
	r.acting = nil
	s := &p.StepList[r.st.StepIndex]
	if s.Loop != nil {
		r.itemDone(ctx, s, o)
		return
	}
	if w, is := errors.AsType[*WaitError](o.Err); is {
		r.st.Streak = nil
		r.waits(ctx, s, w.Message, "the step is not done", expr.Clip(w.Message, v1alpha1.TextLimit), w.After)
		return
	}
	if o.Err == nil {
		if err := r.merge(s.Label, o.Outputs); err != nil {
			o.Err = Terminal("BadOutputs", "%s: %w", d.Action, err)
		}
	}
	if o.Err == nil {
		o = r.checked(ctx, s)
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
		r.st.Streak = nil
		r.waits(ctx, s, untilMessage(s), asked.because, asked.got, 0)
		return
	}
	if left := r.counts(s); left > 0 {
		seen := fmt.Sprintf("%d of %d in a row", r.st.Streak.Count, s.Consecutive)
		r.waits(ctx, s, untilMessage(s)+": "+seen, expr.Clip(s.Until, v1alpha1.TextLimit), seen, left)
		return
	}
	r.recordRequests(ctx, s.UntilExpr)
	r.st.Acquiring = ""
	r.advance()
	if p.Kind != v1alpha1.PhaseSteady && r.input.Now().Sub(r.began) >= longStep {
		r.commit(nil)
	}
}

func untilMessage(s *program.Step) string {
	return fmt.Sprintf("Waiting in step %s until %s", s.Label, s.Until)
}

// waits ends the run at a step that is not done: by its own words, or by until.
func (r *Run) waits(ctx context.Context, s *program.Step, message, because, got string, after time.Duration) {
	if p := r.phase(); r.late(r.input.Now()) {
		r.fail(ctx, r.timedOut(p, cmp.Or(got, message)), s.Backoff, p)
		return
	}
	r.resetBackoff()
	r.message = cmp.Or(s.Text.Render(r.value(ctx)), message)
	r.st.Blocked = []v1alpha1.Blocked{{Step: s.Label, Guard: because, Value: got}}
	after = cmp.Or(max(after, 0), s.PollEvery, defaultPoll)
	if r.called {
		r.polls(after)
	}
	r.next = r.sleep(after)
}

// Apply carries out what Decide asked for with RunAction: it fires the event of the step, which calls do, once, unless the
// machine refuses the event. The error is that of do: the run is to be thrown away then.
func (r *Run) Apply(ctx context.Context, do Do) error {
	if r.acting == nil {
		return nil
	}
	f := &firing{step: r.acting, do: do}
	err := r.fire(ctx, f.step.Step, f)
	switch {
	case f.dropped != nil:
		r.acting = nil
		return f.dropped
	case f.called && (err == nil || f.outcome.Err != nil):
		r.done(ctx, f.outcome)
	default:
		r.acting = nil
		r.next = r.refuse(err)
	}
	return nil
}
