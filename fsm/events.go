package fsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// looplab/fsm carries every step and every transition, and decides which exit is taken: the event of each is fired in
// turn, before_event asks its guard, and one that is cancelled is closed. A step is an event from a phase to itself, whose
// before_event calls the action, so that no action is called which the events of its phase do not have. This is the one
// callback that reaches the driver, by Run.Apply; all others only read and change the run.
//
// What an event needs is its argument, so one set of callbacks serves all machines, and one FSM of a phase any number of runs,
// one after another. Nothing is kept in it: the stored state is the truth.

func engineCallbacks() looplab.Callbacks {
	return looplab.Callbacks{"before_event": beforeEvent, "leave_state": leaveState, "enter_state": enterState}
}

// newMachine is the only place that makes one.
func newMachine(def *program.Definition, prog *program.Program, b program.Bindings, callbacks looplab.Callbacks) *Machine {
	m := &Machine{def: def, prog: prog, bindings: b, callbacks: callbacks, fsms: map[string]*sync.Pool{}}
	for name, s := range prog.Events {
		m.fsms[name] = &sync.Pool{New: func() any { return looplab.NewFSM(s.Name, s.Events, callbacks) }}
	}
	return m
}

// firing is what the callbacks of an event get, as its only argument.
type firing struct {
	run *Run

	// Of a step: what to do, and what came of it.
	step    *Decision
	do      Do
	called  bool
	outcome Result
	dropped error

	// Of a transition: its guard, what else it needs, and what is told of it.
	guard     *expr.Expr
	unguarded bool // by onError: an exit may have the reason of the error
	needs     func(context.Context) error
	missing   error // what came of needs
	assigns   []program.Assignment
	state     string // what came of them
	reason    string // empty: the name of the event
	message   string
	text      *expr.Template // in place of message
}

// closedError is why a guard keeps a transition from being made.
type closedError struct{ verdict }

func (e *closedError) Error() string { return "the guard is not true: " + e.because + ": " + e.got }

// What makes an event one that the machine does not have.
var (
	errIllegal = errors.New("illegal transition")
	errNoCall  = errors.New("it leads out of the phase, and a step does not")
	errNoWay   = errors.New("it leads nowhere else")
)

// beforeEvent does what an event stands for: it calls the action of a step, and asks the guard of a transition. An
// error cancels. Nothing here may ask the FSM for anything but its state: it is locked.
func beforeEvent(ctx context.Context, e *looplab.Event) {
	f := e.Args[0].(*firing)
	var err error
	switch stays := e.Src == e.Dst; {
	case f.step != nil && !stays:
		err = errNoCall
	case f.step != nil:
		err = f.call(ctx)
	case stays:
		err = errNoWay
	case f.run.m.prog.Phases[e.Dst] == nil:
		err = fmt.Errorf("there is no phase %q", e.Dst)
	case !f.unguarded:
		err = f.guardError(ctx, f.run.m.prog.Events[e.Src].Means[e.Event])
	}
	if err != nil {
		e.Cancel(err)
	}
}

func (f *firing) call(ctx context.Context) error {
	f.called = true
	if r := f.run; f.step.External {
		r.due, r.called, r.outside = *f.step.Due, true, true
	}
	f.outcome, f.dropped = f.do(ctx, *f.step)
	f.run.readClock()
	if f.dropped != nil {
		return f.dropped
	}
	return f.outcome.Err
}

// guardError is nil while the guard of the event is open, and all is there that the transition needs.
func (f *firing) guardError(ctx context.Context, m program.Meaning) error {
	if !slices.Contains(m.Guards, f.guard) {
		return errors.New("the guard is that of another event")
	}
	if asked := f.run.truth(ctx, f.guard); !asked.open {
		return &closedError{asked}
	}
	if f.needs != nil {
		f.missing = f.needs(ctx)
	}
	if f.missing == nil && len(f.assigns) > 0 {
		f.state, f.missing = f.run.assign(ctx, f.assigns)
	}
	return f.missing
}

// leaveState ends what another callback has found wrong, before anything is changed.
func leaveState(_ context.Context, e *looplab.Event) {
	if e.Err != nil {
		e.Cancel(e.Err)
	}
}

// enterState notes in the run what is to be stored of the transition.
func enterState(ctx context.Context, e *looplab.Event) {
	f := e.Args[0].(*firing)
	r, reason := f.run, cmp.Or(f.reason, e.Event)
	if r.m.prog.Events[e.Src].Means[e.Event].Renames {
		took := r.rename(e.Dst, reason)
		r.st.Deadline = r.deadlineOf(ctx, r.phase())
		r.commit(took)
		return
	}
	message := cmp.Or(f.message, f.text.Render(r.value(ctx)))
	if e.Src != program.NoPhase {
		r.recordRequests(ctx, f.guard)
	}
	r.st.State = cmp.Or(f.state, r.st.State)
	took := r.enter(e.Dst, reason, message)
	r.st.Deadline = r.deadlineOf(ctx, r.phase())
	r.timing, r.stall, r.message = timing{outside: r.outside}, nil, message // without one, the phase tells its own story
	r.commit(took)
}

