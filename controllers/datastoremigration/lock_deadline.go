package datastoremigration

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// deadlineKey is where the state has the deadline of the lock, from right before v1 is closed until it is open again.
const deadlineKey = "lockDeadline"

// recordDeadline answers when a lock that is about to be taken has to end; nil where the machine sets no limit. It is on record
// before v1 is closed: after a crash, v1 has been closed for longer than the next try knows. A lock that has
// not come about has no deadline yet. now is the moment that the status will say v1 is locked since.
func (s *v1Lock) recordDeadline(ctx context.Context, sc *scope, info *unstructured.Unstructured, now time.Time) (*metav1.Time, error) {
	limit := sc.With.Duration("deadline", 0)
	if limit <= 0 || sc.Object.Status.Lock != nil {
		return nil, nil
	}
	closed := info != nil && !isReady(info) && lockedBy(info) == sc.Object.UID
	if at, err := time.Parse(time.RFC3339, sc.Saved(deadlineKey)); err == nil && closed {
		return &metav1.Time{Time: at}, nil
	}
	at := metav1.NewTime(now.Add(limit))
	return &at, sc.Save(ctx, deadlineKey, at.UTC().Format(time.RFC3339))
}
