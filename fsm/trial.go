package fsm

import (
	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
	"github.com/phasegate/phasegate/fsm/program"
)

// Trials makes the runs of a proof: very many, one after another, of the engine as it is. It is not safe for concurrent use.
type Trials struct {
	m    *Machine
	pool map[string]*looplab.FSM
}

// Trials are of the machine with a program in place of its own.
func (m *Machine) Trials(prog *program.Program) *Trials {
	return &Trials{m: &Machine{def: m.def, prog: prog, callbacks: m.callbacks}, pool: map[string]*looplab.FSM{}}
}

// Run starts a pass as Machine.Run does. Guards are not evaluated: guard decides them.
func (t *Trials) Run(status v1alpha1.MachineStatus, v Input, guard func(*expr.Expr) (open bool, err error)) *Trial {
	r := t.m.Run(status, v)
	r.guardStub, r.pool = guard, t.pool
	return &Trial{r}
}

// Trial is a run of a proof, which sees more of it than a driver.
type Trial struct{ *Run }

// State is what the run would store now. It is that of the run itself: what is changed in it has come to pass.
func (t *Trial) State() *v1alpha1.MachineStatus { return &t.st }

// Decided tells whether the action that ended has decided the next command: else the run goes on.
func (t *Trial) Decided() bool { return t.next != nil }

// Stalled says why the run stands still; it is empty where it does not.
func (t *Trial) Stalled() (reason, message string) {
	if t.stall == nil {
		return "", ""
	}
	return t.stall.reason, t.stall.message
}

// Eager tells whether a step that failed may be tried before its backoff is over.
func (t *Trial) Eager() bool { return t.eager() }
