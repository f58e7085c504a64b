package runner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// contention sees that another controller drives an object, too: it writes the status, which is ours alone. Each of the
// two would undo what the other does, and with Deployments replace all pods each time. So this one leaves the object
// alone, for longer and longer. What it knows is lost with the process. The zero value is ready.
type contention[T Object[T]] struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]*contended[T]
}

type contended[T Object[T]] struct {
	uid        types.UID
	generation int64
	// status is an object with the status alone that the API server had last, as far as we know.
	status T
	// writes of others, the last of them, and until when the object is left alone.
	writes    int
	at, until time.Time
}

// yields tells how long an object is left alone, and whether that begins now. A changed spec ends it.
func (c *contention[T]) yields(obj, status T, now time.Time) (wait time.Duration, begins bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.seen[client.ObjectKeyFromObject(obj)]
	switch {
	case s == nil || s.uid != obj.GetUID() || s.generation != obj.GetGeneration():
		return 0, false
	case now.Before(s.until):
		return s.until.Sub(now), false
	case equality.Semantic.DeepEqual(s.status, status):
		return 0, false
	}
	if now.Sub(s.at) > calmAfter && now.Sub(s.until) > calmAfter {
		s.writes = 0
	}
	s.status, s.at = status, now
	if s.writes++; s.writes <= foreignWrites {
		return 0, false
	}
	wait = yieldFirst
	for range s.writes - foreignWrites - 1 {
		wait = min(yieldFactor*wait, yieldMost)
	}
	s.until = now.Add(wait)
	return wait, true
}

// keep remembers the status that the API server has at the end of a pass.
func (c *contention[T]) keep(obj, status T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := client.ObjectKeyFromObject(obj)
	s := c.seen[key]
	if s == nil || s.uid != obj.GetUID() || s.generation != obj.GetGeneration() {
		s = &contended[T]{uid: obj.GetUID(), generation: obj.GetGeneration()}
	}
	s.status = status
	if c.seen == nil {
		c.seen = map[types.NamespacedName]*contended[T]{}
	}
	c.seen[key] = s
}

func (c *contention[T]) drop(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, key)
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
	now := r.Clock.Now()
	wait, begins := r.contention.yields(obj, r.statusOf(obj), now)
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
	if r.Program.Contended && err == nil && p.run != nil {
		r.contention.keep(p.stored, r.statusOf(p.stored))
	}
}

// lastStatusWriter is the field manager that wrote a status last.
func lastStatusWriter(obj client.Object) string {
	entries := slices.DeleteFunc(slices.Clone(obj.GetManagedFields()), func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource != "status" || e.Time == nil
	})
	if len(entries) == 0 {
		return "unknown"
	}
	return slices.MaxFunc(entries, func(a, b metav1.ManagedFieldsEntry) int { return cmp.Compare(a.Time.UnixNano(), b.Time.UnixNano()) }).Manager
}
