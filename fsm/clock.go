package fsm

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/program"
)

// A stored time was read off the clock of another process, or of this one before it was set. A clock that was ahead must
// not make its successor wait for longer than the file says, so a time is believed only as far as it can be true: what has
// happened has not happened later than now, and nothing waits for longer than its own bound. What this comes to is stored
// with the run, so that it is counted from now on, once.
//
// A clock that was behind cannot be told from one that is right: what was stored seems old, timeouts and waits end early,
// and a step that failed is tried again sooner.

// longestRetryAfter bounds how long a server may ask to wait where the backoff of the step is shorter.
const longestRetryAfter = time.Minute

// believeTimes is believe for a run that begins.
func (r *Run) believeTimes() {
	if p := r.phase(); p != nil && (r.st.EnteredAt != nil || r.st.StepEnteredAt != nil || r.st.NotBefore != nil) {
		believe(&r.st, r.input.Now(), r.longestWait(p))
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

// longestWait is the longest that the current step is held back: by its poll; after an error by the backoff of its phase
// or its own, or by a server that asks for patience.
func (r *Run) longestWait(p *program.Phase) time.Duration {
	if r.st.Attempts == 0 {
		return max(longestRetryAfter, r.pollOf(p))
	}
	longest := max(longestRetryAfter, longestDelay(p.Backoff))
	if at := int(r.st.StepIndex); at < len(p.StepList) {
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
func (r *Run) pollOf(p *program.Phase) time.Duration {
	poll := p.PollEvery
	if at := int(r.st.StepIndex); r.st.Step != "" && at < len(p.StepList) {
		poll = p.StepList[at].PollEvery
	}
	return cmp.Or(poll, defaultPoll)
}
