package fsm

import (
	"cmp"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/lint"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Bind compiles a definition and checks it as a whole: its expressions, the
// graph of its phases, and that every action, guard, parameter and result that
// it names exists. The machine is nil when a finding is an error. It may be called
// any number of times.
func Bind(def *program.Definition, b program.Bindings) (*Machine, diag.Diagnostics) {
	prog, found := program.Compile(def, b)
	diags := def.Report(append(found, lint.Check(def, prog, cmp.Or(b.Self, b.Described), found)...))
	if diags.Err() != nil {
		return nil, diags
	}
	m := newMachine(def, prog, b, engineCallbacks())
	m.infos = infosOf(prog, def.Spec.Initial)
	return m, diags
}

// Provable is a machine to be proved, and only that: also where Bind refuses the file
// because of what a run could come to (PG011 to PG014), so that the proof can show
// how. It is nil where the file says nothing that could be run. It may be called any
// number of times.
func Provable(def *program.Definition, b program.Bindings) *Machine {
	prog, found := program.Compile(def, b)
	if found.Err() != nil {
		return nil
	}
	return newMachine(def, prog, b, engineCallbacks())
}
