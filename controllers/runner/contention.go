package runner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

const (
	// foreignWrites is how many status writes of others are written over at once.
	foreignWrites = 3
	// yieldFirst is how long an object is left alone then, and yieldMost at most: each time yieldFactor times as long.
	yieldFirst, yieldMost, yieldFactor = time.Minute, 24 * time.Hour, 4
	// calmAfter is how long nobody else must have written for all of it to be forgotten.
	calmAfter = 10 * time.Minute
)

// contended is what is known of an object that another controller may drive, too: it writes the status, which is ours
// alone. Each of the two would undo what the other does, and with Deployments replace all pods each time. So this one
// leaves the object alone, for longer and longer.
type contended[T Object[T]] struct {
	// generation of the spec that this is about: another one ends it.
	generation int64
	// status is an object with the status alone that the API server had last, as far as we know.
	status T
	// writes of others, the last of them, and until when the object is left alone.
	writes    int
	at, until time.Time
}

// yields tells how long the object is left alone that has this status now, and whether that begins now.
func (c *contended[T]) yields(status T, now time.Time) (wait time.Duration, begins bool) {
	switch {
	case now.Before(c.until):
		return c.until.Sub(now), false
	case equality.Semantic.DeepEqual(c.status, status):
		return 0, false
	}
	if now.Sub(c.at) > calmAfter && now.Sub(c.until) > calmAfter {
		c.writes = 0
	}
	c.status, c.at = status, now
	if c.writes++; c.writes <= foreignWrites {
		return 0, false
	}
	wait = yieldFirst
	for range c.writes - foreignWrites - 1 {
		wait = min(yieldFactor*wait, yieldMost)
	}
	c.until = now.Add(wait)
	return wait, true
}

// contendedOf is nil where nothing is known of the object as it is specified now.
func (r *Reconciler[T]) contendedOf(obj T) *contended[T] {
	if c := r.contention.of(obj); c != nil && c.generation == obj.GetGeneration() {
		return c
	}
	return nil
}

// statusOf is an object with the status alone of another one.
func (r *Reconciler[T]) statusOf(obj T) T {
	status := r.Program.New()
	status.CopyStatusFrom(obj)
	return status
}

// leftAlone is how long an object is left to another controller, and says so once. What holds something, or is being
// deleted, never is.
func (r *Reconciler[T]) leftAlone(ctx context.Context, obj T, state *v1alpha1.MachineState) time.Duration {
	if !r.Program.Contended || !obj.GetDeletionTimestamp().IsZero() || state != nil && len(state.Status.Held) > 0 {
		return 0
	}
	c, now := r.contendedOf(obj), r.Clock.Now()
	if c == nil {
		return 0
	}
	wait, begins := c.yields(r.statusOf(obj), now)
	if begins {
		why := fmt.Sprintf("another controller (field manager %s) drives this object as well, and each undoes what the other writes: it is left alone until %s, or until its spec changes; "+
			"scale one of the two controllers to zero", lastStatusWriter(obj), now.Add(wait).UTC().Format(time.RFC3339))
		log.FromContext(ctx).Info("the object is left alone", "why", why)
		tell(r.Recorder, obj, corev1.EventTypeWarning, "AnotherController", "Check", why)
	}
	return wait
}

// leftBehind remembers the status that a pass left behind.
func (r *Reconciler[T]) leftBehind(p *pass[T], err error) {
	if !r.Program.Contended || err != nil || p.run == nil {
		return
	}
	c := r.contendedOf(p.stored)
	if c == nil {
		c = &contended[T]{generation: p.stored.GetGeneration()}
	}
	c.status = r.statusOf(p.stored)
	r.contention.keep(p.stored, c)
}

// lastStatusWriter is the field manager that wrote a status last.
func lastStatusWriter(obj client.Object) string {
	last := metav1.ManagedFieldsEntry{Manager: "unknown"}
	for _, e := range obj.GetManagedFields() {
		if e.Subresource == "status" && e.Time != nil && (last.Time == nil || last.Time.Before(e.Time)) {
			last = e
		}
	}
	return last.Manager
}
