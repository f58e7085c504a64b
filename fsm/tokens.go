package fsm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
	"github.com/phasegate/phasegate/fsm/program"
)

// maxEarlier is how many tokens that are no times are remembered beside the last one: a person
// does not come back to one of so long ago, and the status has room for them. Times need no such bound:
// the latest of them stands for all.
const maxEarlier = 32

// isNew tells whether a token asks for something that was not done yet. It is the one rule for the
// requests of all machines: no token is acted on twice, and of times none that is not later than the last.
func (vs *values) isNew(ctx context.Context, q *program.Request, token string) bool {
	if token == "" || acted(vs.actedOn(q.Name), token) {
		return false
	}
	if recorded, err := vs.textOf(ctx, q.Recorded); err == nil && acted(v1alpha1.RequestStatus{Token: recorded}, token) {
		return false // by another program, or for the object that this one was restored from
	}
	if q.ValidExpr == nil {
		return true
	}
	s := vs.activation(ctx)
	s.token = token
	v, err := vs.eval(q.ValidExpr, s)
	return err == nil && v == types.True
}

// acted tells whether a token was acted on, or is a time that is not later than one that was.
func acted(q v1alpha1.RequestStatus, token string) bool {
	if token == q.Token {
		return true
	}
	at, isTime := instant(token)
	return slices.ContainsFunc(marks(q), func(mark string) bool {
		if !isTime {
			return mark == markOf(token)
		}
		before, timed := instant(mark)
		return timed && !at.After(before)
	})
}

// marks stand for the tokens that were acted on, the newest first.
func marks(q v1alpha1.RequestStatus) []string {
	if q.Token == "" {
		return nil
	}
	return append([]string{markOf(q.Token)}, strings.Fields(q.Earlier)...)
}

// markOf is a short text for a token: itself if it is a time, else a digest.
func markOf(token string) string {
	if at, isTime := instant(token); isTime {
		return at.UTC().Format(time.RFC3339Nano)
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:8])
}

func instant(text string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}

// after is what is stored once a token is acted on that comes after those marks.
func after(name, token string, marks []string) v1alpha1.RequestStatus {
	q := v1alpha1.RequestStatus{Name: name, Token: token}
	latest, _ := instant(token)
	var times, others []string
	for _, mark := range marks {
		at, isTime := instant(mark)
		switch {
		case isTime && at.After(latest):
			latest, times = at, []string{mark}
		case !isTime && mark != markOf(token) && !slices.Contains(others, mark) && len(others) < maxEarlier:
			others = append(others, mark)
		}
	}
	q.Earlier = strings.Join(append(times, others...), " ")
	return q
}

// actedOn is what is stored of a request; without a token where nothing is.
func (s *state) actedOn(name string) v1alpha1.RequestStatus {
	for _, q := range s.st.Requests {
		if q.Name == name {
			return q
		}
	}
	return v1alpha1.RequestStatus{Name: name}
}

// recordRequests stores the tokens of the requests that opened a guard, in the
// same write that acts on it: a request is acted on once.
func (vs *values) recordRequests(ctx context.Context, guard *expr.Expr) {
	for _, name := range guard.Reads(expr.VarRequest) {
		token, err := vs.token(ctx, vs.m.prog.Requests[name])
		if err != nil || !vs.pending(ctx, name) {
			continue // the other half of an || that was open without it
		}
		now := after(name, token, marks(vs.actedOn(name)))
		vs.st.Requests = slices.DeleteFunc(vs.st.Requests, func(q v1alpha1.RequestStatus) bool { return q.Name == name })
		vs.st.Requests = append(vs.st.Requests, now)
	}
}

func (vs *values) pending(ctx context.Context, name string) bool {
	m, ok := vs.activation(ctx).requestValue(name).(traits.Mapper)
	return ok && m.Get(types.String("pending")) == types.True
}

// requestValue is {pending, token, params} of a one-shot request.
func (s activation) requestValue(name string) ref.Val {
	q := s.m.prog.Requests[name]
	if q == nil {
		return nil
	}
	token, err := s.values.token(s.ctx, q)
	if err != nil {
		return types.WrapErr(err)
	}
	params := map[string]any{}
	for p, e := range q.ParamExprs {
		params[p] = s.valueOrError(s.ctx, e)
	}
	return types.DefaultTypeAdapter.NativeToValue(map[string]any{"pending": s.isNew(s.ctx, q, token), "token": token, "params": params})
}

// token is the text that tells one request from the next, as far as the status
// can hold it; null is no request.
func (vs *values) token(ctx context.Context, q *program.Request) (string, error) {
	text, err := vs.textOf(ctx, q.TokenExpr)
	if err != nil {
		return "", fmt.Errorf("token of request %s: %w", q.Name, err)
	}
	return expr.Clip(text, v1alpha1.TokenLimit), nil
}

// textOf is the text that an expression comes to; null and no expression are none.
func (vs *values) textOf(ctx context.Context, e *expr.Expr) (string, error) {
	if e == nil {
		return "", nil
	}
	switch v := vs.valueOrError(ctx, e).(type) {
	case types.String:
		return string(v), nil
	case types.Null:
		return "", nil
	case *types.Err:
		return "", v
	default:
		return "", fmt.Errorf("%s is no text", expr.Clip(expr.Show(v), 120))
	}
}
