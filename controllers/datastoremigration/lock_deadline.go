package datastoremigration

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// deadlineKey is where the state has the deadline of the lock, from right before v1 is closed until it is open again.
const deadlineKey = "lockDeadline"

// recordLock answers since when the status will say that v1 is locked, and until when a lock that is about to be taken may
// last; nil where the machine sets no limit. The end is on record before v1 is closed: after a crash, v1 has been closed
// for longer than the next try knows, and both are those of the first try. A lock that has not come about has no end yet.
func (s *v1Lock) recordLock(ctx context.Context, sc *scope, info *unstructured.Unstructured) (since metav1.Time, deadline *metav1.Time, err error) {
	since = metav1.NewTime(sc.Clock.Now().Truncate(time.Second)) // as the status has it
	limit := sc.With.Duration("deadline", 0)
	if limit <= 0 || sc.Object.Status.Lock != nil {
		return since, nil, nil
	}
	closed := info != nil && !isReady(info) && lockedBy(info) == sc.Object.UID
	if at, err := time.Parse(time.RFC3339, sc.Saved(deadlineKey)); err == nil && closed {
		return metav1.NewTime(at.Add(-limit)), &metav1.Time{Time: at}, nil
	}
	at := metav1.NewTime(since.Add(limit))
	return since, &at, sc.Save(ctx, deadlineKey, at.UTC().Format(time.RFC3339))
}
