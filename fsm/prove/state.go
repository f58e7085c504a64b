package prove

import (
	"errors"
	"slices"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/expr"
	"github.com/phasegate/phasegate/fsm/program"
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

// edge is a pair of phases that a transition leads from and to.
type edge struct{ from, to string }

// prover is one proof.
type prover struct {
	machine *fsm.Machine
	// prog is its program without what needs an object: messages and parameters; trials are runs of that.
	prog    *program.Program
	trials  *fsm.Trials
	index   map[string]int16 // of a phase
	effects []string
	// steps and fallible are what can happen in a step and to a guard.
	steps    map[*program.Step]*stepModel
	fallible map[*expr.Expr]int32
	values   map[knownKey]known
	asked    map[heldKey]bool
	ledgers  map[string][]string
	// taken are the pairs of phases that a run has led from and to.
	taken map[edge]bool

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
	fsm.Result
	last bool
}

func newProver(m *fsm.Machine) *prover {
	p := &prover{machine: m, index: map[string]int16{}, steps: map[*program.Step]*stepModel{}, fallible: map[*expr.Expr]int32{},
		values: map[knownKey]known{}, asked: map[heldKey]bool{}, ledgers: map[string][]string{}, taken: map[edge]bool{},
		seen: map[state]int{}, violations: map[string]violation{}}
	for _, e := range m.Definition().Spec.Effects {
		p.effects = append(p.effects, e.Name)
	}
	p.prog = bare(m.Program())
	p.trials = m.Trials(p.prog)
	for i, ph := range p.prog.Order {
		p.index[ph.Name] = int16(i)
		for _, q := range ph.Requirements {
			p.fallible[q.WhenExpr] = ph.Backoff.Attempts
		}
		for i := range ph.StepList {
			s := &ph.StepList[i]
			p.fallible[s.IfExpr] = s.Backoff.Attempts
			p.steps[s] = p.modelOf(s, ph)
		}
	}
	return p
}

// bare copies a program without what only an object could fill in. What can fail
// about it is in the failures of each step.
func bare(of *program.Program) *program.Program {
	prog := *of
	prog.Phases, prog.Order, prog.Effects = map[string]*program.Phase{}, nil, map[string]program.Effect{}
	for name, e := range of.Effects {
		prog.Effects[name] = program.Effect{Effect: e.Effect, BoundAcquire: &program.Action{Use: e.BoundAcquire.Use}, BoundRelease: &program.Action{Use: e.BoundRelease.Use}}
	}
	for _, old := range of.Order {
		ph := *old
		ph.Text = nil
		ph.Requirements, ph.StepList, ph.Exits = slices.Clone(old.Requirements), slices.Clone(old.StepList), slices.Clone(old.Exits)
		for i := range ph.Requirements {
			ph.Requirements[i].Text = nil
		}
		for i := range ph.StepList {
			ph.StepList[i].Text = nil
			ph.StepList[i].Bound = &program.Action{Use: ph.StepList[i].Bound.Use}
		}
		for i := range ph.Exits {
			ph.Exits[i].Text = nil
		}
		prog.Phases[ph.Name] = &ph
		prog.Order = append(prog.Order, &ph)
	}
	return &prog
}

func (p *prover) modelOf(s *program.Step, ph *program.Phase) *stepModel {
	model := &stepModel{}
	for _, e := range p.machine.Definition().Spec.Effects {
		switch s.Action {
		case "":
		case e.Acquire:
			model.takes |= p.effect(e.Name)
		case e.Release:
			model.gives |= p.effect(e.Name)
		}
	}
	named := []program.Class{program.ClassUnavailable}
	for _, e := range ph.OnError {
		if class := program.Class(e.Is); class != program.ClassAny && class != program.ClassTerminal && !slices.Contains(named, class) {
			named = append(named, class)
		}
	}
	model.failures = append(model.failures, failure{Result: fsm.Result{Err: errForGood}})
	for _, class := range named {
		model.failures = append(model.failures, failure{Result: fsm.Result{Err: errForNow, Class: class}})
		if s.Backoff.Attempts > 1 {
			model.failures = append(model.failures, failure{Result: fsm.Result{Err: errForNow, Class: class}, last: true})
		}
	}
	return model
}

// The errors of the actions of a proof; nobody reads what they say.
var (
	errForNow  = errors.New("fails")
	errForGood = fsm.Terminal("Terminal", "fails for good")
	errNotYet  = fsm.Wait("not yet")
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

func (p *prover) phaseOf(s state) *program.Phase {
	if s.phase == noPhase {
		return nil
	}
	return p.prog.Order[s.phase]
}

// place is where a finding about a state stands.
func (p *prover) place(s state) string {
	if ph := p.phaseOf(s); ph != nil {
		return ph.Path + ".name"
	}
	return "spec.initial"
}

// The clock of a proof stands still: what passes is chosen by moving the past.
var provedNow = time.Unix(1_000_000_000, 0)

// status is a stored status that a state stands for. Late: the deadline has passed.
// Changed: another revision of the file wrote it.
func (p *prover) status(s state, late, changed bool) v1alpha1.MachineStatus {
	st := v1alpha1.MachineStatus{Revision: p.machine.Definition().Revision}
	if changed {
		st.Revision = ""
	}
	ph := p.phaseOf(s)
	if ph == nil {
		return st
	}
	since := microTime(provedNow.Add(time.Hour)) // a deadline that is never near
	if late {
		since = microTime(provedNow.Add(-ph.TimeoutAfter))
	}
	now := s.now()
	st.Phase, st.Cursor, st.Held, st.Since = ph.Name, int32(now.cursor), v1alpha1.Held(p.ledger(now.held)...), since
	if int(now.cursor) < len(ph.StepList) {
		if now.begun {
			st.Step = ph.StepList[now.cursor].Label
		}
		if now.waited {
			st.StepSince = microTime(provedNow.Add(-ph.StepList[now.cursor].WaitFor))
		}
	}
	return st
}
