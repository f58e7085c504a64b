package fsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
	"github.com/phasegate/phasegate/fsm/program"
)

// callbacks of every machine. They are generic: those of looplab/fsm belong to the name of an event, not to an event of one phase.
func callbacks() looplab.Callbacks {
	return looplab.Callbacks{"before_event": beforeEvent, "leave_state": leaveState, "enter_state": enterState}
}

// What makes an event one that the machine does not have.
var (
	errIllegal = errors.New("illegal transition")
	errNoCall  = errors.New("it leads out of the phase, and a step does not")
	errNoWay   = errors.New("it leads nowhere else")
)

// beforeEvent does what an event stands for: it calls the action of a step, and asks the guard of an exit once more. An
// error cancels. Nothing here may ask the FSM for anything but its state: it is locked.
func beforeEvent(ctx context.Context, e *looplab.Event) {
	f := e.Args[0].(*firing)
	switch stays := e.Src == e.Dst; {
	case f.cmd != nil && !stays:
		e.Cancel(errNoCall)
	case f.cmd != nil:
		f.called = true
		f.run.calls()
		if f.outcome, f.dropped = f.do(ctx, *f.cmd); f.dropped != nil {
			e.Cancel(f.dropped)
		} else if f.outcome.Err != nil {
			e.Cancel(f.outcome.Err)
		}
	case stays:
		e.Cancel(errNoWay)
	case !f.caught:
		if shut := f.run.shut(ctx, f.run.meaning(e), f.guard); shut != nil {
			e.Cancel(shut)
		}
	}
}

// leaveState decides what is to be stored, and waits for that. What another callback finds wrong ends it before
// anything is decided.
func leaveState(ctx context.Context, e *looplab.Event) {
	f := e.Args[0].(*firing)
	r, m := f.run, f.run.meaning(e)
	switch {
	case e.Err != nil:
		e.Cancel(e.Err)
		return
	case r.m.prog.Phases[e.Dst] == nil:
		e.Cancel(fmt.Errorf("there is no phase %q", e.Dst))
		return
	case m.Renames:
		r.rename(e.Dst, e.Event)
	case e.Src == program.Unborn:
		r.enter(e.Dst, "", e.Event, f.message)
	default:
		r.recordRequests(ctx, f.guard)
		r.enter(e.Dst, e.Src, e.Event, f.message)
	}
	f.took = r.next.Transition
	e.Async()
}

// enterState tells of what is durable by now. Nothing in it may fail: nobody would hear of it.
func enterState(_ context.Context, e *looplab.Event) {
	if f := e.Args[0].(*firing); f.announce != nil {
		f.announce(f.took)
	}
}

func (r *Run) meaning(e *looplab.Event) program.Meaning { return r.m.prog.Events[e.Src].Means[e.Event] }

// shut is nil while the guard of an event is open.
func (r *Run) shut(ctx context.Context, m program.Meaning, guard *expr.Expr) error {
	if !slices.Contains(m.Guards, guard) {
		return errors.New("the guard is that of another event")
	}
	if asked := r.truth(ctx, guard); !asked.open {
		return fmt.Errorf("guard %s: %s", guard.Text, asked.got)
	}
	return nil
}

// Fire carries out what Next asked for with RunAction: it fires the event of the step, which calls do, once, unless the machine
// refuses the event. The error is that of do: the run is to be thrown away then.
func (r *Run) Fire(ctx context.Context, do Do) error {
	if r.acting == nil {
		return nil
	}
	f := &firing{run: r, cmd: r.acting, do: do}
	err := r.event(ctx, f.cmd.Event, f)
	switch {
	case f.dropped != nil:
		r.acting = nil
		return f.dropped
	case f.called && (err == nil || f.outcome.Err != nil):
		r.done(ctx, f.outcome)
	default:
		r.acting = nil
		r.next = r.refuse(err)
	}
	return nil
}

// take fires an event that leads on. What it comes to is a Commit, or the machine stands still.
func (r *Run) take(ctx context.Context, event, message string, guard *expr.Expr) *Command {
	return r.goBy(ctx, event, &firing{run: r, message: message, guard: guard})
}

// caught is take for an error, which asks no guard: an exit may have the reason of the error.
func (r *Run) caught(ctx context.Context, event, message string) *Command {
	return r.goBy(ctx, event, &firing{run: r, message: message, caught: true})
}

func (r *Run) goBy(ctx context.Context, event string, f *firing) *Command {
	if err := r.event(ctx, event, f); err != nil {
		return r.refuse(err)
	}
	r.leaving = f
	return r.next
}

