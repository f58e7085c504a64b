package fsm

import (
	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/fsm/diag"
	"github.com/phasegate/phasegate/fsm/program"
)

// Machine is a definition bound to actions and guards. It is immutable and
// safe for concurrent use by any number of runs.
type Machine struct {
	def      *program.Definition
	prog     *program.Program
	bindings program.Bindings
	infos    map[string]PhaseInfo
	// callbacks are those of every pass.
	callbacks looplab.Callbacks
}

// Bind compiles a definition and checks it as a whole: its expressions, the
// graph of its phases, and that every action, guard, parameter and result that
// it names exists. The machine is nil when a finding is an error. It may be called
// any number of times.
func Bind(def *program.Definition, b program.Bindings) (*Machine, diag.Diagnostics) {
	prog, found := program.Compile(def, b)
	diags := def.Report(append(found, lintProgram(def, prog, found)...))
	if diags.Err() != nil {
		return nil, diags
	}
	return &Machine{def: def, prog: prog, bindings: b, infos: infosOf(prog, def.Spec.Initial), callbacks: callbacks()}, diags
}
