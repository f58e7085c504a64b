package fsm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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
	v, seen, err := e.eval(r.vars())
	if err != nil {
		return false, clip(seen, 1024), err
	}
	ok, isBool := v.(bool)
	if !isBool {
		return false, fmt.Sprintf("%s is %v, not a boolean", e.text, v), errors.New("guard is not a boolean")
	}
	for _, name := range e.reads(varGuards) {
		if a, asked := r.guards[name]; asked && a.seen != "" {
			seen = a.seen // a Go guard explains itself better than its value does
		}
	}
	return ok, seen, nil
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
	v, _, err := e.eval(r.vars())
	if err != nil {
		return types.WrapErr(err)
	}
	return types.DefaultTypeAdapter.NativeToValue(v)
}

// requestValue is {pending, token, params} of a one-shot request.
func (r *Run) requestValue(name string) ref.Val {
	q := r.m.prog.requests[name]
	if q == nil {
		return nil
	}
	token := fmt.Sprint(r.value(q.token).Value())
	pending := token != "" && token != r.lastToken(name)
	if pending && q.valid != nil {
		vars := r.vars()
		vars[varToken] = token
		v, _, err := q.valid.eval(vars)
		pending = err == nil && v == true
	}
	params := map[string]any{}
	for p, e := range q.params {
		params[p] = r.value(e).Value()
	}
	return types.DefaultTypeAdapter.NativeToValue(map[string]any{"pending": pending, "token": token, "params": params})
}

func (r *Run) lastToken(name string) string {
	for _, q := range r.st.Requests {
		if q.Name == name {
			return q.Token
		}
	}
	return ""
}

// recordRequests stores the tokens that opened an exit, in the same write that
// takes it: a request is acted on once.
func (r *Run) recordRequests(guard *expr) {
	if guard == nil {
		return
	}
	for _, name := range guard.reads(varRequest) {
		token := fmt.Sprint(r.value(r.m.prog.requests[name].token).Value())
		r.st.Requests = slices.DeleteFunc(r.st.Requests, func(q v1alpha1.RequestStatus) bool { return q.Name == name })
		r.st.Requests = append(r.st.Requests, v1alpha1.RequestStatus{Name: name, Token: clip(token, 253)})
	}
}

// merge adds outputs to the result, in the types that a later run will read back.
func (r *Run) merge(outputs map[string]any) {
	if len(outputs) == 0 {
		return
	}
	all := maps.Clone(outputs)
	for k, v := range r.result {
		if _, newer := all[k]; !newer {
			all[k] = v
		}
	}
	r.result = decodeResult(encodeResult(all))
}

func encodeResult(result map[string]any) *apiextensionsv1.JSON {
	if len(result) == 0 {
		return nil
	}
	raw, err := json.Marshal(result)
	if err != nil { // outputs are plain values; anything else is a defect of an action
		raw, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	return &apiextensionsv1.JSON{Raw: raw}
}

func decodeResult(stored *apiextensionsv1.JSON) map[string]any {
	if stored == nil || len(bytes.TrimSpace(stored.Raw)) == 0 {
		return nil
	}
	var result map[string]any
	if err := utiljson.Unmarshal(stored.Raw, &result); err != nil {
		return nil // an unreadable result only repeats the steps that made it
	}
	return result
}
