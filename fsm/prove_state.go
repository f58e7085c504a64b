package fsm

import (
	"errors"
	"slices"
	"time"

	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
)

// state is all that decides what can happen next: what the API server stores of an
// object, without times, history and results, which effects are really in place, and
// what a reconcile that goes on has not written yet.
type state struct {
	phase  int16
	stored progress
	// running: actions succeeded since the last write, and memory knows.
	running bool
	memory  progress
	// inPlace is the truth about the effects. kept are those in place that the
	// machine leaves there for good; final are those that were held at the point of
	// no return and are still held.
	inPlace, kept, final effectBits

	finalizer, deleting, gone bool
}

// progress is how far a visit to a phase has come.
type progress struct {
	cursor int16
	// begun: the first step was looked at before. waited: a wait is over.
	begun, waited bool
	// held is the ledger, one byte for each effect, in its order.
	held string
}

// now is what a reconcile goes on from.
func (s state) now() progress {
	if s.running {
		return s.memory
	}
	return s.stored
}

const noPhase = -1

// effectBits has one bit for each effect of a machine.
type effectBits uint32

const allEffects = ^effectBits(0)

func (s progress) heldSet() effectBits {
	var set effectBits
	for _, i := range []byte(s.held) {
		set |= 1 << i
	}
	return set
}

// prover is one proof.
type prover struct {
	// m is the machine without what needs an object: messages and parameters.
	m       *Machine
	index   map[string]int16 // of a phase
	effects []string
	// steps and fallible are what can happen in a step and to a guard.
	steps    map[*step]*stepModel
	fallible map[*expr.Expr]int32
	values   map[knownKey]known
	asked    map[heldKey]bool
	ledgers  map[string][]string
	// pool has the state machines of all runs.
	pool map[string]*looplab.FSM

	nodes []node
	seen  map[state]int
	// reached are the nodes after the one that is expanded.
	reached     []int
	transitions int
	violations  map[string]violation
}

// stepModel is what a step may do to the world, and how it may fail.
type stepModel struct {
	takes, gives effectBits
	failures     []failure
}

// failure is one way in which an action can fail: for now, for the last time that
// is tolerated, or for good.
type failure struct {
	Result
	last bool
}

func newProver(m *Machine) *prover {
	p := &prover{index: map[string]int16{}, steps: map[*step]*stepModel{}, fallible: map[*expr.Expr]int32{},
		values: map[knownKey]known{}, asked: map[heldKey]bool{}, ledgers: map[string][]string{}, pool: map[string]*looplab.FSM{},
		seen: map[state]int{}, violations: map[string]violation{}}
	for _, e := range m.def.Spec.Effects {
		p.effects = append(p.effects, e.Name)
	}
	p.m = p.bare(m)
	for i, ph := range p.m.prog.order {
		p.index[ph.Name] = int16(i)
		for _, q := range ph.require {
			p.fallible[q.when] = ph.retry.attempts
		}
		for i := range ph.steps {
			s := &ph.steps[i]
			p.fallible[s.cond] = s.retry.attempts
			p.steps[s] = p.modelOf(s, ph)
		}
	}
	return p
}

// bare copies a machine without what only an object could fill in. What can fail
// about it is in the failures of each step.
func (p *prover) bare(m *Machine) *Machine {
	prog := *m.prog
	prog.phases, prog.order, prog.effects = map[string]*phase{}, nil, map[string]effect{}
	for name, e := range m.prog.effects {
		prog.effects[name] = effect{e.Effect, &action{use: e.acquire.use}, &action{use: e.release.use}}
	}
	for _, old := range m.prog.order {
		ph := *old
		ph.message = nil
		ph.require, ph.steps, ph.next = slices.Clone(old.require), slices.Clone(old.steps), slices.Clone(old.next)
		for i := range ph.require {
			ph.require[i].message = nil
		}
		for i := range ph.steps {
			ph.steps[i].message = nil
			ph.steps[i].action = &action{use: ph.steps[i].action.use}
		}
		for i := range ph.next {
			ph.next[i].message = nil
		}
		prog.phases[ph.Name] = &ph
		prog.order = append(prog.order, &ph)
	}
	return &Machine{def: m.def, prog: &prog, callbacks: m.callbacks}
}

func (p *prover) modelOf(s *step, ph *phase) *stepModel {
	model := &stepModel{}
	for _, e := range p.m.def.Spec.Effects {
		switch s.Action {
		case "":
		case e.Acquire:
			model.takes |= p.effect(e.Name)
		case e.Release:
			model.gives |= p.effect(e.Name)
		}
	}
	named := []Class{ClassUnavailable}
	for _, e := range ph.OnError {
		if class := Class(e.Is); class != ClassAny && class != ClassTerminal && !slices.Contains(named, class) {
			named = append(named, class)
		}
	}
	model.failures = append(model.failures, failure{Result: Result{Err: errForGood}})
	for _, class := range named {
		model.failures = append(model.failures, failure{Result: Result{Err: errForNow, Class: class}})
		if s.retry.attempts > 1 {
			model.failures = append(model.failures, failure{Result: Result{Err: errForNow, Class: class}, last: true})
		}
	}
	return model
}

// The errors of the actions of a proof; nobody reads what they say.
var (
	errForNow  = errors.New("fails")
	errForGood = Terminal("Terminal", "fails for good")
	errNotYet  = Wait("not yet")
)

func (p *prover) effect(name string) effectBits {
	return 1 << slices.Index(p.effects, name)
}

func (p *prover) effectsOf(names []string) effectBits {
	var set effectBits
	for _, name := range names {
		set |= p.effect(name)
	}
	return set
}

// names lists the effects of a set.
func (p *prover) names(set effectBits) []string {
	names := []string{}
	for i, name := range p.effects {
		if set&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// ledger is what status.machine.held says; not to be changed.
func (p *prover) ledger(held string) []string {
	names, ok := p.ledgers[held]
	if !ok {
		for _, i := range []byte(held) {
			names = append(names, p.effects[i])
		}
		p.ledgers[held] = names
	}
	return names
}

func (p *prover) phaseOf(s state) *phase {
	if s.phase == noPhase {
		return nil
	}
	return p.m.prog.order[s.phase]
}

// place is where a finding about a state stands.
func (p *prover) place(s state) string {
	if ph := p.phaseOf(s); ph != nil {
		return ph.path + ".name"
	}
	return "spec.initial"
}

// The clock of a proof stands still: what passes is chosen by moving the past.
var provedNow = time.Unix(1_000_000_000, 0)

// status is a stored status that a state stands for. Late: the deadline has passed.
// Changed: another revision of the file wrote it.
func (p *prover) status(s state, late, changed bool) v1alpha1.MachineStatus {
	st := v1alpha1.MachineStatus{Revision: p.m.def.Revision}
	if changed {
		st.Revision = ""
	}
	ph := p.phaseOf(s)
	if ph == nil {
		return st
	}
	since := microTime(provedNow.Add(time.Hour)) // a deadline that is never near
	if late {
		since = microTime(provedNow.Add(-ph.timeout))
	}
	now := s.now()
	st.Phase, st.Cursor, st.Held, st.Since = ph.Name, int32(now.cursor), v1alpha1.Held(p.ledger(now.held)...), since
	if int(now.cursor) < len(ph.steps) {
		if now.begun {
			st.Step = ph.steps[now.cursor].name
		}
		if now.waited {
			st.StepSince = microTime(provedNow.Add(-ph.steps[now.cursor].wait))
		}
	}
	return st
}