// leave takes an edge that nothing keeps closed: after an error, or the timeout. It is the last look at the phase, and
// what it keeps must not depend on whether the manager is being stopped.
func (r *Run) leave(ctx context.Context, event, reason string, f firing, sets []program.Assignment) *Decision {
	r.left = &leaving{reason: reason, message: expr.Clip(f.message, v1alpha1.TextLimit)}
	state, err := r.assign(context.WithoutCancel(ctx), sets)
	if err != nil {
		f.message += "; " + err.Error()
	}
	f.state = state
	return r.take(ctx, event, f)
}

// take fires an event that leads on. What it comes to is a Commit, or the machine stands still.
func (r *Run) take(ctx context.Context, event string, f firing) *Decision {
	if err := r.fire(ctx, event, &f); err != nil {
		return r.refuse(err)
	}
	return r.next
}

// refuse stands still where no event leads on.
func (r *Run) refuse(err error) *Decision {
	r.stall = &stall{"IllegalTransition", err.Error()}
	r.message = err.Error()
	poll := defaultPoll
	if p := r.phase(); p != nil && p.PollEvery > 0 {
		poll = p.PollEvery
	}
	return r.sleep(poll)
}

// fire fires an event of the phase. It is nil where a step was done, or a transition made; a closedError where a guard is
// closed.
func (r *Run) fire(ctx context.Context, name string, f *firing) error {
	f.run = r
	at := cmp.Or(r.st.Phase, program.NoPhase)
	if f.step == nil {
		ctx = context.WithoutCancel(ctx) // one that ends in the middle would leave half a transition
	}
	happened, err := r.m.event(ctx, at, name, f)
	var closed *closedError
	switch {
	case err == nil && happened == stayed && f.step != nil, err == nil && happened == moved && r.next != nil:
		return nil
	case happened == cancelled && (f.called || errors.As(err, &closed)): // by what came of the step, or by a guard
		return err
	case err == nil:
		err = errors.New("it did not do what it is there for")
	}
	return fmt.Errorf("%w: %s from %s: %w", errIllegal, name, at, err)
}

// event fires it on an FSM of the phase that nobody else has at that time.
func (m *Machine) event(ctx context.Context, at, name string, f *firing) (happening, error) {
	pool := m.fsms[at]
	if pool == nil {
		return cancelled, errors.New("there is no such phase")
	}
	machine := pool.Get().(*looplab.FSM)
	machine.SetState(at)
	happened, err := classify(machine.Event(ctx, name, f))
	if happened != unexpected { // else who knows what it is in the middle of
		pool.Put(machine)
	}
	return happened, err
}

// happening is what an event came to.
type happening int8

const (
	cancelled happening = iota
	stayed
	moved
	// unexpected is none of them: no event of a machine comes to it.
	unexpected
)

// classify is the only place that reads what looplab/fsm answers. Of the answers that are no failure, one with
// a cause is one: a callback has found something, and not cancelled the event.
func classify(answer error) (happening, error) {
	var (
		stay    looplab.NoTransitionError
		cancel  looplab.CanceledError
		invalid looplab.InvalidEventError
		unknown looplab.UnknownEventError
	)
	switch {
	case answer == nil:
		return moved, nil
	case errors.As(answer, &stay):
		return stayed, stay.Unwrap()
	case errors.As(answer, &cancel):
		if cancel.Err == nil {
			return cancelled, errors.New("a callback refuses it, and does not say why")
		}
		return cancelled, cancel.Err
	case errors.As(answer, &invalid):
		return cancelled, fmt.Errorf("it is an event of another phase than %s", invalid.State)
	case errors.As(answer, &unknown):
		return cancelled, errors.New("no phase has such an event")
	}
	return unexpected, answer
}

// Events are what looplab/fsm is made of in a phase: the steps, which lead from it to itself, and its edges. Empty: there is no such phase.
func (m *Machine) Events(phase string) []looplab.EventDesc {
	if s := m.prog.Events[phase]; s != nil {
		return slices.Clone(s.Events)
	}
	return nil
}

// With is the machine with another program in place of its own, as a proof needs, which leaves out what only an object could
// fill in; and with callbacks of looplab/fsm beside those of the engine, by which a test sees that the events decide.
func (m *Machine) With(prog *program.Program, callbacks looplab.Callbacks) *Machine {
	all := maps.Clone(m.callbacks)
	maps.Copy(all, callbacks)
	other := newMachine(m.def, prog, m.bindings, all)
	other.infos = m.infos
	return other
}
