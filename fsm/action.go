package fsm

import (
	"fmt"

	"github.com/phasegate/phasegate/fsm/expr"
)

// action is an action of the program as a step or an effect calls it: directly,
// or under a name that the machine gave it together with parameters.
type action struct {
	// use is the program's name of it; empty when nothing of that name is known.
	use  string
	spec ActionSpec
	with map[string]*expr.Value
}

// params evaluates all parameters; the types of what was found are checked as
// those of plain values were at load. One that varies is not evaluated where it is fixed.
func (a *action) params(find expr.Evaluator, fixed expr.Params) (expr.Params, error) {
	out := expr.Params{}
	for name, v := range a.with {
		got, isFixed := fixed[name]
		if !isFixed || !v.Varies() {
			var err error
			if got, err = v.Eval(find); err != nil {
				return nil, fmt.Errorf("with.%s of %s: %w", name, a.use, err)
			}
		}
		if want := a.spec.Params[name].Type; !want.Accepts(got) {
			return nil, fmt.Errorf("with.%s of %s is %v, not of type %s", name, a.use, expr.Clip(fmt.Sprint(got), 120), want)
		}
		out[name] = got
	}
	return out, nil
}

// varying are those parameters that are found only when the action is called.
func (a *action) varying(find expr.Evaluator) (expr.Params, error) {
	out := expr.Params{}
	for name, v := range a.with {
		if !v.Varies() {
			continue
		}
		got, err := v.Eval(find)
		if err != nil {
			return nil, fmt.Errorf("with.%s of %s: %w", name, a.use, err)
		}
		out[name] = got
	}
	return out, nil
}
