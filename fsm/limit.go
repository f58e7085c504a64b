package fsm

import (
	"context"

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

// outOfTime ends a step that is not done, before anything more is done for it.
func (r *Run) outOfTime(ctx context.Context, s *program.Step, p *program.Phase) *Decision {
	if !r.late(r.input.Now()) || r.toldLate() {
		return nil
	}
	return r.fail(ctx, r.timedOut(p, r.waitingFor(ctx, p)), s.Backoff, p)
}

// toldLate tells that the step has failed by that before: no other backoff goes on for longer than its time.
func (r *Run) toldLate() bool {
	return r.st.Attempts > 0 && r.st.NotBefore != nil && r.st.NotBefore.After(r.stepDue)
}
