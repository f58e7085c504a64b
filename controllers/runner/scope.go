package runner

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// Scope is what an action may use. It is gone when the action returns.
type Scope[T Object[T]] struct {
	// Object as it is when the action begins, for reading: with what this pass has
	// reported and with its machine's state, of which all is written but what was released
	// or finished since. Changes go through Report.
	Object T
	// Machine is the one of this pass.
	Machine *fsm.Machine
	// StepID is fsm.Decision.StepID: the same for every call of the step, and for no other one.
	StepID string
	// With are the step's parameters.
	With  fsm.Params
	Clock clock.Clock

	pass     *pass[T]
	recorder events.EventRecorder
}

// Report changes the kind's own status fields. It costs no request: what was
// reported is written at most once a second while the action runs, and with the
// pass's own write. It may be called from several goroutines.
func (s *Scope[T]) Report(change func(T)) {
	s.pass.mu.Lock()
	defer s.pass.mu.Unlock()
	change(s.pass.work)
	s.pass.reported = true
}

// Save keeps a text with the state of the object, at once, for what must be on record before
// a deed, and be there although the object is gone. An empty text removes it. Saving what
// is saved already makes no request.
func (s *Scope[T]) Save(ctx context.Context, name, text string) error {
	p := s.pass
	p.sending.Lock()
	defer p.sending.Unlock()
	if string(p.saved[name]) == text {
		return nil
	}
	next := p.state.DeepCopy()
	if next == nil {
		next = newState(p.spec)
	}
	next.Status.Saved = withText(next.Status.Saved, name, text)
	p.claimState(next)
	return p.storeState(ctx, next)
}

// Saved is what was saved under the name; empty where nothing was.
func (s *Scope[T]) Saved(name string) string {
	if s.pass == nil { // of a scope that a test has made
		return ""
	}
	s.pass.sending.Lock()
	defer s.pass.sending.Unlock()
	return string(s.pass.saved[name])
}

// About says of which object, by which machine, the state is that Save writes.
func (s *Scope[T]) About() v1alpha1.MachineStateSpec { return s.pass.spec }

// Gone tells that there is no object any more, only its state: Object has what that says of it.
func (s *Scope[T]) Gone() bool { return s.pass != nil && s.pass.gone }

// Warn tells a person something that needs no action of the machine.
func (s *Scope[T]) Warn(reason, format string, args ...any) {
	tell(s.recorder, s.Object, corev1.EventTypeWarning, reason, reason, fmt.Sprintf(format, args...))
}
