package prove

import (
	"errors"
	"strings"
	"time"

	"github.com/google/cel-go/common/types/ref"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
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
	inPlace, kept, final program.EffectSet

	finalizer, deleting, gone bool
}

// progress is how far a visit to a phase has come.
type progress struct {
	stepIndex int16
	// begun: the first step was looked at before. waited: a wait is over.
	begun, waited bool
	// held is the ledger, one byte for each effect, in its order.
	held string
	// loop is how far a forEach has come: a v1alpha1.Loop as JSON.
	loop string
}

// now is what a reconcile goes on from.
func (s state) now() progress {
	if s.running {
		return s.memory
	}
	return s.stored
}

const noPhase = -1

const allEffects = ^program.EffectSet(0)

func (s progress) heldSet() program.EffectSet {
	var set program.EffectSet
	for _, i := range []byte(s.held) {
		set |= 1 << i
	}
	return set
}

type edge struct{ from, to string }

// prover is one proof.
type prover struct {
	machine *fsm.Machine
	// prog is its program without what needs an object: messages and parameters; bare is the machine with that.
	prog    *program.Program
	bare    *fsm.Machine
	index   map[string]int16 // of a phase
	effects program.EffectNames
	// steps and fallible are what can happen in a step and to a guard.
	steps    map[*program.Step]*stepModel
	fallible map[*expr.Expr]int32
	// values are what the phase and the ledger alone say of an expression; nil is: nothing.
	values  map[knownKey]ref.Val
	asked   map[heldKey]bool
	ledgers map[string][]string
	loops   map[string]*v1alpha1.Loop
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
	takes, gives string // effects
	failures     []failure
}

// failure is one way in which an action can fail: for now, for the last time that
// is tolerated, or for good.
type failure struct {
	fsm.Result
	last bool
}

// The errors of the actions of a proof; nobody reads what they say.
var (
	errForNow  = errors.New("fails")
	errForGood = fsm.Terminal("Terminal", "fails for good")
	errNotYet  = fsm.Wait("not yet")
)

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
	st.Phase, st.StepIndex, st.Held, st.EnteredAt = ph.Name, int32(now.stepIndex), v1alpha1.Held(p.ledger(now.held)...), since
	if now.loop != "" {
		st.Loop = p.loops[now.loop].DeepCopy()
	}
	if int(now.stepIndex) < len(ph.StepList) {
		if now.begun {
			st.Step = ph.StepList[now.stepIndex].Label
		}
		if now.waited {
			st.StepEnteredAt = microTime(provedNow.Add(-ph.StepList[now.stepIndex].WaitFor))
		}
	}
	return st
}

// node is a state, and how it was first reached: by one event more than its parent.
type node struct {
	state
	parent int
	events []event
	// before are the nodes that lead here while actions succeed.
	before []int
}

// event is something that an operator would understand; it becomes a line of a
// trace. What the engine does in between is none.
type event struct {
	kind    eventKind
	phase   int16
	step    *program.Step
	effects program.EffectSet
	// did: the action has changed the world.
	did     bool
	failure failure
	reason  string
}

type eventKind int8

const (
	eventManifest eventKind = iota
	eventDelete
	eventBegins
	eventDone
	eventWait
	eventFails
	eventUnclear
	eventCrash
	eventTimeout
	eventChanged
	eventTook
	eventRemoved
	eventVanished
	eventEarly
)

// violation is an invariant that does not hold in a state, or in what comes next.
type violation struct {
	invariant, path, message, fix string
	at                            int
	// more happened after the state was stored.
	more []event
	// effects that matter; deeds about others are left out of the trace.
	effects program.EffectSet
}

type heldKey struct {
	inv            *program.Invariant
	phase          int16
	held           string
	inPlace        program.EffectSet
	deleting, gone bool
}

// answer is what a guard comes to; an error is not open.
type answer struct {
	open bool
	err  error
}

// answered is what a guard was decided to be during one reconcile.
type answered struct {
	e *expr.Expr
	answer
}

type knownKey struct {
	e           *expr.Expr
	phase, held string
}

// list names effects in a sentence.
func (p *prover) list(set program.EffectSet) string { return strings.Join(p.effects.In(set), ", ") }

// leadingTo are the ends, and all from which one of them is reached.
func leadingTo[T comparable](ends []T, before func(T) []T) map[T]bool {
	leads := map[T]bool{}
	for ; len(ends) > 0; ends = ends[1:] {
		if !leads[ends[0]] {
			leads[ends[0]] = true
			ends = append(ends, before(ends[0])...)
		}
	}
	return leads
}
