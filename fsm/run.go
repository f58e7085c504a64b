package fsm

import (
	"cmp"
	"context"
	"fmt"
	"time"

	looplab "github.com/looplab/fsm"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
	"github.com/phasegate/phasegate/fsm/program"
)

// Input is what the driver observed of the object before a run.
type Input struct {
	// Self answers the object as unstructured data, with whole numbers as int64: as
	// the API machinery decodes it. It is called at most once in a run, only when an
	// expression reads it; nil answers an empty object.
	Self func() (map[string]any, error)
	// Context ends evaluations early; nil never does.
	Context context.Context
	// Deleting is true once the object has a deletion timestamp.
	Deleting bool
	// Finalizer is true when the object bears the machine's finalizer.
	Finalizer bool
	// Gone is true when there is no object any more, of which something may still be held:
	// as after a deletion, but the run ends as soon as nothing is.
	Gone bool
	// Message is what the object's status says now; it is repeated where a timeout tells
	// what had been waited for.
	Message string
	// Generation is the object's metadata.generation.
	Generation int64
	// Observed is the generation that the stored status is about; 0 if that is not known.
	Observed int64
	// Guard answers a named Go guard: whether it is open, what was seen, or an
	// error. It is called at most once per name and run, only when needed.
	Guard func(name string) (open bool, seen string, err error)
	// Due is what Run.Due answered when the run before this one had ended, as the driver remembers
	// it; nil where it does not, as after a restart.
	Due *time.Time
	// Now is the clock.
	Now func() time.Time
	// Random answers numbers in [0,1) for jitter; nil means no jitter.
	Random func() float64
}

// StaticObject is a Input.Self for an object that is data already.
func StaticObject(self map[string]any) func() (map[string]any, error) {
	return func() (map[string]any, error) { return self, nil }
}

// Verb is what the driver must do next.
type Verb string

// The commands of a run.
const (
	// RunAction: fire the event of a step with Fire, which calls the action.
	RunAction Verb = "RunAction"
	// Commit: write the status with a precondition on the resource version, then call Stored, and
	// start a new run from what was written.
	Commit Verb = "Commit"
	// AddFinalizer: add the machine's finalizer, then start a new run.
	AddFinalizer Verb = "AddFinalizer"
	// RemoveFinalizer: remove the machine's finalizer; the object may be gone then.
	RemoveFinalizer Verb = "RemoveFinalizer"
	// Requeue: write the status if it changed; come back after Command.After, or
	// when something changes if that is 0.
	Requeue Verb = "Requeue"
)

// Command is one thing to do.
type Command struct {
	Do Verb
	// Action, Step, Event and With belong to RunAction. Event is the one that Fire fires. Effect is set when the action gives
	// back a held effect.
	Action, Step, Event, Effect string
	// StepID belongs to RunAction, and is the same for every call of the step and for no other step:
	// the name that the file gives to the action, or else the phase and the name of the step.
	StepID string
	With   expr.Params
	// After belongs to Requeue.
	After time.Duration
	// Early belongs to Requeue: nothing was looked at, since it is not time yet. Nothing is to be
	// written then, if the status shows the stored state.
	Early bool
	// Transition is the edge that a Commit makes durable; nil when there is none.
	Transition *v1alpha1.Transition
}

// Run is one pass over an object: a notebook that is thrown away afterwards.
// It is not safe for concurrent use.
type Run struct {
	m      *Machine
	input  Input
	st     v1alpha1.MachineStatus
	result map[string]any
	guards map[string]guardAnswer
	// self is Input.Self as expressions see it; spent is what they cost so far.
	self  any
	spent uint64

	// guardStub answers guards while a machine is proved: there is no object then. Nil
	// in every other run.
	guardStub func(*expr.Expr) (open bool, err error)

	// fsm is that of the phase, made at the first event; more are events that it has besides those of the phase. pool is
	// for a proof alone, whose runs are many and die young.
	fsm  *looplab.FSM
	more []looplab.EventDesc
	pool map[string]*looplab.FSM
	// leaving is a transition that waits to be stored.
	leaving *firing

	// acting is what Fire will do; began is when it was asked for.
	acting *Command
	began  time.Time
	// next is a command decided by the outcome of an action or by a transition.
	next    *Command
	message string
	stall   *stall
	// overdue: the deadline passed and has no target, so that it wakes nobody any more.
	overdue bool
	timing
}

