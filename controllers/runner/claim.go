package runner

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// Busy keeps two passes apart that are about one object: one over the object, and one over
// what it has left when it is gone. The zero value is ready; a nil one keeps nothing apart.
type Busy struct {
	// Manager names the installation that this process belongs to, as the lease that its processes share: a state
	// says which one drives its object. Empty: it claims nothing.
	Manager string

	// now are the objects that a pass is about.
	now sync.Map

	mu sync.Mutex
	// claims are the objects that this installation has driven; one that another has taken over is left to it until
	// then.
	claims map[types.UID]time.Time
}

// take is false while another pass is about the object.
func (b *Busy) take(uid types.UID) bool {
	if b == nil {
		return true
	}
	_, taken := b.now.LoadOrStore(uid, true)
	return !taken
}

func (b *Busy) release(uid types.UID) {
	if b != nil {
		b.now.Delete(uid)
	}
}

// Managers of one installation share a lease. Two installations do not know of each other, and would undo each other's
// work: the fence of one refuses the account of the other. So a state says which one drives its object. The newest takes
// it over, so that an installation under another name goes on where the last one stopped; one that finds that its object
// was taken over stands aside for a while, and both say so.

// asideFor is how long an installation leaves an object alone that another one has taken over.
const asideFor = 5 * time.Minute

// claimed decides about an object whose state says that it is driven by owner: take tells to take it over, and aside how
// long to leave it alone.
func (b *Busy) claimed(uid types.UID, owner string, now time.Time) (take bool, aside time.Duration, news bool) {
	if b == nil || b.Manager == "" {
		return false, 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	until, driven := b.claims[uid]
	switch {
	case owner == b.Manager:
		b.claim(uid, time.Time{})
		return false, 0, false
	case owner != "" && driven && until.IsZero():
		b.claim(uid, now.Add(asideFor))
		return false, asideFor, true
	case now.Before(until):
		return false, until.Sub(now), false
	}
	return true, 0, owner != ""
}

// claim is called with mu held.
func (b *Busy) claim(uid types.UID, until time.Time) {
	if b.claims == nil {
		b.claims = map[types.UID]time.Time{}
	}
	b.claims[uid] = until
}

// unclaim forgets an object that is gone.
func (b *Busy) unclaim(uid types.UID) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.claims, uid)
}

// manager is who claims what this process drives.
func (b *Busy) manager() string {
	if b == nil {
		return ""
	}
	return b.Manager
}

// standAside is how long the pass leaves an object to the manager of another installation; before anything is done in
// the name of a state, that state says that it is ours.
func (r *Reconciler[T]) standAside(ctx context.Context, p *pass[T], about runtime.Object) (time.Duration, error) {
	if p.state == nil {
		return 0, nil // who makes it claims it
	}
	owner := p.state.Status.Manager
	take, aside, news := r.Busy.claimed(p.state.Spec.Object.UID, owner, r.Clock.Now())
	if !take {
		if news {
			note := fmt.Sprintf("the manager of another installation, %s, drives this object now, so this one, %s, leaves it alone for %s: "+
				"if both are running, uninstall one of them", owner, r.Busy.manager(), asideFor)
			log.FromContext(ctx).Info(note)
			tell(r.Recorder, about, corev1.EventTypeWarning, "AnotherManager", "Claim", note)
		}
		return aside, nil
	}
	next := p.state.DeepCopy()
	next.Status.Manager = r.Busy.manager()
	if err := p.insist(ctx, next); err != nil {
		return 0, err
	}
	r.Busy.claimed(p.state.Spec.Object.UID, next.Status.Manager, r.Clock.Now())
	if news {
		note := fmt.Sprintf("this manager, %s, takes the object over from that of another installation, %s", next.Status.Manager, owner)
		log.FromContext(ctx).Info(note)
		tell(r.Recorder, about, corev1.EventTypeWarning, "TakenOver", "Claim", note)
	}
	return 0, nil
}

// claimState says in a state that is about to be written whose it is.
func (p *pass[T]) claimState(next *v1alpha1.MachineState) {
	next.Status.Manager = cmp.Or(p.by.Busy.manager(), next.Status.Manager)
}
