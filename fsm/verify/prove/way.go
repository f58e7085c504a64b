package prove

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// way is what one reconcile does until the next action has ended, under one series
// of choices: what the guards and the action answer, and whether the program dies.
type way struct {
	*prover
	choices
	at       int
	from, to state
	run      *fsm.Run
	clock    time.Time
	answers  []answered
	events   []event
	// good: no error and no crash on the way.
	good bool
	// early: the current step has failed, and something wakes the object before it may be tried again.
	early bool
	// vanished: there is no object any more, and every action succeeds.
	vanished bool
}

// choices is a series of choices, and the means to try all of them.
type choices struct {
	picks, among []int
	made         int
}

func (c *choices) pick(n int) int {
	if c.made == len(c.picks) {
		c.picks, c.among = append(c.picks, 0), append(c.among, n)
	}
	c.made++
	return c.picks[c.made-1]
}

// another prepares the next series; false when all were tried.
func (c *choices) another() bool {
	c.made = 0
	for last := len(c.picks) - 1; last >= 0; last-- {
		if c.picks[last]++; c.picks[last] < c.among[last] {
			return true
		}
		c.picks, c.among = c.picks[:last], c.among[:last]
	}
	return false
}

func microTime(t time.Time) *metav1.MicroTime { return new(metav1.NewMicroTime(t)) }

// walk drives the engine up to its next write, a crash, or the end of an action that
// it goes on from: one action at a time, since the ways through several multiply.
func (w *way) walk() {
	w.to, w.clock, w.good = w.from, provedNow, true
	w.answers, w.events = w.answers[:0], w.events[:0]
	w.run = w.bare.Run(w.begin(), fsm.Observation{Deleting: w.from.deleting, Finalizer: w.from.finalizer, Gone: w.vanished,
		Now: func() time.Time { return w.clock }, Guard: noGuard, Prove: w.truth})
	cmd := w.run.Decide(context.Background())
	w.checkPatient(cmd)
	if cmd.Do == fsm.RunAction {
		if err := w.run.Apply(context.Background(), w.act); err != nil {
			return
		}
		if w.run.Decided() || w.goesOn() {
			cmd = w.run.Decide(context.Background())
		}
		if !w.run.Decided() || cmd.Do == fsm.RunAction {
			w.to.running, w.to.memory = true, w.progress()
			return
		}
	}
	w.checkLegal()
	w.to.running, w.to.memory = false, progress{}
	w.write(cmd)
}

// goesOn tells that an item of a forEach waits or has failed: what is next may be that the step waits.
func (w *way) goesOn() bool {
	return slices.ContainsFunc(w.events, func(e event) bool {
		return (e.kind == eventWait || e.kind == eventFails) && e.step.Loop != nil
	})
}

// begin is the status that a reconcile begins with: as it was stored, too late, after a change of the file, or too early.
func (w *way) begin() v1alpha1.MachineStatus {
	now := w.from.stored
	inStep := !w.vanished && !w.from.running && (now.stepIndex > 0 || now.begun)
	late := w.canBeLate() && w.pick(2) == 1
	changed := inStep && w.pick(2) == 1
	w.early = inStep && !late && !changed && w.pick(2) == 1
	st := w.status(w.from, late, changed)
	if late {
		w.note(event{kind: eventTimeout, phase: w.from.phase})
	}
	if changed {
		w.note(event{kind: eventChanged})
	}
	w.letTimePass(&st, inStep, late, changed, w.early)
	if w.early {
		w.note(event{kind: eventEarly, phase: w.from.phase})
		st.Attempts, st.NotBefore = 1, microTime(provedNow.Add(time.Minute))
	}
	return st
}

// letTimePass also tries that the time of the current step is up, where nothing else has happened to it.
func (w *way) letTimePass(st *v1alpha1.MachineStatus, inStep bool, others ...bool) {
	step := w.timed()
	if step == nil || !inStep || slices.Contains(others, true) || w.pick(2) == 0 {
		return
	}
	w.good = false
	w.note(event{kind: eventFails, phase: w.from.phase, step: step, failure: failure{Result: fsm.Result{Err: errForGood}}})
	st.StepEnteredAt = microTime(provedNow.Add(-step.TimeLimit))
}

// timed is the current step if it has a timeout, else nil.
func (w *way) timed() *program.Step {
	ph, at := w.phaseOf(w.from), int(w.from.stored.stepIndex)
	if ph == nil || at >= len(ph.StepList) || ph.StepList[at].TimeLimit == 0 {
		return nil
	}
	return &ph.StepList[at]
}

// noGuard is asked only for the token of a request, which nobody reads here.
func noGuard(string) (bool, string, error) { return false, "", errForNow }

func (w *way) note(e event) { w.events = append(w.events, e) }

// canBeLate: a deadline leads on, and nothing comes before it.
func (w *way) canBeLate() bool {
	ph := w.phaseOf(w.from)
	if ph == nil || ph.Timeout == nil || ph.Timeout.To == "" {
		return false
	}
	return !w.from.deleting && !w.vanished || ph.Deletion || ph.OnDelete.Hold != ""
}

// What an action can come to, besides its failures.
const (
	slowly  = iota // done, which is made durable at once
	quickly        // done, and it goes on without a write
	notYet
	crashed
	failing
)

