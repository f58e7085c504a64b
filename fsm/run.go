package fsm

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// View is what the driver observed of the object before a run.
type View struct {
	// Self is the object as unstructured data.
	Self map[string]any
	// Deleting is true once the object has a deletion timestamp.
	Deleting bool
	// Finalizer is true when the object bears the machine's finalizer.
	Finalizer bool
	// GenerationChanged is true when the spec changed since the last status write.
	GenerationChanged bool
	// Guard answers a named Go guard: whether it is open, what was seen, or an
	// error. It is called at most once per name and run, only when needed.
	Guard func(name string) (open bool, seen string, err error)
	// Now is the clock.
	Now func() time.Time
	// Random answers numbers in [0,1) for jitter; nil means no jitter.
	Random func() float64
}

// Verb is what the driver must do next.
type Verb string

// The commands of a run.
const (
	// Act: call the action and hand its outcome to Done.
	Act Verb = "Act"
	// Commit: write the status with a precondition on the resource version, then
	// start a new run from what was written.
	Commit Verb = "Commit"
	// AddFinalizer: add the machine's finalizer, then start a new run.
	AddFinalizer Verb = "AddFinalizer"
	// RemoveFinalizer: remove the machine's finalizer; the object may be gone then.
	RemoveFinalizer Verb = "RemoveFinalizer"
	// Sleep: write the status if it changed; come back after Command.After, or
	// when something changes if that is 0.
	Sleep Verb = "Sleep"
)

// Command is one thing to do.
type Command struct {
	Do Verb
	// Action, Step and With belong to Act. Effect is set when the action gives
	// back a held effect.
	Action, Step, Effect string
	With                 Params
	// After belongs to Sleep.
	After time.Duration
	// Took is the edge that a Commit makes durable; nil when there is none.
	Took *v1alpha1.Transition
}

// Run is one pass over an object: a notebook that is thrown away afterwards.
// It is not safe for concurrent use.
type Run struct {
	m      *Machine
	view   View
	st     v1alpha1.MachineStatus
	result map[string]any
	guards map[string]guardAnswer

	// acting is what Done will hear about; began is when it was asked for.
	acting *Command
	began  time.Time
	// next is a command decided by Done or by a transition.
	next    *Command
	message string
	stall   *stall
}

type guardAnswer struct {
	open bool
	seen string
	err  error
}

type stall struct{ reason, message string }

// longStep is how long a step may take before its end is made durable at once,
// so that a crash does not repeat it.
const longStep = time.Second

// Run starts a pass from a stored status, which is not changed.
func (m *Machine) Run(status v1alpha1.MachineStatus, v View) *Run {
	r := &Run{m: m, view: v, st: *status.DeepCopy(), guards: map[string]guardAnswer{}}
	r.result = decodeResult(r.st.Result)
	return r
}

// Status is what is to be stored now.
func (r *Run) Status() v1alpha1.MachineStatus {
	st := *r.st.DeepCopy()
	st.Name, st.Revision = r.m.def.Metadata.Name, r.m.def.Revision
	st.Result = encodeResult(r.result)
	st.OnDelete = r.onDelete()
	return st
}

// Next answers what to do. After Act it must not be called before Done.
func (r *Run) Next() Command {
	if r.next != nil {
		return *r.next
	}
	if r.st.Phase == "" {
		return r.begin()
	}
	p := r.phase()
	if p == nil {
		return r.unknownPhase()
	}
	if r.view.Deleting && !r.view.Finalizer {
		return r.sleep(0) // nothing of ours holds it: it is gone in a moment
	}
	if p.End {
		return Command{Do: RemoveFinalizer}
	}
	if cmd := r.deletion(p); cmd != nil {
		return *cmd
	}
	if cmd := r.deadline(p); cmd != nil {
		return *cmd
	}
	if cmd := r.admit(p); cmd != nil {
		return *cmd
	}
	if cmd := r.steps(p); cmd != nil {
		return *cmd
	}
	return r.exits(p)
}

