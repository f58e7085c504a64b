package program

import (
	"fmt"

	"github.com/phasegate/phasegate/fsm/expr"
)

// Action is an action of the program as a step or an effect calls it: directly,
// or under a name that the machine gave it together with parameters.
type Action struct {
	// Use is the program's name of it; empty when nothing of that name is known.
	Use  string
	Spec ActionSpec
	With map[string]*expr.Value
}

// Params evaluates all parameters; the types of what was found are checked as
// those of plain values were at load. One that varies is not evaluated where it is fixed.
func (a *Action) Params(find expr.Evaluator, fixed expr.Params) (expr.Params, error) {
	out := expr.Params{}
	for name, v := range a.With {
		got, isFixed := fixed[name]
		if !isFixed || !v.Varies() {
			var err error
			if got, err = v.Eval(find); err != nil {
				return nil, fmt.Errorf("with.%s of %s: %w", name, a.Use, err)
			}
		}
		if want := a.Spec.Params[name].Type; !want.Accepts(got) {
			return nil, fmt.Errorf("with.%s of %s is %v, not of type %s", name, a.Use, expr.Clip(fmt.Sprint(got), 120), want)
		}
		out[name] = got
	}
	return out, nil
}

// Varying are those parameters that are found only when the action is called.
func (a *Action) Varying(find expr.Evaluator) (expr.Params, error) {
	out := expr.Params{}
	for name, v := range a.With {
		if !v.Varies() {
			continue
		}
		got, err := v.Eval(find)
		if err != nil {
			return nil, fmt.Errorf("with.%s of %s: %w", name, a.Use, err)
		}
		out[name] = got
	}
	return out, nil
}

// Takes is an error where parameters are none of the action's.
func (a ActionSpec) Takes(with expr.Params) error {
	for name, value := range with {
		p, known := a.Params[name]
		if !known {
			return fmt.Errorf("%q is no parameter of it", name)
		}
		if !p.Type.Accepts(value) {
			return fmt.Errorf("%s is %v, not of type %s", name, expr.Clip(fmt.Sprint(value), 120), p.Type)
		}
	}
	for name, p := range a.Params {
		if _, given := with[name]; p.Required && !given {
			return fmt.Errorf("%s is missing", name)
		}
	}
	return nil
}
