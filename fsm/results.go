package fsm

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// results are the outputs of this visit in the types that their actions declare:
// JSON has neither durations nor numbers that are whole and yet no integers.
func (s *state) results() map[string]any {
	p := s.phase()
	if p == nil || s.result == nil && s.item == nil {
		return map[string]any{}
	}
	if len(p.Converts) == 0 && s.item == nil {
		return s.result
	}
	all := maps.Clone(s.result)
	if s.item != nil {
		all = map[string]any{}
		maps.Copy(all, s.result)
		maps.Copy(all, s.item.outputs)
	}
	return typed(all, p.Converts)
}

// stepResult is what a step has said last in this visit; nil where it has not run.
func (s *state) stepResult(name string) ref.Val {
	outputs, ran := ofSteps(s.result)[name].(map[string]any)
	if !ran {
		return nil
	}
	if p := s.phase(); p != nil {
		at := slices.IndexFunc(p.StepList, func(x program.Step) bool { return x.Label == name && x.Loop == nil })
		if at >= 0 {
			outputs = typed(maps.Clone(outputs), p.StepList[at].Bound.Spec.Outputs)
		}
	}
	return types.DefaultTypeAdapter.NativeToValue(outputs)
}

// ofSteps are the outputs that a result keeps by the name of their step.
func ofSteps(result map[string]any) map[string]any {
	all, _ := result[expr.VarSteps].(map[string]any)
	return all
}

// typed brings values that came out of JSON to their types.
func typed(values map[string]any, as map[string]expr.Type) map[string]any {
	for name, t := range as {
		if v, ok := convert(t, values[name]); ok {
			values[name] = v
		}
	}
	return values
}

// convert makes a value that came out of JSON one of the type, if it can be.
func convert(t expr.Type, v any) (any, bool) {
	switch x := v.(type) {
	case int64:
		return float64(x), t == expr.TypeNumber
	case string:
		d, err := time.ParseDuration(x)
		return d, t == expr.TypeDuration && err == nil
	}
	return nil, false
}

// stateValue is what was assigned last, or else what the file begins with; nil where there is neither.
func (s *state) stateValue(name string) ref.Val {
	declared, known := s.m.prog.State[name]
	if !known {
		return nil
	}
	assigned, err := decodeParams(s.st.State)
	if err != nil {
		return types.NewErr("the state values cannot be read (%v): correct them in the MachineState", err)
	}
	value, is := assigned[name]
	if !is {
		value = declared.Initial
	}
	if value == nil {
		return nil
	}
	if !declared.Type.Accepts(value) { // an older revision has assigned it
		return types.NewErr("state.%s is %s, which is not of its type %s any more: give the new type another name", name, expr.Clip(fmt.Sprint(value), 120), declared.Type)
	}
	if typed, ok := convert(declared.Type, value); ok {
		value = typed
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// merge adds the outputs of a step to the result, in the types that a later run will read back. They stand there a second
// time where an expression reads them by the name of the step.
func (s *state) merge(step string, outputs map[string]any) error {
	byStep := s.m.prog.StepsRead[step]
	if len(outputs) == 0 && !byStep {
		return nil
	}
	all := map[string]any{}
	maps.Copy(all, s.result)
	maps.Copy(all, outputs)
	if byStep {
		own, steps := map[string]any{}, map[string]any{}
		maps.Copy(own, outputs)
		maps.Copy(steps, ofSteps(all))
		steps[step] = own
		all[expr.VarSteps] = steps
	}
	text, err := encodeResult(all)
	if err != nil {
		return err
	}
	s.st.Result, s.result = text, decodeResult(text)
	return nil
}

// LastingResult is the part of a status' result that the next pass does not find anew: without
// the outputs of the step at the step index, which is called again. Where the step index is at the
// first step, that is nothing. A step with an `if` may be left out next time, so its outputs
// count.
func (m *Machine) LastingResult(st *v1alpha1.MachineStatus) string {
	p := m.prog.Phases[st.Phase]
	if st.StepIndex == 0 {
		return ""
	}
	if p == nil || st.StepIndex < 0 || int(st.StepIndex) >= len(p.StepList) || p.StepList[st.StepIndex].IfExpr != nil || p.StepList[st.StepIndex].Loop != nil {
		return st.Result
	}
	lasting := decodeResult(st.Result)
	for name := range p.StepList[st.StepIndex].Bound.Spec.Outputs {
		delete(lasting, name)
	}
	if delete(ofSteps(lasting), p.StepList[st.StepIndex].Label); len(ofSteps(lasting)) == 0 {
		delete(lasting, expr.VarSteps)
	}
	text, err := encodeResult(lasting)
	if err != nil { // it was encoded before
		return st.Result
	}
	return text
}

// maxResult is how much of outputs a MachineState holds; the CRDs say the same.
const maxResult = 128 << 10

// encodeResult is the JSON text of the outputs. The error says that they do not
// fit into a status, or are no plain values: a defect of an action.
func encodeResult(result map[string]any) (string, error) {
	text, err := encode("outputs", result)
	if len(text) > maxResult {
		return "", fmt.Errorf("outputs have %d bytes, more than the %d that a status may hold: shorten them in the action", len(text), maxResult)
	}
	return text, err
}

func decodeResult(stored string) map[string]any {
	result, err := decodeParams(stored)
	if err != nil {
		return nil // an unreadable result only repeats the steps that made it
	}
	return result
}
