package fsm

import (
	"context"
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
	// Action, Step, Event and With belong to RunAction. Event is the one that Fire fires. Effect is set when the action releases
	// a held effect.
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

	// acting is what Fire will do; began is when it was asked for, external that it calls outside the cluster.
	acting   *Command
	began    time.Time
	external bool
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

func (r *Run) phase() *program.Phase { return r.m.prog.Phases[r.st.Phase] }

func (r *Run) now() metav1.MicroTime {
	return metav1.NewMicroTime(r.input.Now().Truncate(time.Microsecond))
}

func deadlineOf(p *program.Phase, since *metav1.MicroTime) *metav1.MicroTime {
	if p.TimeoutAfter == 0 || since == nil {
		return nil
	}
	return new(metav1.NewMicroTime(since.Add(p.TimeoutAfter)))
}

// sleep ends the run; a deadline cuts it short.
func (r *Run) sleep(after time.Duration) *Command {
	if r.st.Deadline != nil && !r.overdue {
		if left := max(r.st.Deadline.Sub(r.input.Now()), time.Millisecond); after == 0 || left < after {
			after = left
		}
	}
	return &Command{Do: Requeue, After: after}
}

// rest ends the run until something changes: there is nothing to look at again.
func (r *Run) rest() *Command { return &Command{Do: Requeue} }

func (r *Run) commit(took *v1alpha1.Transition) *Command {
	r.next = &Command{Do: Commit, Transition: took}
	return r.next
}

// timing is what may come early in a run, see early.go.
type timing struct {
	// edited: the spec or the file has changed since the call that NotBefore is about.
	edited bool
	// due is when something outside the cluster may be called again.
	due time.Time
	// called: the current step has called something outside the cluster, which may be called again at
	// again if nothing comes of this run.
	called bool
	again  time.Time
	// was is what the run began with, in a phase that calls outside the cluster.
	was *v1alpha1.MachineStatus
}

// Do carries out a command: it calls the action, and answers what came of it. An error says that nothing of the run
// counts any more: the driver is ending, or the object is another one by now.
type Do func(ctx context.Context, cmd Command) (Result, error)

// firing is what the callbacks of an event get, as its only argument.
type firing struct {
	run *Run

	// Of a step: what to do, and what came of it.
	cmd     *Command
	do      Do
	called  bool
	outcome Result
	dropped error

	// Of a way on: what is told of it, what was decided, and who hears of it once it is durable.
	message  string
	guard    *expr.Expr
	caught   bool // by onError: no guard is asked
	took     *v1alpha1.Transition
	announce func(*v1alpha1.Transition)
}

// restart makes the next look begin with the first step.
func (r *Run) restart() {
	r.st.StepIndex, r.st.Step, r.st.StepEnteredAt = 0, "", nil
}

// begun tells whether the steps have been, which come after the preconditions.
func (r *Run) begun() bool { return r.st.StepIndex > 0 || r.st.Step != "" || len(r.st.Held) > 0 }
