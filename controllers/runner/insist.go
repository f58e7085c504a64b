package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources/apierrors"
)

// statusTries are few: the queue comes again, and nothing of a pass is done in the name of a status that is
// not stored.
var statusTries = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 4}

// insist sends the status until it is known whether it is stored. To leave that to the next pass would do
// the step again, which under a lock is time that the cluster waits. The error of somebody else's write is
// errMoved.
func (p *pass[T]) insist(ctx context.Context) error {
	if p.unanswered { // progress, which this write would meet as somebody else's
		if _, err := p.isStored(ctx); err != nil {
			return err
		}
	}
	var failure error
	err := wait.ExponentialBackoffWithContext(ctx, statusTries, func(ctx context.Context) (bool, error) {
		if failure = p.send(ctx); failure == nil {
			return true, nil
		}
		if !apierrs.IsConflict(failure) && !apierrors.Retryable(apierrors.Classify(failure)) {
			return false, failure
		}
		return p.isStored(ctx)
	})
	if wait.Interrupted(err) && failure != nil {
		return failure
	}
	return err
}

// isStored looks for what became of a status whose answer was lost or a refusal. Where the object is as we
// know it, nothing has become of it.
func (p *pass[T]) isStored(ctx context.Context) (bool, error) {
	live := p.empty()
	if err := p.client.Get(ctx, client.ObjectKeyFromObject(p.stored), live); err != nil {
		if apierrors.Retryable(apierrors.Classify(err)) {
			return false, nil
		}
		return false, err
	}
	if live.GetResourceVersion() == p.stored.GetResourceVersion() {
		return false, nil
	}
	if !p.tookOver(live) {
		return false, errMoved
	}
	return true, nil
}

// tookOver makes stored what the API server has, if that is what we sent last: the answer was lost, and a
// conflict is with our own write. It needs sending.
func (p *pass[T]) tookOver(live T) bool {
	if !p.unanswered {
		return false
	}
	live.GetObjectKind().SetGroupVersionKind(p.sent.GetObjectKind().GroupVersionKind())
	p.sent.SetResourceVersion(live.GetResourceVersion())
	p.sent.SetManagedFields(live.GetManagedFields())
	want, errWant := json.Marshal(p.sent)
	have, errHave := json.Marshal(live)
	if errWant != nil || errHave != nil || !bytes.Equal(want, have) {
		return false
	}
	p.adopt(live)
	return true
}
