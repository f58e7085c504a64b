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
		if d := r.atStep().oneStep(ctx); d != nil {
			return d
		}
	}
	return nil
}

// oneStep is nil where the run goes on with the next.
func (c currentStep) oneStep(ctx context.Context) *Decision {
	c.st.Step = c.s.Label
	if (c.s.WaitFor > 0 || c.s.TimeLimit > 0) && c.st.StepEnteredAt == nil {
		c.st.StepEnteredAt = new(c.now())
	}
	c.limit(ctx)
	asked := c.truth(ctx, c.s.IfExpr)
	if asked.err != nil {
		return c.fail(ctx, Result{Err: fmt.Errorf("if %s: %w", c.s.If, asked.err), Class: program.ClassUnavailable})
	}
	if !asked.open {
		c.advance()
		return nil
	}
	return c.byKind(ctx)
}

func (c currentStep) byKind(ctx context.Context) *Decision {
	switch {
	case c.s.WaitFor > 0:
		return c.wait(ctx)
	case c.s.Undo != "":
		return c.undoNext(ctx)
	case c.s.Loop != nil:
		return c.loop(ctx)
	}
	switch d := c.outOfTime(ctx); {
	case d != nil:
		return d
	case c.s.Acquires != "" && !c.st.IsHeld(c.s.Acquires):
		return c.hold(ctx)
	}
	return c.call(ctx)
}

func (c currentStep) undoNext(ctx context.Context) *Decision {
	at, err := c.nextUndo(ctx)
	switch {
	case err != nil:
		return c.invalid(ctx, err)
	case at < 0:
		c.advance()
		return nil
	}
	if d := c.outOfTime(ctx); d != nil {
		return d
	}
	return c.undo(ctx, c.st.Held[at])
}

func (c currentStep) wait(ctx context.Context) *Decision {
	d, err := c.waitOf(ctx, c.s)
	if err != nil {
		return c.invalid(ctx, err)
	}
	left := d - c.input.Now().Sub(c.st.StepEnteredAt.Time)
	if left <= 0 {
		c.advance()
		return nil
	}
	c.resetBackoff()
	text := c.s.Wait
	if c.s.WaitExpr != nil {
		text = d.String()
	}
	c.message = cmp.Or(c.s.Text.Render(c.value(ctx)), "Waiting "+text)
	return c.sleep(left)
}

// done takes the outcome of the action that Decide asked for.
func (c currentStep) done(ctx context.Context, o Result) {
	d, s := c.acting, c.s
	c.acting = nil
	if s.Loop != nil {
		c.itemDone(ctx, o)
		return
	}
	if w, is := errors.AsType[*WaitError](o.Err); is {
		c.st.Streak = nil
		c.waits(ctx, w.Message, "the step is not done", expr.Clip(w.Message, v1alpha1.TextLimit), w.After)
		return
	}
	if o.Err == nil {
		if err := c.merge(s.Label, o.Outputs); err != nil {
			o.Err = Terminal("BadOutputs", "%s: %w", d.Action, err)
		}
	}
	if o.Err == nil {
		o = c.checked(ctx)
	}
	if o.Err != nil {
		c.fail(ctx, o)
		return
	}
	c.resetBackoff()
	if d.Effect != "" {
		// Durable at once: a release that runs again after a later one succeeded
		// would meet a world that is restored already, and disturb it.
		c.removeHeld(d.Effect)
		c.due, c.called = time.Time{}, false
		c.message = "Released " + d.Effect
		c.commit(nil)
		return
	}
	c.removeHeld(s.Releases)
	asked := c.truth(ctx, s.UntilExpr)
	if !asked.open {
		c.st.Streak = nil
		c.waits(ctx, untilMessage(s), asked.because, asked.got, 0)
		return
	}
	if left := c.counts(s); left > 0 {
		seen := fmt.Sprintf("%d of %d in a row", c.st.Streak.Count, s.Consecutive)
		c.waits(ctx, untilMessage(s)+": "+seen, expr.Clip(s.Until, v1alpha1.TextLimit), seen, left)
		return
	}
	c.recordRequests(ctx, s.UntilExpr)
	c.st.Acquiring = ""
	c.advance()
	if c.p.Kind != v1alpha1.PhaseSteady && c.input.Now().Sub(c.began) >= longStep {
		c.commit(nil)
	}
}

func untilMessage(s *program.Step) string {
	return fmt.Sprintf("Waiting in step %s until %s", s.Label, s.Until)
}

// waits ends the run at a step that is not done: by its own words, or by until.
func (c currentStep) waits(ctx context.Context, message, because, got string, after time.Duration) {
	if c.late(c.input.Now()) {
		c.fail(ctx, c.timedOut(cmp.Or(got, message)))
		return
	}
	c.resetBackoff()
	c.message = cmp.Or(c.s.Text.Render(c.value(ctx)), message)
	c.st.Blocked = []v1alpha1.Blocked{{Step: c.s.Label, Guard: because, Value: got}}
	after = cmp.Or(max(after, 0), c.s.PollEvery, defaultPoll)
	if c.called {
		c.polls(after)
	}
	c.next = c.sleep(after)
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
		r.atStep().done(ctx, f.outcome)
	default:
		r.acting = nil
		r.next = r.refuse(err)
	}
	return nil
}
