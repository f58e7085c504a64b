package fsm

import (
	"context"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Run is one pass over an object: a notebook that is thrown away afterwards. Decide and Apply take turns until the
// decision is another one than RunAction. It is not safe for concurrent use.
type Run struct {
	values
	// clock is Observation.Now; what the run sees of it is the moment of readClock.
	clock func() time.Time
	// acting is the step that Apply will carry out; began is when it was asked for.
	acting *Decision
	began  time.Time
	// round is the look at the items of the current step.
	round *round
	// next is decided by the outcome of an action or by a transition.
	next    *Decision
	message string
	stall   *stall
	// overdue: the deadline passed and has no target, so that it wakes nobody any more.
	overdue bool
	timing
}

// currentStep is the step that a run is at, in its phase.
type currentStep struct {
	*Run
	s *program.Step
	p *program.Phase
}

func (r *Run) atStep() currentStep {
	p := r.phase()
	return currentStep{r, &p.StepList[r.st.StepIndex], p}
}

// values are what expressions see of a state.
type values struct {
	state
	guards map[string]guardAnswer
	// self is Observation.Self as expressions see it; spent is what they cost so far.
	self  any
	spent uint64
	// left is why the phase is left; nil: not by an error, nor by its timeout.
	left *leaving
}

type leaving struct{ reason, message string }

type guardAnswer struct {
	open bool
	seen string
	err  error
}

type stall struct{ reason, message string }

// readClock lets all that is asked until it is called again see one moment: a time that passes between two questions would
// be to come for the one and over for the other.
func (r *Run) readClock() {
	now := r.clock()
	r.input.Now = func() time.Time { return now }
}

// sleep ends the run; a deadline cuts it short.
func (r *Run) sleep(after time.Duration) *Decision {
	after = r.beforeLimit(after, r.input.Now())
	if r.st.Deadline != nil && !r.overdue {
		if left := max(r.st.Deadline.Sub(r.input.Now()), time.Millisecond); after == 0 || left < after {
			after = left
		}
	}
	return &Decision{Do: Requeue, After: after}
}

// untilChange ends the run until something changes: there is nothing to look at again.
func untilChange() *Decision { return &Decision{Do: Requeue} }

func (r *Run) commit(took *v1alpha1.Transition) *Decision {
	r.next = &Decision{Do: Commit, Transition: took}
	return r.next
}

// Do calls an action, and answers what came of it. An error says that nothing of the run
// counts any more: the driver is ending, or the object is another one by now.
type Do func(ctx context.Context, d Decision) (Result, error)

// Stalled says why the run stands still; it is empty where it does not.
func (r *Run) Stalled() (reason, message string) {
	if r.stall == nil {
		return "", ""
	}
	return r.stall.reason, r.stall.message
}

// Decided tells whether the action that ended has decided what is next: else the run goes on.
func (r *Run) Decided() bool { return r.next != nil }

// bypassing tells that a step is tried before its time.
func (r *Run) bypassing() bool { return r.BypassesBackoff() && r.backingOff() }

// BypassesBackoff tells that a step that failed is tried at any moment: it was edited, or the phase waits for a
// person, who may have corrected what it failed for, and no number of errors leads out of it.
func (r *Run) BypassesBackoff() bool {
	p := r.phase()
	return r.edited || p != nil && p.Kind == v1alpha1.PhaseWaiting && !p.External
}

// decided adds to a decision that ends the run what the driver has to remember.
func (r *Run) decided(d *Decision) Decision {
	r.next = d
	if !r.due.IsZero() || r.st.NotBefore != nil && r.st.Attempts == 0 {
		d.Due = &r.due
	}
	return *d
}

// advance goes on to the next step.
func (r *Run) advance() {
	r.st.StepIndex++
	r.st.Step, r.st.StepEnteredAt, r.st.Loop, r.st.Streak = "", nil, nil, nil
	r.round, r.item, r.stepDue = nil, nil, time.Time{}
	r.resetBackoff()
	if r.called { // the next step was not
		r.due, r.called = time.Time{}, false
	}
}
