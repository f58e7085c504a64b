package fsm_test

import (
	"testing"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

func TestLastingResult(t *testing.T) {
	machine := machineOf(t, "test.yaml", []byte(header+`spec:
  for: {apiVersion: v1, kind: ConfigMap}
  initial: One
  phases:
  - name: One
    poll: 5s
    steps:
    - {action: Plan}
    - {action: Look, until: 'result.ready'}
    - {name: Again, action: Look, if: 'result.ready', until: 'result.ready'}
    next: [{to: Done}]
    onDelete: {immediate: true}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
`), program.Bindings{Actions: map[string]program.ActionSpec{
		"Plan": {Outputs: map[string]expr.Type{"planned": expr.TypeInt}},
		"Look": {Outputs: map[string]expr.Type{"ready": expr.TypeBool}},
	}})
	const result = `{"planned":3,"ready":false}`
	for name, c := range map[string]struct {
		why       string
		phase     string
		stepIndex int32
		want      string
	}{
		"first step":    {"every step is called again", "One", 0, ""},
		"waiting step":  {"it is called again, those before are not", "One", 1, `{"planned":3}`},
		"step with if":  {"it may be left out, and then its result stays", "One", 2, result},
		"after the end": {"an exit reads what was found", "One", 3, result},
		"other machine": {"nothing is known of the phase", "Elsewhere", 1, result},
		"forged":        {"nobody counts so", "One", -1, result},
	} {
		t.Run(name, func(t *testing.T) {
			got := machine.LastingResult(&v1alpha1.MachineStatus{Phase: c.phase, StepIndex: c.stepIndex, Result: result})
			if got != c.want {
				t.Errorf("%q, want %q: %s", got, c.want, c.why)
			}
		})
	}
}
