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

// All times of a run. Stored are when the phase and the step were entered, and the end of a backoff (NotBefore), which is
// the first poll of a step that calls something outside the cluster, too; the deadline follows from the entry, and the end
// of a wait from that of the step. A driver remembers one more, Decision.Due: when something outside may be called again.
//
// A stored time was read off the clock of another process, or of this one before it was set. A clock that was ahead must
// not make its successor wait for longer than the file says, so a time is believed only as far as it can be true: what has
// happened has not happened later than now, and nothing waits for longer than its own bound. What this comes to is stored
// with the run, so that it is counted from now on, once. A clock that was behind cannot be told from one that is right: what
// was stored seems old, timeouts and waits end early, and a step that failed is tried again sooner.
//
// An object may be woken at any moment: by a watch, an annotation, or a driver that was restarted. What must not come before
// its time is decided here:
//
//   - A step that failed is not tried again before its backoff is over, by nobody but a person who has changed the spec or
//     the file since, or for whom the phase waits. Such a try is an extra one: where it fails, it counts as no attempt and
//     moves no backoff, so that edits use up no attempts.
//   - An action that calls something outside the cluster is called at its poll, and by an edit.
//
// All else costs nobody anything, and is looked at whenever something may have changed.

// timing is what a run knows of time besides what is stored.
type timing struct {
	// edited: the spec or the file has changed since the call that NotBefore is about.
	edited bool
	// due is when something outside the cluster may be called again.
	due time.Time
	// called: the current step has called something outside the cluster; outside: a step of this run has.
	called, outside bool
	// was is what the run began with, in a phase that calls outside the cluster.
	was *v1alpha1.MachineStatus
}

func (s *state) timingOf(moved bool) timing {
	var t timing
	st, p := &s.st, s.phase()
	if moved && st.Attempts == 0 {
		st.NotBefore, st.TriedGeneration = nil, 0
	}
	if p != nil && p.External {
		t.was = st.DeepCopy()
	}
	t.edited = st.NotBefore != nil && (moved || st.TriedGeneration != s.input.Generation)
	switch {
	case p == nil || moved || st.Attempts > 0:
	case s.input.Due != nil:
		t.due = *s.input.Due
	case st.NotBefore != nil:
		t.due = onward(st.NotBefore.Time, s.pollOf(p), s.input.Now())
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

// believeTimes brings each stored time of a run that begins to what it can be.
func (s *state) believeTimes() {
	if p := s.phase(); p != nil && (s.st.EnteredAt != nil || s.st.StepEnteredAt != nil || s.st.NotBefore != nil) {
		believe(&s.st, s.input.Now(), s.longestWait(p))
	}
}

// believe brings each stored time to what it can be; wait is the longest that a step is ever held back.
func believe(st *v1alpha1.MachineStatus, now time.Time, wait time.Duration) {
	st.EnteredAt = atMost(st.EnteredAt, now)
	st.StepEnteredAt = atMost(st.StepEnteredAt, now)
	st.NotBefore = atMost(st.NotBefore, now.Add(wait))
}

// atMost is the earlier of the two; nil stays nil.
func atMost(t *metav1.MicroTime, most time.Time) *metav1.MicroTime {
	if t == nil || !t.After(most) {
		return t
	}
	return new(metav1.NewMicroTime(most.Truncate(time.Microsecond)))
}

// longestRetryAfter bounds how long a server may ask to wait where the backoff of the step is shorter.
const longestRetryAfter = time.Minute

// longestWait is the longest that the current step is held back: by its poll; after an error by the backoff of its phase
// or its own, or by a server that asks for patience.
func (s *state) longestWait(p *program.Phase) time.Duration {
	if s.st.Attempts == 0 {
		return max(longestRetryAfter, s.pollOf(p))
	}
	longest := max(longestRetryAfter, longestDelay(p.Backoff))
	if at := int(s.st.StepIndex); at < len(p.StepList) {
		longest = max(longest, longestDelay(p.StepList[at].Backoff))
	}
	if p.Kind == v1alpha1.PhaseWaiting {
		longest = max(longest, p.PollEvery)
	}
	return longest
}

func longestDelay(q program.Backoff) time.Duration {
	return time.Duration(float64(q.Max) * (1 + q.Jitter))
}

// pollOf is that of the current step; of none, that of the phase.
func (s *state) pollOf(p *program.Phase) time.Duration {
	poll := p.PollEvery
	if at := int(s.st.StepIndex); s.st.Step != "" && at < len(p.StepList) {
		poll = p.StepList[at].PollEvery
	}
	return cmp.Or(poll, defaultPoll)
}

func deadlineOf(p *program.Phase, since *metav1.MicroTime) *metav1.MicroTime {
	if p.TimeoutAfter == 0 || since == nil {
		return nil
	}
	return new(metav1.NewMicroTime(since.Add(p.TimeoutAfter)))
}

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

// backingOff tells that a step has failed, and that it is not time to try it again.
func (s *state) backingOff() bool {
	return s.st.Attempts > 0 && s.st.NotBefore != nil && s.input.Now().Before(s.st.NotBefore.Time)
}

// bypassing tells that a step is tried before its time.
func (r *Run) bypassing() bool { return r.BypassesBackoff() && r.backingOff() }

// BypassesBackoff tells that a step that failed is tried at any moment: it was edited, or the phase waits for a
// person, who may have corrected what it failed for, and no number of errors leads out of it.
func (r *Run) BypassesBackoff() bool {
	p := r.phase()
	return r.edited || p != nil && p.Kind == v1alpha1.PhaseWaiting && !p.External
}

// holdBack keeps the current step from being called for a while.
func (s *state) holdBack(d time.Duration) {
	d = min(d, s.longestWait(s.phase())) // as it is read
	s.st.NotBefore = new(metav1.NewMicroTime(s.input.Now().Add(d).Truncate(time.Microsecond)))
	s.st.TriedGeneration = s.input.Generation
}

// resetBackoff is for what is no error.
func (s *state) resetBackoff() {
	if s.st.Attempts > 0 {
		s.st.NotBefore, s.st.TriedGeneration = nil, 0
	}
	s.st.Attempts, s.st.Blocked = 0, nil
}

// Postpone is for a driver that cannot make the call now that Decide has asked for, in place of Apply. It counts as not
// made: what was done before it is kept, and the step is due as soon as the driver looks again, after the time at the latest.
func (r *Run) Postpone(after time.Duration) Decision {
	s := &r.phase().StepList[r.st.StepIndex]
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
func (r *Run) notDue(s *program.Step) *Decision {
	if r.edited || !r.input.Now().Before(r.due) {
		return nil
	}
	return r.leaveOff(fmt.Sprintf("%s is called again at %s", s.Label, r.due.UTC().Format(time.RFC3339)), r.due)
}

// leaveOff ends a look before a call outside the cluster. Where the step waits already, or the look is a new one at a phase
// whose exits were closed and has called nothing, nothing has come of it.
func (r *Run) leaveOff(message string, until time.Time) *Decision {
	was := r.was
	again := was != nil && was.StepIndex == 0 && was.Step == "" && !r.outside
	if !again && (was == nil || was.StepIndex != r.st.StepIndex || was.Step != r.st.Step) {
		r.message = message
		return r.sleep(until.Sub(r.input.Now()))
	}
	deadline := r.st.Deadline
	r.st, r.result = *was.DeepCopy(), decodeResult(was.Result)
	r.st.Deadline = deadline
	return r.stay(until, message)
}
