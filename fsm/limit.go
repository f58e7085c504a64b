package fsm

import "context"

// A step with a timeout that is not done in its time has failed for good. It fails at that time, not at its next poll: what it
// waits for, and the backoff of an error, end then. Where nothing catches that, the step is tried again as after any terminal
// error, and may be done by then.

// limit notes when the current step must be done.
func (c currentStep) limit(ctx context.Context) {
	if c.s.TimeLimit > 0 {
		c.stepDue = c.st.StepEnteredAt.Add(c.atMost(ctx, c.s.LimitExpr, c.s.TimeLimit))
	}
}

// outOfTime ends a step that is not done, before anything more is done for it.
func (c currentStep) outOfTime(ctx context.Context) *Decision {
	if !c.late(c.input.Now()) || c.toldLate() {
		return nil
	}
	return c.fail(ctx, c.timedOut(c.waitingFor(ctx, c.p)))
}

// toldLate tells that the step has failed by that before: no other backoff goes on for longer than its time.
func (c currentStep) toldLate() bool {
	return c.st.Attempts > 0 && c.st.NotBefore != nil && c.st.NotBefore.After(c.stepDue)
}
