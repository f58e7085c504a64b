package fsm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
)

// fail decides between retry and catch.
func (r *Run) fail(o Result, policy retry, p *phase) {
	extra := r.extra()
	if !extra {
		r.st.Attempts++
	}
	text, reason, class := o.Err.Error(), "", o.Class
	if t := o.terminal(); t != nil {
		class, reason = ClassTerminal, t.Reason
	}
	exhausted := policy.attempts > 0 && r.st.Attempts >= policy.attempts
	if i := catcher(p.OnError, class, exhausted, policy.attempts == 0); i >= 0 {
		r.next = r.caught(r.errorEvent(p.OnError[i], cmp.Or(reason, string(class)+"Error")), text)
		return
	}
	if exhausted && policy.to != "" {
		r.next = r.take(r.retryEvent(p, policy), text, nil)
		return
	}
	delay := delayOf(policy, r.st.Attempts, r.input.Random)
	switch {
	case class == ClassTerminal || exhausted:
		r.stall, delay = &stall{word(cmp.Or(reason, reasonExhausted)), text}, policy.max
	case p.Kind == "waiting" && p.poll > 0:
		delay = p.poll // who waits for a person looks at the same pace, whatever happens
	}
	if extra {
		delay = r.st.NotBefore.Sub(r.input.Now())
	}
	delay = max(delay, o.RetryAfter)
	r.holdBack(delay)
	r.st.Blocked = []v1alpha1.Blocked{{
		Step:    cmp.Or(r.st.Step, "require"),
		Because: fmt.Sprintf("%s error, attempt %d", class, r.st.Attempts),
		Got:     expr.Clip(text, v1alpha1.TextLimit),
	}}
	r.message = fmt.Sprintf("%s (attempt %d, next in %s)", text, r.st.Attempts, delay.Round(100*time.Millisecond))
	cmd := r.sleep(delay)
	r.next = &cmd
}

// errorEvent is the event of a caught error. Where the file gives no reason, the error's own says more than a reserved one.
func (r *Run) errorEvent(e v1alpha1.OnError, own string) string {
	if e.Reason != "" {
		return e.Reason
	}
	return r.also(word(own), errorEvent(e))
}

// catcher is the first onError entry that catches now, or -1. A terminal error
// is caught at once, any other after the last retry. A class that is retried
// for ever could never be caught, so naming it catches it at once; `*` does not.
func catcher(entries []v1alpha1.OnError, class Class, exhausted, forever bool) int {
	return slices.IndexFunc(entries, func(e v1alpha1.OnError) bool {
		switch Class(e.Is) {
		case class:
			return class == ClassTerminal || exhausted || forever
		case ClassAny:
			return class == ClassTerminal || exhausted
		}
		return false
	})
}

func (r *Run) retryEvent(p *phase, policy retry) string {
	if policy.to == p.retry.to {
		return reasonExhausted
	}
	return stepRetryEvent(&p.steps[r.st.Cursor])
}

func delayOf(q retry, attempt int32, random func() float64) time.Duration {
	d := min(float64(q.base)*math.Pow(q.factor, float64(attempt-1)), float64(q.max))
	if random != nil {
		d *= 1 + q.jitter*(2*random()-1)
	}
	return max(time.Duration(d), time.Millisecond) // 0 would sleep until something changes
}
