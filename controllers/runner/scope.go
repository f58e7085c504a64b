package runner

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

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
// is saved already makes no request. An error means that it may not be on record: a write that was refused, a state that
// another manager has written, or one of which the API server has dropped a part.
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

// StateUID is that of the MachineState, which outlives the object until all is released; empty before there is one.
func (s *Scope[T]) StateUID() types.UID {
	s.pass.sending.Lock()
	defer s.pass.sending.Unlock()
	if s.pass.state == nil {
		return ""
	}
	return s.pass.state.UID
}

// Gone tells that there is no object any more, only its state: Object has what that says of it.
func (s *Scope[T]) Gone() bool { return s.pass != nil && s.pass.gone }

// Warn tells a person something that needs no action of the machine.
func (s *Scope[T]) Warn(reason, format string, args ...any) {
	tell(s.recorder, s.Object, corev1.EventTypeWarning, reason, reason, fmt.Sprintf(format, args...))
}
