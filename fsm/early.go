package fsm

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/program"
)

// An object may be woken at any moment: by a watch, an annotation, or a driver that was restarted.
// What must not come before its time is decided here, from what is stored and the clock:
//
//   - A step that failed is not tried again before its backoff is over (MachineStatus.NotBefore), by
//     nobody but a person who has changed the spec or the file since, or for whom the phase waits. Such a try
//     is an extra one: where it fails, it counts as no attempt and moves no backoff, so that edits use up no attempts.
//   - An action that calls something outside the cluster is called at its poll, and by an edit.
//
// All else costs nobody anything, and is looked at whenever something may have changed.

func (r *Run) timingOf(moved bool) timing {
	var t timing
	st, p := &r.st, r.phase()
	if moved && st.Attempts == 0 {
		st.NotBefore, st.TriedGeneration = nil, 0
	}
	if p != nil && p.External {
		t.was = st.DeepCopy()
	}
	t.edited = st.NotBefore != nil && (moved || st.TriedGeneration != r.input.Generation)
	switch {
	case p == nil || moved || st.Attempts > 0:
	case r.input.Due != nil:
		t.due = *r.input.Due
	case st.NotBefore != nil:
		t.due = onward(st.NotBefore.Time, r.pollOf(p), r.input.Now())
	}
	return t
}

// onward is the first of the times a poll apart that is yet to come. A driver that does not know when
// a step was called last calls it then: at its pace, however often the driver is restarted.
func onward(first time.Time, poll time.Duration, now time.Time) time.Time {
	if late := now.Sub(first); late >= 0 {
		return first.Add((late/poll + 1) * poll)
	}
	return first
}

// Due is what the driver remembers for Input.Due of the next run; nil is nothing. Stored tells
// that what this run came to was written. What it has called outside the cluster it has called all the same.
func (r *Run) Due(stored bool) *time.Time {
	switch {
	case !stored && r.again.IsZero():
		return r.input.Due
	case !stored:
		return new(r.again)
	case r.due.IsZero() && r.st.NotBefore == nil:
		return nil
	}
	return new(r.due)
}

// early ends a look that comes before a step that failed may be tried again.
func (r *Run) early(ctx context.Context, p *program.Phase) *Command {
	if r.st.Attempts == 0 || r.eager() || !r.heldBack() {
		return nil
	}
	if r.begun() {
		if cmd := r.admit(ctx, p); cmd != nil {
			return cmd
		}
	}
	step := cmp.Or(r.st.Step, "require")
	r.st.Blocked = []v1alpha1.Blocked{{Step: step, Guard: fmt.Sprintf("error, attempt %d", r.st.Attempts)}}
	return r.stay(r.st.NotBefore.Time, fmt.Sprintf("%s failed (attempt %d), next at %s", step, r.st.Attempts, r.st.NotBefore.UTC().Format(time.RFC3339)))
}

// stay ends a look at which nothing was done. The message is for a status that does not show the
// stored state; else what it says is still true, and says more.
func (r *Run) stay(until time.Time, message string) *Command {
	r.message = message
	cmd := r.sleep(until.Sub(r.input.Now()))
	cmd.Early = r.stall == nil
	return cmd
}

func (r *Run) heldBack() bool {
	return r.st.NotBefore != nil && r.input.Now().Before(r.st.NotBefore.Time)
}

// extra tells that a step is tried before its time, see eager.
func (r *Run) extra() bool { return r.eager() && r.st.Attempts > 0 && r.heldBack() }

// eager tells that a step that failed is tried at any moment: it was edited, or the phase waits for a
// person, who may have corrected what it failed for, and no number of errors leads out of it.
func (r *Run) eager() bool {
	p := r.phase()
	return r.edited || p != nil && p.Kind == v1alpha1.PhaseWaiting && !p.External
}

// holdBack keeps the current step from being called for a while.
func (r *Run) holdBack(d time.Duration) {
	d = min(d, r.longestWait(r.phase())) // as it is read
	r.st.NotBefore = new(metav1.NewMicroTime(r.input.Now().Add(d).Truncate(time.Microsecond)))
	r.st.TriedGeneration = r.input.Generation
}

// calm is for what is no error.
func (r *Run) calm() {
	if r.st.Attempts > 0 {
		r.st.NotBefore, r.st.TriedGeneration = nil, 0
	}
	r.st.Attempts, r.st.Blocked = 0, nil
}

// calls notes that the current step is about to call something outside the cluster, if it does.
func (r *Run) calls() {
	if !r.external {
		return
	}
	s := &r.phase().StepList[r.st.StepIndex]
	r.again = r.input.Now().Add(cmp.Or(s.PollEvery, defaultPoll))
	r.due, r.called = r.again, true
}

// Postpone is for a driver that cannot make the call now that Next has asked for, in place of Fire. It counts as not
// made: what was done before it is kept, and the step is due as soon as the driver looks again, after the time at the latest.
func (r *Run) Postpone(after time.Duration) Command {
	s := &r.phase().StepList[r.st.StepIndex]
	r.acting = nil
	r.next = r.leaveOff(s.Label+" waits for its turn: as many calls outside the cluster are under way as may be", r.input.Now().Add(after))
	return *r.next
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
func (r *Run) notDue(s *program.Step) *Command {
	if r.edited || !r.input.Now().Before(r.due) {
		return nil
	}
	return r.leaveOff(fmt.Sprintf("%s is called again at %s", s.Label, r.due.UTC().Format(time.RFC3339)), r.due)
}

// leaveOff ends a look before a call outside the cluster. Where the step waits already, or the look is a new one at a phase
// whose exits were closed and has called nothing, nothing has come of it.
func (r *Run) leaveOff(message string, until time.Time) *Command {
	was := r.was
	again := was != nil && was.StepIndex == 0 && was.Step == "" && r.again.IsZero()
	if !again && (was == nil || was.StepIndex != r.st.StepIndex || was.Step != r.st.Step) {
		r.message = message
		return r.sleep(until.Sub(r.input.Now()))
	}
	deadline := r.st.Deadline
	r.st, r.result = *was.DeepCopy(), decodeResult(was.Result)
	r.st.Deadline = deadline
	return r.stay(until, message)
}