// Stored says that a Commit is durable. Only now is a transition done, and announce told of it; nil: nobody asks. It
// does nothing after any other command. The error is a defect of the machine: announce was not called.
func (r *Run) Stored(announce func(*v1alpha1.Transition)) error {
	f := r.leaving
	if f == nil {
		return nil
	}
	r.leaving, f.announce = nil, announce
	if err := r.fsm.Transition(); err != nil {
		return fmt.Errorf("%w: to %s: %w", errIllegal, f.took.To, err)
	}
	if now := r.fsm.Current(); now != f.took.To { // a transition that was called off ends without an error
		return fmt.Errorf("%w: to %s: it was called off", errIllegal, f.took.To)
	}
	return nil
}

// refuse stands still where no event leads on.
func (r *Run) refuse(err error) *Command {
	r.stall = &stall{"IllegalTransition", err.Error()}
	r.message = err.Error()
	poll := defaultPoll
	if p := r.phase(); p != nil && p.PollEvery > 0 {
		poll = p.PollEvery
	}
	return r.sleep(poll)
}

// event fires an event of the phase. It is nil where a step was done, or where a way on waits to be stored.
func (r *Run) event(ctx context.Context, name string, f *firing) error {
	at := cmp.Or(r.st.Phase, program.Unborn)
	s := r.m.prog.Events[at]
	if s == nil {
		return fmt.Errorf("%w: %s from %s", errIllegal, name, at)
	}
	if r.fsm == nil {
		r.fsm = r.newFSM(s)
	}
	happened, err := understand(r.fsm.Event(ctx, name, f))
	switch {
	case err == nil && happened == stayed && f.cmd != nil, err == nil && happened == pending && f.took != nil:
		return nil
	case happened == calledOff && f.called: // by what came of the step
		return err
	case err == nil:
		err = errors.New("it did not do what it is there for")
	}
	if happened != calledOff { // who knows in which state it is
		r.drop(s)
	}
	return fmt.Errorf("%w: %s from %s: %w", errIllegal, name, at, err)
}

// newFSM makes the state machine of this run, at its first event: a look that comes to none pays nothing. A proof, which
// makes very many runs, takes the one that it had.
func (r *Run) newFSM(s *program.PhaseEvents) *looplab.FSM {
	if r.pool == nil {
		return looplab.NewFSM(s.Name, slices.Concat(s.Events, r.more), r.m.callbacks)
	}
	key := r.poolKey(s)
	f := r.pool[key]
	if f == nil {
		f = looplab.NewFSM(s.Name, slices.Concat(s.Events, r.more), r.m.callbacks)
		r.pool[key] = f
	}
	f.SetState(s.Name)
	return f
}

func (r *Run) poolKey(s *program.PhaseEvents) string {
	key := s.Name
	for _, e := range r.more {
		key += " " + e.Name
	}
	return key
}

func (r *Run) drop(s *program.PhaseEvents) {
	r.fsm = nil
	delete(r.pool, r.poolKey(s))
}

// also adds an event that no file can name, for this run alone: what releases an effect of another revision, or an
// error with a reason of its own. It leads where another one does; like "" stays in the phase. Where the name is that of an
// event that leads elsewhere, the other one is fired.
func (r *Run) also(name, like string) string {
	s := r.m.prog.Events[r.st.Phase]
	to := cmp.Or(s.Leads(like), s.Name)
	switch s.Leads(name) {
	case to:
		return name
	case "":
	default:
		return like
	}
	r.more = append(r.more, looplab.EventDesc{Name: name, Src: []string{s.Name}, Dst: to})
	r.fsm = nil
	return name
}

// what an event came to.
type happening int8

const (
	calledOff happening = iota
	stayed
	pending
	// astray is none of them: no event of a machine comes to it.
	astray
)

// understand is the only place that reads what looplab/fsm answers. Of the answers that are no failure, one with
// a cause is one: a callback has found something, and not called the event off.
func understand(answer error) (happening, error) {
	var (
		stay    looplab.NoTransitionError
		async   looplab.AsyncError
		cancel  looplab.CanceledError
		invalid looplab.InvalidEventError
		unknown looplab.UnknownEventError
		busy    looplab.InTransitionError
	)
	switch {
	case answer == nil:
		return astray, nil
	case errors.As(answer, &async):
		return pending, async.Unwrap()
	case errors.As(answer, &stay):
		return stayed, stay.Unwrap()
	case errors.As(answer, &cancel):
		if cancel.Err == nil {
			return calledOff, errors.New("a callback refuses it, and does not say why")
		}
		return calledOff, cancel.Err
	case errors.As(answer, &invalid):
		return calledOff, fmt.Errorf("it is an event of another phase than %s", invalid.State)
	case errors.As(answer, &unknown):
		return calledOff, errors.New("no phase has such an event")
	case errors.As(answer, &busy):
		return astray, errors.New("an earlier event waits to be stored")
	}
	return astray, answer
}
