package fsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// fail ends the run at a step that has failed.
func (c currentStep) fail(ctx context.Context, o Result) *Decision {
	return c.Run.fail(ctx, c.inTime(o), c.s.Backoff, c.p)
}

// invalid is for what the file or the object says, and no action has seen.
func (c currentStep) invalid(ctx context.Context, err error) *Decision {
	return c.fail(ctx, Result{Err: err, Class: program.ClassInvalid})
}

// fail decides between retry and catch.
func (r *Run) fail(ctx context.Context, o Result, policy program.Backoff, p *program.Phase) *Decision {
	r.st.Streak = nil
	extra := r.bypassing()
	if !extra {
		r.st.Attempts++
	}
	text, reason, class := o.Err.Error(), "", o.Class
	if t, is := errors.AsType[*TerminalError](o.Err); is {
		class, reason = program.ClassTerminal, t.Reason
	}
	exhausted := policy.Ends(class, r.st.Attempts)
	if i := catcher(p.OnError, class, exhausted, policy.Attempts == 0); i >= 0 {
		r.next = r.caught(ctx, p.Catches[i], cmp.Or(reason, string(class)+"Error"), text)
		return r.next
	}
	if exhausted && policy.To != "" {
		r.next = r.take(ctx, r.retryEvent(p, policy), firing{message: text})
		return r.next
	}
	delay := delayOf(policy, r.st.Attempts, r.input.Random)
	switch {
	case class == program.ClassTerminal || exhausted:
		r.stall, delay = &stall{program.Word(cmp.Or(reason, program.ReasonExhausted)), text}, policy.Max
	case p.Kind == v1alpha1.PhaseWaiting && p.PollEvery > 0:
		delay = p.PollEvery // who waits for a person looks at the same pace, whatever happens
	}
	if extra {
		delay = r.st.NotBefore.Sub(r.input.Now())
	}
	delay = r.beforeLimit(min(max(delay, o.RetryAfter), r.longestWait(p)), r.input.Now())
	r.holdBack(delay)
	r.st.Blocked = []v1alpha1.Blocked{{
		Step:  cmp.Or(r.st.Step, "require"),
		Guard: fmt.Sprintf("%s error, attempt %d", class, r.st.Attempts),
		Value: expr.Clip(text, v1alpha1.TextLimit),
	}}
	r.message = fmt.Sprintf("%s (attempt %d, next in %s)", text, r.st.Attempts, delay.Round(100*time.Millisecond))
	r.next = r.sleep(delay)
	return r.next
}

// caught leads on by an entry of onError. Where that gives no reason, the error's own says more than a reserved one, unless it
// is that of something else that the phase does.
func (r *Run) caught(ctx context.Context, e program.Catch, own, message string) *Decision {
	event, reason := program.ErrorEvent(e.OnError), ""
	if leads := r.m.prog.Events[r.st.Phase].Leads(program.Word(own)); e.Reason == "" && (leads == "" || leads == e.To) {
		reason = program.Word(own)
	}
	return r.leave(ctx, event, program.Word(own), firing{unguarded: true, reason: reason, message: message}, e.Assigns)
}

// catcher is the first onError entry that catches now, or -1. A terminal error
// is caught at once, any other after the last retry. A class that is retried
// for ever could never be caught, so naming it catches it at once; `*` does not.
func catcher(entries []v1alpha1.OnError, class program.Class, exhausted, forever bool) int {
	return slices.IndexFunc(entries, func(e v1alpha1.OnError) bool {
		switch program.Class(e.Is) {
		case class:
			return class == program.ClassTerminal || exhausted || forever
		case program.ClassAny:
			return class == program.ClassTerminal || exhausted
		}
		return false
	})
}

func (s *state) retryEvent(p *program.Phase, policy program.Backoff) string {
	if policy.To == p.Backoff.To {
		return program.ReasonExhausted
	}
	return program.StepRetryEvent(&p.StepList[s.st.StepIndex])
}

func delayOf(q program.Backoff, attempt int32, random func() float64) time.Duration {
	d := min(float64(q.Base)*math.Pow(q.Factor, float64(attempt-1)), float64(q.Max))
	if random != nil {
		d *= 1 + q.Jitter*(2*random()-1)
	}
	return max(time.Duration(d), time.Millisecond) // 0 would sleep until something changes
}

// timedOut is what a step comes to that is not done in its time; what it was at then.
func (c currentStep) timedOut(what string) Result {
	return Result{Err: Terminal("StepTimedOut", "%s is not done after %s: %s", c.s.Label, c.stepDue.Sub(c.st.StepEnteredAt.Time), what)}
}

// inTime is what came of a step: an error that would be retried ends it where its time is up.
func (c currentStep) inTime(o Result) Result {
	if _, ends := errors.AsType[*TerminalError](o.Err); ends || o.Class == program.ClassTerminal || !c.late(c.input.Now()) {
		return o
	}
	return c.timedOut(o.Err.Error())
}

// checked is what a step comes to by its failWhen, once its action has succeeded. One that cannot be evaluated is an error that is
// retried: nobody knows then whether the step is done.
func (c currentStep) checked(ctx context.Context) (o Result) {
	if c.s.FailWhenExpr == nil {
		return o
	}
	switch asked := c.truth(ctx, c.s.FailWhenExpr); {
	case asked.err != nil:
		o.Err, o.Class = fmt.Errorf("failWhen %s: %w", c.s.FailWhen, asked.err), program.ClassUnavailable
	case asked.open:
		c.explain(c.s.FailWhenExpr, c.activation(ctx), &asked)
		o.Err = Terminal("CheckFailed", "%s: failWhen %s; seen: %s", c.s.Label, asked.because, asked.got)
	}
	return o
}
