package fsm

import (
	"context"
	"errors"
	"time"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

// A step with a timeout that is not done in its time has failed for good. It fails at that time, not at its next poll: what it
// waits for, and the backoff of an error, end then. Where nothing catches that, the step is tried again as after any terminal
// error, and may be done by then.

// limit notes when the current step must be done.
func (r *Run) limit(ctx context.Context, s *program.Step) {
	if s.TimeLimit > 0 {
		r.stepDue = r.st.StepEnteredAt.Add(r.atMost(ctx, s.LimitExpr, s.TimeLimit))
	}
}

// late tells that the current step was not done in its time.
func (r *Run) late() bool { return !r.stepDue.IsZero() && !r.input.Now().Before(r.stepDue) }

// outOfTime ends a step that is not done, before anything more is done for it.
func (r *Run) outOfTime(ctx context.Context, s *program.Step, p *program.Phase) *Decision {
	if !r.late() || r.toldLate() {
		return nil
	}
	return r.fail(ctx, r.timedOut(p, r.waitingFor(ctx, p)), s.Backoff, p)
}

// toldLate tells that the step has failed by that before: no other backoff goes on for longer than its time.
func (r *Run) toldLate() bool {
	return r.st.Attempts > 0 && r.st.NotBefore != nil && r.st.NotBefore.After(r.stepDue)
}

// beforeLimit shortens a pause to the time that is left for the current step.
func (r *Run) beforeLimit(after time.Duration) time.Duration {
	if r.stepDue.IsZero() || r.late() {
		return after
	}
	if left := r.stepDue.Sub(r.input.Now()); after == 0 || left < after {
		return left
	}
	return after
}

// timedOut is what a step comes to that is not done in its time; what it was at then.
func (r *Run) timedOut(p *program.Phase, what string) Result {
	s := &p.StepList[r.st.StepIndex]
	return Result{Err: Terminal("StepTimedOut", "%s is not done after %s: %s", s.Label, r.stepDue.Sub(r.st.StepEnteredAt.Time), what)}
}

// inTime is what came of a step: an error that would be retried ends it where its time is up.
func (r *Run) inTime(o Result, p *program.Phase) Result {
	if _, ends := errors.AsType[*TerminalError](o.Err); ends || o.Class == program.ClassTerminal || !r.late() {
		return o
	}
	return r.timedOut(p, o.Err.Error())
}
