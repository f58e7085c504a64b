package fsm

import (
	"fmt"

	"github.com/phasegate/phasegate/fsm/expr"
)

// takes is an error where parameters are none of the action's.
func (a ActionSpec) takes(with expr.Params) error {
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