func (r *Run) phase() *phase { return r.m.prog.phases[r.st.Phase] }

func (r *Run) now() metav1.MicroTime {
	return metav1.NewMicroTime(r.view.Now().Truncate(time.Microsecond))
}

func (r *Run) begin() Command {
	if r.view.Deleting && !r.view.Finalizer {
		return r.sleep(0)
	}
	r.enter(r.m.def.Spec.Initial, "", "Created", "")
	return *r.next
}

func (r *Run) unknownPhase() Command {
	r.stall = &stall{reason: "UnknownPhase", message: fmt.Sprintf(
		"phase %q is not in revision %s of machine %s: restore the phase in the machine file, or add it to spec.upgrade.phaseMap",
		r.st.Phase, r.m.def.Revision, r.m.def.Metadata.Name)}
	r.message = r.stall.message
	return r.sleep(0)
}

// deletion is total: it asks no guard of the machine's author.
func (r *Run) deletion(p *phase) *Command {
	if !r.view.Deleting || p.Deletion {
		return nil
	}
	switch {
	case p.OnDelete.To != "":
		return r.take(p, deleteEvent, "DeletionRequested", "", nil)
	case p.OnDelete.None && len(r.st.Held) == 0:
		return &Command{Do: RemoveFinalizer}
	case p.OnDelete.None:
		r.stall = &stall{"EffectsHeld", fmt.Sprintf("held: %v; a machine that holds effects here has a defect", r.st.Held)}
		cmd := r.sleep(0)
		return &cmd
	}
	return nil // hold: go on
}

func (r *Run) deadline(p *phase) *Command {
	if p.Timeout == nil || r.st.Deadline == nil || r.view.Now().Before(r.st.Deadline.Time) {
		return nil
	}
	if p.Timeout.To != "" {
		return r.take(p, timeoutEvent, firstOf(p.Timeout.Reason, "Timeout"),
			fmt.Sprintf("%s lasted longer than %s: %s", p.Name, p.Timeout.After, r.waitingFor()), nil)
	}
	r.stall = &stall{p.Timeout.Stalled, fmt.Sprintf("%s lasts longer than %s", p.Name, p.Timeout.After)}
	return nil
}

// waitingFor tells what the last pass had been waiting for.
func (r *Run) waitingFor() string {
	if len(r.st.Blocked) == 0 {
		return "no step was blocked"
	}
	b := r.st.Blocked[0]
	return clip(firstOf(b.Got, b.Because), 160)
}

// admit checks the preconditions, then puts the finalizer in place: nothing
// that needs undoing may happen before.
func (r *Run) admit(p *phase) *Command {
	if r.view.Finalizer || p.Deletion || p.Terminal != "" {
		return nil
	}
	for i, q := range p.require {
		ok, seen, err := r.truth(q.when)
		if err != nil {
			r.fail(Outcome{Err: fmt.Errorf("checking whether %s: %w", q.When, err), Class: ClassUnavailable}, p.retry, p)
			return r.next
		}
		if !ok {
			return r.take(p, requireEvent(i), q.Reason, firstOf(q.message.render(r.vars()), seen), nil)
		}
	}
	if r.m.def.Spec.Finalizer == "" {
		return nil
	}
	return &Command{Do: AddFinalizer}
}

// sleep ends the run; a deadline cuts it short.
func (r *Run) sleep(after time.Duration) Command {
	if r.st.Deadline != nil && r.stall == nil {
		if left := max(r.st.Deadline.Sub(r.view.Now()), time.Millisecond); after == 0 || left < after {
			after = left
		}
	}
	r.st.NextCheck = nil
	if p := r.phase(); after > 0 && p != nil && p.Kind != "steady" && p.Terminal == "" {
		next := metav1.NewMicroTime(r.view.Now().Add(after).Truncate(time.Second))
		r.st.NextCheck = &next
	}
	return Command{Do: Sleep, After: after}
}
