package fsm

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// A duration may be what an expression comes to, which is asked at each look, as a duration that is written out may be edited at
// any time. A deadline must come whatever an author or an object says, so it falls back on the bound that is written out; a wait
// does not, since to wait for less or for longer than a person asks for would be a guess.

func (vs *values) duration(ctx context.Context, e *expr.Expr) (time.Duration, error) {
	v, err := vs.value(ctx)(e)
	if err != nil {
		return 0, err
	}
	d, is := v.Value().(time.Duration)
	if !is {
		return 0, errors.New("it is " + expr.Clip(expr.Show(v), 120) + ", not a duration")
	}
	return d, nil
}

// atMost is a duration that counts as the longest where it cannot be evaluated, is longer, or none.
func (vs *values) atMost(ctx context.Context, e *expr.Expr, most time.Duration) time.Duration {
	if e == nil {
		return most
	}
	if d, err := vs.duration(ctx, e); err == nil && d > 0 && d < most {
		return d
	}
	return most
}

func (vs *values) deadlineOf(ctx context.Context, p *program.Phase) *metav1.MicroTime {
	if p.TimeoutAfter == 0 || vs.st.EnteredAt == nil {
		return nil
	}
	at := vs.st.EnteredAt.Add(vs.atMost(ctx, p.TimeoutExpr, p.TimeoutAfter))
	return new(metav1.NewMicroTime(at.Truncate(time.Microsecond))) // as it is read back
}

// timeout is the one of the phase for people.
func (s *state) timeout(p *program.Phase) string {
	if p.TimeoutExpr == nil {
		return p.Timeout.After
	}
	return s.st.Deadline.Sub(s.st.EnteredAt.Time).String()
}

// waitOf is how long a step waits. A proof tries both that it comes to something, and that it does not.
func (vs *values) waitOf(ctx context.Context, s *program.Step) (time.Duration, error) {
	switch {
	case s.WaitExpr == nil:
		return s.WaitFor, nil
	case vs.input.Prove != nil:
		_, err := vs.input.Prove(s.WaitExpr)
		return s.WaitFor, err
	}
	d, err := vs.duration(ctx, s.WaitExpr)
	if err == nil && (d < 0 || d > s.WaitFor) {
		err = fmt.Errorf("it is %s", d)
	}
	if err != nil {
		return 0, fmt.Errorf("wait %s: %w: correct what it reads, so that it is from 0s to %s (max)", s.WaitExpr.Text, err, s.Max)
	}
	return d, nil
}