type guardAnswer struct {
	open bool
	seen string
	err  error
}

type stall struct{ reason, message string }

// defaultPoll is when a step that waits is looked at again where the file says
// nothing.
const defaultPoll = 10 * time.Second

// longStep is how long a step may take before its end is made durable at once,
// so that a crash does not repeat it. Steps of a steady phase are repeated anyway.
const longStep = time.Second

// Run starts a pass from a stored status, which is not changed.
func (m *Machine) Run(status v1alpha1.MachineStatus, v Input) *Run {
	r := &Run{m: m, input: v, st: *status.DeepCopy(), guards: map[string]guardAnswer{}}
	r.result = decodeResult(r.st.Result)
	switch {
	case v.Gone: // nobody changes its spec any more
		r.input.Generation = r.st.Generation
	case r.st.Generation == 0: // stored before there was this field
		r.st.Generation = v.Generation
	}
	moved := r.st.Revision != m.def.Revision && r.adopt()
	if r.st.Cursor < 0 || r.outdated() {
		// The cursor counts steps that were done for an older spec, or was written by
		// hand. Steps are idempotent: begin with the first, so that none is left out.
		r.restart()
	}
	r.timing = r.timingOf(moved)
	return r
}

// outdated tells that the spec changed in the middle of a look at a steady phase, which
// says Ready at its end: of the new spec, so every step must have seen it.
func (r *Run) outdated() bool {
	p := r.phase()
	return p != nil && p.Kind == "steady" && r.input.Observed != 0 && r.input.Observed != r.input.Generation
}

// Status is what is to be stored now.
func (r *Run) Status() v1alpha1.MachineStatus {
	st := *r.st.DeepCopy()
	st.Name, st.Revision = r.m.def.Metadata.Name, r.m.def.Revision
	if p := r.phase(); p != nil { // else a later revision may have it again
		st.PhaseRevision = p.Revision
	}
	st.OnDelete = r.onDelete()
	return st
}

// Next answers what to do. After RunAction it must not be called before Fire.
func (r *Run) Next() Command {
	if r.next != nil {
		return *r.next
	}
	if r.st.Phase == "" {
		return r.begin()
	}
	if r.input.Gone && len(r.st.Held) == 0 {
		return r.rest()
	}
	p := r.phase()
	if p == nil {
		return r.unknownPhase()
	}
	if r.finished(p) {
		return r.rest()
	}
	if p.End && !r.input.Gone {
		return Command{Do: RemoveFinalizer}
	}
	for _, decide := range []func(*program.Phase) *Command{r.deletion, r.deadline, r.early, r.admit, r.steps} {
		if cmd := decide(p); cmd != nil {
			return *cmd
		}
	}
	return r.exits(p)
}

// finished: nothing of ours keeps the object, and nothing of it is left to give
// back. What is held is given back even when somebody took the finalizer away.
func (r *Run) finished(p *program.Phase) bool {
	return !r.input.Gone && !r.input.Finalizer && (p.End || r.input.Deleting && len(r.st.Held) == 0)
}

func (r *Run) phase() *program.Phase { return r.m.prog.Phases[r.st.Phase] }

func (r *Run) now() metav1.MicroTime {
	return metav1.NewMicroTime(r.input.Now().Truncate(time.Microsecond))
}

func (r *Run) begin() Command {
	if r.input.Gone || r.input.Deleting && !r.input.Finalizer {
		return r.rest()
	}
	if r.lost() {
		return r.recover()
	}
	return *r.take(program.ReasonCreated, "", nil)
}

