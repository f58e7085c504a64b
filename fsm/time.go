package fsm

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// All times of a run. Stored are when the phase and the step were entered, when until was counted last, and the end of a backoff (NotBefore), which is
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
	// stepDue is when the current step must be done; zero: that is not said.
	stepDue time.Time
	// called: the current step has called something outside the cluster; outside: a step of this run has.
	called, outside bool
	// was is what the run began with, in a phase that calls outside the cluster.
	was *v1alpha1.MachineStatus
}

// late tells that the current step was not done in its time.
func (t *timing) late(now time.Time) bool { return !t.stepDue.IsZero() && !now.Before(t.stepDue) }

// beforeLimit shortens a pause to the time that is left for the current step.
func (t *timing) beforeLimit(after time.Duration, now time.Time) time.Duration {
	if t.stepDue.IsZero() || t.late(now) {
		return after
	}
	if left := t.stepDue.Sub(now); after == 0 || left < after {
		return left
	}
	return after
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
	if p := s.phase(); p != nil && (s.st.EnteredAt != nil || s.st.StepEnteredAt != nil || s.st.NotBefore != nil || s.st.Streak != nil) {
		believe(&s.st, s.input.Now(), s.longestWait(p))
	}
}

// believe brings each stored time to what it can be; wait is the longest that a step is ever held back.
func believe(st *v1alpha1.MachineStatus, now time.Time, wait time.Duration) {
	if at := atMost(st.EnteredAt, now); at != st.EnteredAt {
		st.FirstEnteredAt, st.EnteredAt = cmp.Or(st.FirstEnteredAt, st.EnteredAt), at
	}
	st.StepEnteredAt = atMost(st.StepEnteredAt, now)
	st.NotBefore = atMost(st.NotBefore, now.Add(wait))
	if st.Streak != nil {
		st.Streak.CountedAt = atMost(st.Streak.CountedAt, now)
	}
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

// backingOff tells that a step has failed, and that it is not time to try it again.
func (s *state) backingOff() bool {
	return s.st.Attempts > 0 && s.st.NotBefore != nil && s.input.Now().Before(s.st.NotBefore.Time)
}

// holdBack keeps the current step from being called for a while.
func (s *state) holdBack(d time.Duration) {
	d = min(d, s.longestWait(s.phase())) // as it is read
	s.st.NotBefore = new(metav1.NewMicroTime(s.input.Now().Add(d).Truncate(time.Microsecond)))
	s.st.TriedGeneration = s.input.Generation
}

// counts is for an answer by which a step is done: it counts, and 0 says that it was the last of those that there must be in
// a row. Else the next one counts after that time, and one that comes before does not, whatever has woken the object.
func (s *state) counts(step *program.Step) (left time.Duration) {
	if step.Consecutive <= 1 {
		return 0
	}
	poll, k := cmp.Or(step.PollEvery, defaultPoll), s.st.Streak
	if k != nil && k.CountedAt != nil {
		if left := poll - s.input.Now().Sub(k.CountedAt.Time); left > 0 {
			return left
		}
	}
	if s.st.InARow()+1 >= step.Consecutive {
		return 0
	}
	s.st.Streak = &v1alpha1.Streak{Count: s.st.InARow() + 1, CountedAt: new(s.now())}
	return poll
}

// resetBackoff is for what is no error.
func (s *state) resetBackoff() {
	if s.st.Attempts > 0 {
		s.st.NotBefore, s.st.TriedGeneration = nil, 0
	}
	s.st.Attempts, s.st.Blocked = 0, nil
}
