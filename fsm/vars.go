package fsm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// activation is what an expression sees: asked by name, so that what it does not read
// is not made.
type activation struct {
	*values
	// ctx is that of the one evaluation: CEL asks for a name without it.
	ctx   context.Context
	now   time.Time
	token string
}

func (vs *values) activation(ctx context.Context) activation {
	return activation{values: vs, ctx: ctx, now: vs.input.Now()}
}

// roots make the value of each root.
var roots = map[string]func(activation) any{
	expr.VarSelf:      func(s activation) any { return s.selfValue() },
	expr.VarResult:    func(s activation) any { return s.results() },
	expr.VarSteps:     func(s activation) any { return expr.NewLazyMap(s.stepResult) },
	expr.VarGuards:    func(s activation) any { return expr.NewLazyMap(s.guardValue) },
	expr.VarVariables: func(s activation) any { return expr.NewLazyMap(s.factValue) },
	expr.VarRequest:   func(s activation) any { return expr.NewLazyMap(s.requestValue) },
	expr.VarPhase:     func(s activation) any { return s.phaseValue(s.now) },
	expr.VarState:     func(s activation) any { return expr.NewLazyMap(s.stateValue) },
	expr.VarHeld:      func(s activation) any { return HeldEffects(s.st.HeldNames()) },
	expr.VarChanged:   func(s activation) any { return s.input.Generation != s.st.Generation },
	expr.VarNow:       func(s activation) any { return s.now },
	expr.VarToken:     func(s activation) any { return s.token },
	expr.VarItem:      func(s activation) any { return s.itemValue() },
	expr.VarError:     func(s activation) any { return s.errorValue() },
}

// ResolveName answers the value of a root.
func (s activation) ResolveName(name string) (any, bool) {
	value, known := roots[name]
	if !known {
		return nil, false
	}
	return value(s), true
}

// Parent is nil: there is nothing else to see.
func (s activation) Parent() interpreter.Activation { return nil }

// selfValue is the object by the types of its schema, made once, or the error that kept
// it from being read.
func (vs *values) selfValue() any {
	if vs.self == nil {
		self, err := map[string]any{}, error(nil)
		if vs.input.Self != nil {
			self, err = vs.input.Self()
		}
		vs.self = self
		switch schema := vs.m.prog.Self; {
		case err != nil:
			vs.self = types.WrapErr(err)
		case schema != nil:
			vs.self = schema.Value(self)
		}
	}
	return vs.self
}

// itemValue is the item of a forEach.
func (vs *values) itemValue() any {
	if vs.item == nil || vs.item.Value == nil {
		return types.NewErr("there is no item here")
	}
	return vs.item.Value
}

// errorValue is why the phase is left.
func (vs *values) errorValue() any {
	if vs.left == nil {
		return types.NewErr("there is no error here")
	}
	return map[string]string{"reason": vs.left.reason, "message": vs.left.message}
}

// HeldEffects are the names of effects as expressions see them: one that is held for keys is among them, too, as if
// it were held as a whole.
func HeldEffects(names []string) []string {
	all := slices.Clone(names)
	for _, name := range names {
		if effect, _ := v1alpha1.CutKey(name); effect != name && !slices.Contains(all, effect) {
			all = append(all, effect)
		}
	}
	return append([]string{}, all...)
}

func (vs *values) phaseValue(now time.Time) map[string]any {
	age := time.Duration(0)
	if vs.st.EnteredAt != nil {
		age = now.Sub(vs.st.EnteredAt.Time)
	}
	return map[string]any{"name": vs.st.Phase, "age": age, "attempts": int64(vs.st.Attempts)}
}

// errBudget says that a reconcile costs too much. What is asked after it cannot be
// evaluated either, so nothing moves on half an answer.
var errBudget = fmt.Errorf("the expressions of this reconcile cost more than %d together: read less, or let an action compute it", expr.MaxRunCost)

// eval is the one place where expressions are evaluated, and what they cost adds up.
func (vs *values) eval(e *expr.Expr, s activation) (ref.Val, error) {
	if vs.spent > expr.MaxRunCost {
		return nil, errBudget
	}
	v, cost, err := e.Eval(s.ctx, s)
	vs.spent += cost
	return v, err
}

// unbounded errors say that there was no end to an evaluation.
func unbounded(ctx context.Context, err error) bool {
	return errors.Is(err, errBudget) || errors.As(err, new(interpreter.EvalCancelledError)) || ctx.Err() != nil
}

// value evaluates an expression as it stands in most places.
func (vs *values) value(ctx context.Context) expr.Evaluator {
	return func(e *expr.Expr) (ref.Val, error) { return vs.eval(e, vs.activation(ctx)) }
}

// verdict is what a guard came to.
type verdict struct {
	open bool
	// because is the part of the guard that decided, got the values seen in it.
	because, got string
	// err means: not open, and why.
	err error
}

// truth decides a guard; it is the only place that does. Without a guard the way is open.
func (vs *values) truth(ctx context.Context, e *expr.Expr) verdict {
	if e == nil {
		return verdict{open: true}
	}
	if vs.input.Prove != nil {
		open, err := vs.input.Prove(e)
		return verdict{open: open, err: err}
	}
	s := vs.activation(ctx)
	d := vs.evaluate(e, s)
	if !d.open {
		vs.explain(e, s, &d)
	}
	return d
}

func (vs *values) evaluate(e *expr.Expr, s activation) verdict {
	v, err := vs.eval(e, s)
	if err != nil {
		return verdict{err: err}
	}
	open, isBool := v.Value().(bool)
	if !isBool {
		err = fmt.Errorf("%s is %s, not a boolean", e.Text, expr.Clip(expr.Show(v), 120))
	}
	return verdict{open: open, err: err}
}

// explain adds why.
func (vs *values) explain(e *expr.Expr, s activation, d *verdict) {
	switch {
	case d.err == nil:
		d.because, d.got = e.Why(s.ctx, s, d.open, vs.seen)
	case unbounded(s.ctx, d.err):
		d.because, d.got = expr.Clip(e.Text, v1alpha1.TextLimit), expr.Clip("error: "+d.err.Error(), v1alpha1.TextLimit)
	default:
		d.because, d.got = e.Failed(s.ctx, s), expr.Clip("error: "+d.err.Error(), v1alpha1.TextLimit)
	}
}

// seen is what a guard of the program says of itself.
func (vs *values) seen(guard string) string { return vs.guards[guard].seen }

func (vs *values) guardValue(name string) ref.Val {
	a, asked := vs.guards[name]
	if !asked {
		a.open, a.seen, a.err = vs.input.Guard(name)
		vs.guards[name] = a
	}
	if a.err != nil {
		return types.WrapErr(a.err)
	}
	return types.Bool(a.open)
}

func (s activation) factValue(name string) ref.Val {
	e := s.m.prog.Variables[name]
	if e == nil {
		return nil
	}
	return s.valueOrError(s.ctx, e)
}

func (vs *values) valueOrError(ctx context.Context, e *expr.Expr) ref.Val {
	v, err := vs.eval(e, vs.activation(ctx))
	if err != nil {
		return types.WrapErr(err)
	}
	return v
}

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
