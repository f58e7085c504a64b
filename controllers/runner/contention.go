package runner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// Another controller may drive the same objects: each of the two would undo what the other does, and with Deployments
// replace all pods each time. What shows it is that a view of ours takes fields of the status away from another field
// manager, which has written them since the last time: no write of our own does, whether its answer arrives or not.
// Who may write statuses can do the same, and can call itself as it likes, so this must do no harm: the object is only
// looked at less often. A change of the object by anybody and a deletion are served at once, and what is held is never
// waited with.

const (
	// statusManager is the field manager of all views: that which the API server takes from the manager's user agent.
	statusManager = "phasegate-manager"
	// answers is how many writes of others are written over at once.
	answers = 3
	// pauseFirst is how long the object is not looked at then; the next pause is twice as long, up to pauseMost.
	pauseFirst, pauseMost = time.Minute, 10 * time.Minute
	// calmAfter is how long nobody else must have written for all of it to be forgotten.
	calmAfter = 10 * time.Minute
)

// leftAlone is how long an object is left to another controller.
func (r *Reconciler[T]) leftAlone(obj T, state *v1alpha1.MachineState) time.Duration {
	c, now := r.contention.of(obj), r.Clock.Now()
	switch {
	case c == nil || !obj.GetDeletionTimestamp().IsZero() || state != nil && len(state.Status.Held) > 0:
		return 0
	case matters(c.asked, obj), now.Sub(c.until) > calmAfter:
		r.contention.drop(client.ObjectKeyFromObject(obj))
		return 0
	}
	return max(c.until.Sub(now), 0)
}

// shown learns from a view that was written over another one whether another controller drives the object.
func (r *Reconciler[T]) shown(ctx context.Context, before, after T) {
	if !r.Program.Contended {
		return
	}
	loser, theirs := ofOthers(before), ofOthers(after)
	if loser = slices.DeleteFunc(loser, func(e metav1.ManagedFieldsEntry) bool { return slices.ContainsFunc(theirs, sameAs(e)) }); len(loser) == 0 {
		return
	}
	c, now := r.contention.of(after), r.Clock.Now()
	if c == nil {
		c = &contended{until: now}
	}
	next := &contended{asked: askedOf(after), theirs: theirs, answers: c.answers, until: c.until}
	defer r.contention.keep(after, next)
	if !slices.ContainsFunc(loser, func(e metav1.ManagedFieldsEntry) bool { return !slices.ContainsFunc(c.theirs, sameAs(e)) }) {
		return // they have written nothing since: these fields were left to them the last time
	}
	next.until = now
	if next.answers++; next.answers < answers {
		return
	}
	pause := min(pauseFirst<<min(next.answers-answers, 10), pauseMost)
	next.until = now.Add(pause)
	why := fmt.Sprintf("another controller (field manager %s) drives this object as well, and each undoes what the other writes: it is looked at again in %s, or when it changes; "+
		"scale one of the two controllers to zero", loser[0].Manager, pause)
	log.FromContext(ctx).Info("the object is looked at less often", "why", why)
	tell(r.Recorder, after, corev1.EventTypeWarning, "AnotherController", "Check", why)
}

// ofOthers are the entries of other field managers that own fields of the status.
func ofOthers(obj client.Object) (theirs []metav1.ManagedFieldsEntry) {
	for _, e := range obj.GetManagedFields() {
		if e.Manager != statusManager && e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), `"f:status":`) {
			theirs = append(theirs, e)
		}
	}
	return theirs
}

// sameAs finds the entry of the same field manager with the same fields.
func sameAs(a metav1.ManagedFieldsEntry) func(metav1.ManagedFieldsEntry) bool {
	return func(b metav1.ManagedFieldsEntry) bool {
		return a.Manager == b.Manager && a.Operation == b.Operation && a.APIVersion == b.APIVersion && equality.Semantic.DeepEqual(a.FieldsV1, b.FieldsV1)
	}
}

// askedOf is what matters of an object.
func askedOf(obj client.Object) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		UID: obj.GetUID(), Generation: obj.GetGeneration(), DeletionTimestamp: obj.GetDeletionTimestamp(),
		Annotations: obj.GetAnnotations(), Labels: obj.GetLabels(),
	}}
}
