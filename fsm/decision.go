package fsm

import (
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// Observation is what the driver has seen of the object before a run.
type Observation struct {
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
	// Due is Decision.Due as the driver remembers it; nil where it does not, as after a restart.
	Due *time.Time
	// Now is the clock.
	Now func() time.Time
	// Random answers numbers in [0,1) for jitter; nil means no jitter.
	Random func() float64
	// Prove decides guards in place of their evaluation, for a proof, which has no object. Nil in every other run.
	Prove func(*expr.Expr) (open bool, err error)
}

// StaticObject is an Observation.Self for an object that is data already.
func StaticObject(self map[string]any) func() (map[string]any, error) {
	return func() (map[string]any, error) { return self, nil }
}

// Verb is what the driver must do next.
type Verb string

// What a run decides.
const (
	// RunAction: carry the step out with Run.Apply, which calls the action.
	RunAction Verb = "RunAction"
	// Commit: write the status with a precondition on the resource version, tell of the transition, and start a new run
	// from what was written.
	Commit Verb = "Commit"
	// AddFinalizer: add the machine's finalizer, then start a new run.
	AddFinalizer Verb = "AddFinalizer"
	// RemoveFinalizer: remove the machine's finalizer; the object may be gone then.
	RemoveFinalizer Verb = "RemoveFinalizer"
	// Requeue: write the status if it changed; come back after Decision.After, or
	// when something changes if that is 0.
	Requeue Verb = "Requeue"
)

// Decision is one thing to do.
type Decision struct {
	Do Verb
	// Action, Step and With belong to RunAction. The step is the event that carries it. Effect is set when the
	// action releases a held effect.
	Action, Step, Effect string
	// StepID belongs to RunAction, and is the same for every call of the step and for no other step:
	// the name that the file gives to the action, or else the phase and the name of the step.
	StepID string
	With   expr.Params
	// Key belongs to RunAction: that of the item of a forEach that the action is about.
	Key string
	// Releases belongs to RunAction: the action releases an effect, in an undo or in a step of its own.
	Releases bool
	// External belongs to RunAction: the action calls something outside the cluster.
	External bool
	// After belongs to Requeue.
	After time.Duration
	// Early belongs to Requeue: nothing was looked at, since it is not time yet. Nothing is to be
	// written then, if the status shows the stored state.
	Early bool
	// Due is what the driver is to remember for Observation.Due of the next run, once what it was told to do is done; of
	// RunAction, as soon as the action is called, since a call is a call whatever comes of it. Nil is nothing.
	Due *time.Time
	// Transition is the edge that a Commit makes durable; nil when there is none. It is told of once it is durable.
	Transition *v1alpha1.Transition
}

// defaultPoll is when a step that waits is looked at again where the file says
// nothing.
const defaultPoll = 10 * time.Second

// longStep is how long a step may take before its end is made durable at once,
// so that a crash does not repeat it. Steps of a steady phase are repeated anyway.
const longStep = time.Second
