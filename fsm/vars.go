package fsm

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// vars is what an expression sees at this moment.
func (r *Run) vars() map[string]any {
	result := r.result
	if result == nil {
		result = map[string]any{}
	}
	self := r.view.Self
	if self == nil {
		self = map[string]any{}
	}
	age := time.Duration(0)
	if r.st.Since != nil {
		age = r.view.Now().Sub(r.st.Since.Time)
	}
	held := slices.Clone(r.st.Held)
	if held == nil {
		held = []string{}
	}
	return map[string]any{
		varSelf:    self,
		varResult:  result,
		varHeld:    held,
		varPhase:   map[string]any{"name": r.st.Phase, "age": age, "attempts": int64(r.st.Attempts)},
		varChanged: r.view.GenerationChanged,
		varNow:     r.view.Now(),
		varToken:   "",
		varGuards:  newLazyMap(r.guardValue),
		varFacts:   newLazyMap(r.factValue),
		varRequest: newLazyMap(r.requestValue),
	}
}

// truth evaluates a guard. An error means: not taken, and said why.
func (r *Run) truth(e *expr) (bool, string, error) {
	v, details, err := e.prog.Eval(r.vars())
	if err != nil {
		return false, clip("error: "+err.Error(), maxText), err
	}
	ok, isBool := v.Value().(bool)
	if !isBool {
		err := fmt.Errorf("%s is %s, not a boolean", e.text, clip(show(v), 120))
		return false, clip("error: "+err.Error(), maxText), err
	}
	return ok, e.seen(details, r.told), nil
}

// told is what a Go guard says of itself: it explains more than its value does.
func (r *Run) told(ref exprRef) string {
	if ref.root != varGuards {
		return ""
	}
	return r.guards[ref.field].seen
}

func (r *Run) guardValue(name string) ref.Val {
	a, asked := r.guards[name]
	if !asked {
		a.open, a.seen, a.err = r.view.Guard(name)
		r.guards[name] = a
	}
	if a.err != nil {
		return types.WrapErr(a.err)
	}
	return types.Bool(a.open)
}

func (r *Run) factValue(name string) ref.Val {
	e := r.m.prog.facts[name]
	if e == nil {
		return nil
	}
	return r.value(e)
}

func (r *Run) value(e *expr) ref.Val {
	v, _, err := e.prog.Eval(r.vars())
	if err != nil {
		return types.WrapErr(err)
	}
	return v
}

// requestValue is {pending, token, params} of a one-shot request.
func (r *Run) requestValue(name string) ref.Val {
	q := r.m.prog.requests[name]
	if q == nil {
		return nil
	}
	token, err := r.token(q)
	if err != nil {
		return types.WrapErr(err)
	}
	params := map[string]any{}
	for p, e := range q.params {
		params[p] = r.value(e)
	}
	return types.DefaultTypeAdapter.NativeToValue(map[string]any{"pending": r.isNew(q, token), "token": token, "params": params})
}

// isNew tells whether a token asks for something that was not done yet.
func (r *Run) isNew(q *request, token string) bool {
	if token == "" || token == r.lastToken(q.Name) {
		return false
	}
	if q.valid == nil {
		return true
	}
	vars := r.vars()
	vars[varToken] = token
	v, _, err := q.valid.prog.Eval(vars)
	return err == nil && v == types.True
}

// token is the text that tells one request from the next, as far as the status
// can hold it; null is no request.
func (r *Run) token(q *request) (string, error) {
	switch v := r.value(q.token).(type) {
	case types.String:
		return clip(string(v), maxToken), nil
	case types.Null:
		return "", nil
	case *types.Err:
		return "", fmt.Errorf("token of request %s: %w", q.Name, v)
	default:
		return "", fmt.Errorf("token of request %s is %s, not a string", q.Name, clip(show(v), 120))
	}
}

func (r *Run) lastToken(name string) string {
	for _, q := range r.st.Requests {
		if q.Name == name {
			return q.Token
		}
	}
	return ""
}

// recordRequests stores the tokens of the requests that opened a guard, in the
// same write that acts on it: a request is acted on once.
func (r *Run) recordRequests(guard *expr) {
	if guard == nil {
		return
	}
	for _, name := range guard.reads(varRequest) {
		token, err := r.token(r.m.prog.requests[name])
		if err != nil || !r.pending(name) {
			continue // the other half of an || that was open without it
		}
		r.st.Requests = slices.DeleteFunc(r.st.Requests, func(q v1alpha1.RequestStatus) bool { return q.Name == name })
		r.st.Requests = append(r.st.Requests, v1alpha1.RequestStatus{Name: name, Token: token})
	}
}

func (r *Run) pending(name string) bool {
	m, ok := r.requestValue(name).(traits.Mapper)
	return ok && m.Get(types.String("pending")) == types.True
}

// merge adds outputs to the result, in the types that a later run will read back.
func (r *Run) merge(outputs map[string]any) error {
	if len(outputs) == 0 {
		return nil
	}
	all := maps.Clone(r.result)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, outputs)
	text, err := encodeResult(all)
	if err != nil {
		return err
	}
	r.st.Result, r.result = text, decodeResult(text)
	return nil
}

// maxResult is how much of outputs a status holds; the CRDs say the same.
const maxResult = 16 << 10

// encodeResult is the JSON text of the outputs. The error says that they do not
// fit into a status, or are no plain values: a defect of an action.
func encodeResult(result map[string]any) (string, error) {
	if len(result) == 0 {
		return "", nil
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return "", fmt.Errorf("outputs are no plain values: %w", err)
	}
	if len(raw) > maxResult {
		return "", fmt.Errorf("outputs have %d bytes, more than the %d that a status may hold: shorten them in the action", len(raw), maxResult)
	}
	return string(raw), nil
}

func decodeResult(stored string) map[string]any {
	if stored == "" {
		return nil
	}
	var result map[string]any
	if err := utiljson.Unmarshal([]byte(stored), &result); err != nil {
		return nil // an unreadable result only repeats the steps that made it
	}
	return result
}
