package fsm

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// early ends a look that comes before a step that failed may be tried again.
func (r *Run) early(ctx context.Context, p *program.Phase) *Decision {
	if !r.backingOff() || r.BypassesBackoff() {
		return nil
	}
	if r.begun() {
		if d := r.admit(ctx, p); d != nil {
			return d
		}
	}
	step := cmp.Or(r.st.Step, "require")
	r.st.Blocked = []v1alpha1.Blocked{{Step: step, Guard: fmt.Sprintf("error, attempt %d", r.st.Attempts)}}
	return r.stay(r.st.NotBefore.Time, fmt.Sprintf("%s failed (attempt %d), next at %s", step, r.st.Attempts, r.st.NotBefore.UTC().Format(time.RFC3339)))
}

// stay ends a look at which nothing was done. The message is for a status that does not show the
// stored state; else what it says is still true, and says more.
func (r *Run) stay(until time.Time, message string) *Decision {
	r.message = message
	d := r.sleep(until.Sub(r.input.Now()))
	d.Early = r.stall == nil
	return d
}

// Postpone is for a driver that cannot make the call now that Decide has asked for, in place of Apply. It counts as not
// made: what was done before it is kept, and the step is due as soon as the driver looks again, after the time at the latest.
func (r *Run) Postpone(after time.Duration) Decision {
	s := r.atStep().s
	r.acting = nil
	return r.decided(r.leaveOff(s.Label+" waits for its turn: as many calls outside the cluster are under way as may be", r.input.Now().Add(after)))
}

// polls says when what is outside the cluster may be called again. Only the first time of a visit
// is stored: looks that change nothing write nothing.
func (r *Run) polls(after time.Duration) {
	r.due = r.input.Now().Add(after)
	if r.st.NotBefore == nil {
		r.holdBack(after)
	}
	r.st.TriedGeneration = r.input.Generation
}

// notDue ends a look that comes to a step that must not be called yet.
func (c currentStep) notDue() *Decision {
	if c.edited || !c.input.Now().Before(c.due) {
		return nil
	}
	return c.leaveOff(fmt.Sprintf("%s is called again at %s", c.s.Label, c.due.UTC().Format(time.RFC3339)), c.due)
}

// leaveOff ends a look before a call outside the cluster. Where the step waits already, or the look is a new one at a phase
// whose exits were closed and has called nothing, nothing has come of it.
func (r *Run) leaveOff(message string, until time.Time) *Decision {
	was := r.was
	again := was != nil && was.StepIndex == 0 && was.Step == "" && !r.outside
	if !again && (was == nil || was.StepIndex != r.st.StepIndex || was.Step != r.st.Step || !reflect.DeepEqual(was.Loop, r.st.Loop)) {
		r.message = message
		return r.sleep(until.Sub(r.input.Now()))
	}
	deadline := r.st.Deadline
	r.st, r.result = *was.DeepCopy(), decodeResult(was.Result)
	r.st.Deadline = deadline
	if r.st.StepEnteredAt == nil { // nothing of the look counts
		r.stepDue = time.Time{}
	}
	return r.stay(until, message)
}
