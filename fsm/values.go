package fsm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// How much state values hold, in bytes of JSON: one of them, and all together. The CRDs say the latter.
const (
	maxStateValue = 16 << 10
	maxState      = 32 << 10
)

// assign is what is to be stored of the state values after a transition. All expressions see the values of before. The error
// names what cannot be assigned: an exit is not taken then, and any other edge leads on with the others.
func (vs *values) assign(ctx context.Context, all []program.Assignment) (string, error) {
	if len(all) == 0 || vs.input.Prove != nil {
		return vs.st.State, nil
	}
	next, err := decodeParams(vs.st.State)
	if err != nil {
		return vs.st.State, fmt.Errorf("the state values cannot be read (%w): correct them in the MachineState", err)
	}
	if next == nil {
		next = expr.Params{}
	}
	var failed []string
	for _, a := range all {
		if v, err := vs.assignment(ctx, a); err == nil {
			next[a.Name] = v
		} else {
			failed = append(failed, fmt.Sprintf("set %s to %s: %v", a.Name, expr.Clip(a.Text, 120), err))
		}
	}
	text, err := encode("state values", next)
	if len(text) > maxState {
		err = fmt.Errorf("the state values have %d bytes together, more than the %d that are stored", len(text), maxState)
	}
	if err != nil {
		return vs.st.State, err
	}
	if len(failed) > 0 {
		err = errors.New(strings.Join(failed, "; ")) // on one line, as messages are
	}
	return text, err
}

func (vs *values) assignment(ctx context.Context, a program.Assignment) (any, error) {
	v, err := vs.value(ctx)(a.Expr)
	if err != nil {
		return nil, err
	}
	value, err := expr.Native(v)
	if err != nil {
		return nil, err
	}
	if want := vs.m.prog.State[a.Name].Type; !want.Accepts(value) {
		return nil, fmt.Errorf("%s is not of type %s", expr.Clip(fmt.Sprint(value), 120), want)
	}
	text, err := encode("the value", map[string]any{a.Name: value})
	if len(text) > maxStateValue {
		return nil, fmt.Errorf("it has %d bytes, more than the %d of one value", len(text), maxStateValue)
	}
	return value, err
}
