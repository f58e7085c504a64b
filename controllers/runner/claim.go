package runner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Managers of one installation share a lease. Two installations do not know of each other, and would undo each other's
// work: the fence of one refuses the account of the other. So a state says which one drives its object, by the name of
// the lease. That one keeps it for as long as anybody renews the lease. Then the next one that looks takes it over, so
// that an installation under another name goes on where the last one stopped. Both say so.

// holderOf looks at the lease of another installation. Where it cannot be read, somebody may hold it.
func (r *Reconciler[T]) holderOf(ctx context.Context, manager string) (holder, error) {
	r.holders.mu.Lock()
	known, now := r.holders.all[manager], r.Clock.Now()
	r.holders.mu.Unlock()
	if !known.asked.IsZero() && now.Sub(known.asked) < askHolder {
		return known, nil
	}
	if r.Lease == nil {
		return holder{gone: true}, nil
	}
	lease, err := r.Lease(ctx, manager)
	if err != nil && !apierrs.IsNotFound(err) {
		return holder{lasts: asideFor}, fmt.Errorf("read its lease: %w", err)
	}
	if err != nil {
		lease = nil
	}
	r.holders.mu.Lock()
	defer r.holders.mu.Unlock()
	if r.holders.all == nil {
		r.holders.all = map[string]holder{}
	}
	known = r.holders.all[manager].look(lease, now)
	r.holders.all[manager] = known
	return known, nil
}

// yield is how long the pass leaves an object to the manager of another installation; before anything is done in
// the name of a state, that state says that it is ours.
func (r *Reconciler[T]) yield(ctx context.Context, p *pass[T], about runtime.Object) (time.Duration, error) {
	ours := r.Manager
	if p.state == nil || ours == "" || p.state.Status.Manager == ours {
		r.told.drop(client.ObjectKeyFromObject(p.stored))
		return 0, nil // who makes a state claims it
	}
	owner := p.state.Status.Manager
	if owner != "" {
		if there, err := r.holderOf(ctx, owner); !there.gone {
			r.leave(ctx, p, about, err)
			return there.again(), nil
		}
	}
	next := p.state.DeepCopy()
	next.Status.Manager = ours
	if err := p.writeWithRetry(ctx, next); err != nil {
		return 0, err
	}
	if owner != "" {
		note := fmt.Sprintf("this manager, %s, takes the object over from that of another installation, %s, whose lease nobody holds", ours, owner)
		log.FromContext(ctx).Info(note)
		tell(r.Recorder, about, corev1.EventTypeWarning, "TakenOver", "Claim", note)
	}
	return 0, nil
}

// leave says once of an object whose it is; unread is why its lease could not be read.
func (r *Reconciler[T]) leave(ctx context.Context, p *pass[T], about runtime.Object, unread error) {
	owner := p.state.Status.Manager
	note := fmt.Sprintf("the manager of another installation, %s, drives this object and keeps it while it holds its lease, so this one, %s, leaves it alone: "+
		"if both are running, uninstall one of them", owner, r.Manager)
	if unread != nil {
		note = fmt.Sprintf("the manager of another installation, %s, drives this object, and this one, %s, cannot tell whether it is still there: %v", owner, r.Manager, unread)
	}
	if last := r.told.of(p.stored); last != nil && *last == note {
		return
	}
	r.told.keep(p.stored, &note)
	log.FromContext(ctx).Info(note)
	tell(r.Recorder, about, corev1.EventTypeWarning, "AnotherManager", "Claim", note)
}