// longTime is longer than a step may take before its end is made durable at once.
const longTime = time.Minute

// errDies ends a reconcile.
var errDies = errors.New("the program dies")

// act answers an action, in place of the driver's. The error is that the program dies.
func (w *way) act(_ context.Context, cmd fsm.Decision) (fsm.Result, error) {
	s := w.step()
	model := w.steps[s]
	takes, gives := w.effects.Set(v1alpha1.Keyed(model.takes, cmd.Key)), w.effects.Set(v1alpha1.Keyed(model.gives, cmd.Key))
	if cmd.Effect != "" {
		gives = w.effects.Set(cmd.Effect)
		w.checkReturn(gives, s)
	}
	if w.vanished {
		return w.actAlone(cmd, s), nil
	}
	how := w.pick(failing + len(model.failures))
	changes := takes&^w.to.inPlace != 0 || gives&w.to.inPlace != 0
	did := changes && (how == quickly || how == slowly || how == crashed || w.pick(2) == 1)
	if did {
		w.to.inPlace = w.to.inPlace&^gives | takes
		w.to.kept &^= takes
	}
	e := event{kind: eventDone, phase: w.from.phase, step: s, effects: takes | gives, did: did}
	switch how {
	case quickly, slowly:
		return w.done(e, how == slowly), nil
	case notYet:
		e.kind = eventWait
		w.note(e)
		return fsm.Result{Err: errNotYet}, nil
	case crashed:
		w.good = false
		w.note(e)
		w.note(event{kind: eventCrash})
		w.to.running, w.to.memory = false, progress{}
		w.to.kept &= w.to.inPlace
		return fsm.Result{}, errDies
	}
	return w.fails(e, model.failures[how-failing]), nil
}

// actAlone answers an action where there is no object: it succeeds, unless it is never called.
func (w *way) actAlone(cmd fsm.Decision, s *program.Step) fsm.Result {
	if cmd.Effect == "" && w.needsObject() {
		return w.fails(event{phase: w.from.phase, step: s}, failure{Result: fsm.Result{Err: errForNow, Class: program.ClassInvalid}, last: s.Backoff.Attempts > 1})
	}
	return w.done(event{kind: eventDone, step: s}, false)
}

func (w *way) step() *program.Step {
	st := w.run.State()
	return &w.prog.Phases[st.Phase].StepList[st.StepIndex]
}

func (w *way) done(e event, slow bool) fsm.Result {
	w.note(e)
	if slow {
		w.clock = w.clock.Add(longTime)
	}
	w.answers = w.answers[:0] // the results are others now
	return fsm.Result{}
}

func (w *way) fails(e event, f failure) fsm.Result {
	w.good = false
	e.kind, e.failure = eventFails, f
	w.note(e)
	if f.last {
		w.run.State().Attempts = e.step.Backoff.Attempts - 1
	}
	return f.Result
}

func (w *way) write(cmd fsm.Decision) {
	switch cmd.Do {
	case fsm.AddFinalizer:
		w.to.finalizer = true
	case fsm.RemoveFinalizer:
		w.to.finalizer, w.to.gone = false, w.to.deleting
		w.note(event{kind: eventRemoved})
	default:
		w.to.phase, w.to.stored = w.index[w.run.State().Phase], w.progress()
		if len(w.to.stored.held) > len(w.from.now().held) {
			w.note(event{kind: eventBegins, phase: w.to.phase, step: &w.prog.Order[w.to.phase].StepList[w.to.stored.stepIndex]})
		}
	}
	if cmd.Transition != nil {
		to := w.prog.Phases[cmd.Transition.To]
		if !w.vanished {
			w.taken[edge{cmd.Transition.From, cmd.Transition.To}] = true
		}
		w.to.kept |= w.set(to.Keeps...) & w.from.now().heldSet()
		if to.PointOfNoReturn {
			w.to.final |= w.to.stored.heldSet()
		}
		w.note(event{kind: eventTook, phase: w.to.phase, reason: cmd.Transition.Reason})
	}
	w.to.kept &= w.to.inPlace
	w.to.final &= w.to.stored.heldSet()
}

// waits tells whether the current step is a pause, of which it matters whether it is over.
func (w *way) waits(st *v1alpha1.MachineStatus) bool {
	ph := w.prog.Phases[st.Phase]
	return ph != nil && int(st.StepIndex) < len(ph.StepList) && ph.StepList[st.StepIndex].WaitFor > 0
}

func (w *way) progress() progress {
	st := w.run.State()
	now := progress{stepIndex: int16(st.StepIndex), begun: st.StepIndex == 0 && st.Step != "", waited: st.StepEnteredAt != nil && w.waits(st),
		held: w.from.now().held}
	if st.Loop != nil {
		text, _ := json.Marshal(st.Loop) // it was made of JSON
		now.loop = string(text)
		if w.loops[now.loop] == nil {
			w.loops[now.loop] = st.Loop.DeepCopy()
		}
	}
	if slices.Equal(st.HeldNames(), w.ledger(now.held)) {
		return now
	}
	held := make([]byte, len(st.Held))
	for i, name := range st.HeldNames() {
		held[i] = byte(slices.Index(w.effects, name))
	}
	now.held = string(held)
	return now
}
