package runner

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/phasegate/phasegate/resources/apierrors"
)

// askedLocked tells whether an object still asks for the action that runs: nobody deletes it, and its spec, our finalizer
// and what the machine reads for this step are the same. Whatever else others write, and however often, does not keep
// the action from its end.
func (p *pass[T]) askedLocked(ctx context.Context, live T) bool {
	was := p.stored
	return p.run != nil && live.GetUID() == was.GetUID() && live.GetGeneration() == was.GetGeneration() &&
		live.GetDeletionTimestamp().IsZero() == was.GetDeletionTimestamp().IsZero() &&
		controllerutil.ContainsFinalizer(live, p.finalizerLocked()) == controllerutil.ContainsFinalizer(was, p.finalizerLocked()) &&
		p.run.Asks(ctx, func() (map[string]any, error) { return selfOf(live, p.state) })
}

// publish writes progress once a second until the action is done. When the
// object does not ask for the action any more it calls moved and stops. The function that it
// returns is for the end of the action, after done: it waits for a write that is on
// its way. Without its answer, the pass would take it for somebody else's.
func (p *pass[T]) publish(ctx context.Context, done <-chan struct{}, moved func()) (wait func()) {
	if p.gone {
		return func() {}
	}
	ended := make(chan struct{})
	// Most actions are over before there is anything to do here.
	first := p.by.Clock.AfterFunc(publishEvery, func() {
		go func() { // a fake clock calls while it is locked
			defer close(ended)
			p.publishing(ctx, done, moved)
		}()
	})
	return func() {
		if !first.Stop() {
			<-ended
		}
	}
}

func (p *pass[T]) publishing(ctx context.Context, done <-chan struct{}, moved func()) {
	ticker := p.by.Clock.NewTicker(publishEvery)
	defer ticker.Stop()
	for {
		if p.movedOrSent(ctx) {
			moved()
			return
		}
		select {
		case <-done:
			return
		case <-ticker.C():
		}
	}
}

// movedOrSent tells whether the action must end; errors are left to the pass's own write, which
// cannot do without an answer.
func (p *pass[T]) movedOrSent(ctx context.Context) bool {
	p.sending.Lock()
	defer p.sending.Unlock()
	live := p.by.Program.New()
	err := p.by.Client.Get(ctx, client.ObjectKeyFromObject(p.stored), live)
	if err != nil {
		return apierrors.ObjectNotFound(err)
	}
	if live.GetResourceVersion() != p.stored.GetResourceVersion() {
		if !p.askedLocked(ctx, live) {
			return true
		}
		if err := p.refreshLocked(ctx, live); err != nil {
			return errors.Is(err, errMoved)
		}
	}
	_ = p.send(ctx) // progress only: the next tick or the pass's own write repeats it
	return false
}