// deletion is total: it asks no guard of the machine's author.
func (r *Run) deletion(p *program.Phase) *Command {
	if !r.input.Deleting && !r.input.Gone || p.Deletion {
		return nil
	}
	switch {
	case p.OnDelete.To != "":
		return r.take(program.ReasonDeletion, "", nil)
	case p.OnDelete.None && len(r.st.Held) == 0:
		return &Command{Do: RemoveFinalizer}
	case p.OnDelete.None:
		r.stall = &stall{"EffectsHeld", fmt.Sprintf("held: %v; a machine that holds effects here has a defect", r.st.HeldNames())}
		cmd := r.rest()
		return &cmd
	}
	return nil // hold: go on
}

func (r *Run) deadline(p *program.Phase) *Command {
	r.st.Deadline = deadlineOf(p, r.st.Since) // of the file as it is now
	if r.st.Deadline == nil || r.input.Now().Before(r.st.Deadline.Time) {
		return nil
	}
	if p.Timeout.To != "" {
		return r.take(program.TimeoutEvent(p), fmt.Sprintf("%s lasted longer than %s: %s", p.Name, p.Timeout.After, r.waitingFor(p)), nil)
	}
	r.overdue = true
	r.stall = &stall{p.Timeout.Stalled, fmt.Sprintf("%s lasts longer than %s", p.Name, p.Timeout.After)}
	return nil
}

func deadlineOf(p *program.Phase, since *metav1.MicroTime) *metav1.MicroTime {
	if p.TimeoutAfter == 0 || since == nil {
		return nil
	}
	at := metav1.NewMicroTime(since.Add(p.TimeoutAfter))
	return &at
}

// waitingFor tells what the last pass had been waiting for. Of closed exits the first
// may be about something that nobody asks for: the phase's own words are better.
func (r *Run) waitingFor(p *program.Phase) string {
	if len(r.st.Blocked) == 0 {
		return expr.Clip(cmp.Or(r.input.Message, "no step was blocked"), v1alpha1.TextLimit/4)
	}
	b := r.st.Blocked[0]
	if message := p.Text.Render(r.value); b.Step == "" && message != "" {
		return message
	}
	return expr.Clip(cmp.Or(b.Got, b.Because), 160)
}

// admit checks the preconditions, then puts the finalizer in place: nothing
// that needs undoing may happen before. A finalizer that is there already proves
// nothing: it may come from a manifest or a backup, or from an earlier visit.
func (r *Run) admit(p *program.Phase) *Command {
	if p.Deletion || p.Terminal != "" || r.input.Deleting || r.input.Gone {
		return nil
	}
	if cmd := r.require(p); cmd != nil {
		return cmd
	}
	if r.input.Finalizer || r.m.def.Spec.Finalizer == "" {
		return nil
	}
	return &Command{Do: AddFinalizer}
}

// require is asked before the first step, while nothing is held.
func (r *Run) require(p *program.Phase) *Command {
	if r.begun() {
		return nil
	}
	for _, q := range p.Requirements {
		asked := r.truth(q.WhenExpr)
		if asked.err != nil {
			r.fail(Result{Err: fmt.Errorf("checking whether %s: %w", q.When, asked.err), Class: program.ClassUnavailable}, p.Backoff, p)
			return r.next
		}
		if !asked.open {
			return r.take(program.RequireEvent(q.Require), cmp.Or(q.Text.Render(r.value), asked.got), nil)
		}
	}
	if !r.extra() { // it is the step that failed, of a phase that begins anew
		r.calm()
	}
	return nil
}

// begun tells whether the steps have been, which come after the preconditions.
func (r *Run) begun() bool { return r.st.Cursor > 0 || r.st.Step != "" || len(r.st.Held) > 0 }

// sleep ends the run; a deadline cuts it short.
func (r *Run) sleep(after time.Duration) Command {
	if r.st.Deadline != nil && !r.overdue {
		if left := max(r.st.Deadline.Sub(r.input.Now()), time.Millisecond); after == 0 || left < after {
			after = left
		}
	}
	return Command{Do: Requeue, After: after}
}

// rest ends the run until something changes: there is nothing to look at again.
func (r *Run) rest() Command { return Command{Do: Requeue} }
