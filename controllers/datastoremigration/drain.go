package datastoremigration

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/phasegate/phasegate/controllers/datastoremigration/policies"
	"github.com/phasegate/phasegate/fsm"
)

// drain proves that v1 is closed, and then that nobody has written it for `quiet`: what
// was let in before has landed.
//
// The proof is as good as two equal lists of v1, `quiet` apart. Instead of the first it
// asks, once v1 is closed, for the revision of the storage and for the number of objects
// of each kind. A write gives its object a version newer than that revision, and a
// creation or deletion alone changes the number: where the list has neither, it is the
// one that would have been seen then. The copy goes on with that list.
//
// An API server may have been stopped with a write in it that it had let in. So each
// is asked once more before the list: it has worked for `quiet` since it was closed. Which
// ones there are may be read from a cache at first, since it is read anew then.
//
// Where the lock is only a request, nothing can be proved, and after `atMost` the
// migration goes on: objects whose status changes for ever must not hold it up, and
// Verify compares everything again before anything is opened.
func (s *v1Lock) drain(ctx context.Context, sc *scope) (outputs, error) {
	enforced := isEnforced(sc.Object)
	var closed []apiServer
	var err error
	if enforced {
		if closed, err = s.fence.proveFence(ctx, sc, cached, "the lock", policies.LockMessage(sc.Object), proofs); err != nil {
			return nil, err
		}
	}
	quiet, atMost := sc.With.Duration("quiet", time.Second), sc.With.Duration("atMost", 10*time.Second)
	end := sc.Clock.Now().Add(atMost)
	c, moving := s.copier(sc.Object), s.registry.All() // the lock is v1's too
	if err := c.Snapshot.Take(ctx, moving); err != nil {
		return nil, err
	}
	for {
		if err := sleep(ctx, sc.Clock, quiet); err != nil {
			return nil, err
		}
		if err := s.stillClosed(ctx, sc, closed, quiet); err != nil {
			return nil, err
		}
		moving, err = c.ChangedSince(ctx, moving)
		switch {
		case err != nil:
			return nil, err
		case len(moving) == 0:
			return outputs{"quiet": true}, nil
		case enforced:
			return nil, &fsm.WaitError{After: quiet, Message: "v1 is closed, and objects of it still change: waiting for writes that were let in before, and for Kubernetes to delete what belongs to deleted namespaces and owners"}
		case !sc.Clock.Now().Before(end):
			sc.Warn("StillWritten", "v1 objects are still being written %s after the lock: stop tools that write crd.projectcalico.org; both sides are compared before v3 is opened", atMost)
			return outputs{"quiet": false}, nil
		}
	}
}

// stillClosed is an error where it is not known for how long an API server has worked since it was closed: it did not
// answer at once, or is not among those that were. Where none was closed there is nothing to ask.
func (s *v1Lock) stillClosed(ctx context.Context, sc *scope, closed []apiServer, quiet time.Duration) error {
	if len(closed) == 0 {
		return nil
	}
	asked := sc.Clock.Now()
	now, err := s.fence.proveFence(ctx, sc, newest, "the lock", policies.LockMessage(sc.Object), 1)
	if err != nil {
		return err
	}
	if !sameServers(closed, now) {
		return &fsm.WaitError{After: quiet, Message: "API servers have come or gone since v1 was closed: what one had let in before may still be on its way"}
	}
	if took := sc.Clock.Since(asked); took > max(quiet, probePromptly) {
		return &fsm.WaitError{After: quiet, Message: fmt.Sprintf("an API server took %s to refuse a write: what it had let in before may still be on its way", took.Round(time.Millisecond))}
	}
	return nil
}

func sleep(ctx context.Context, c clock.Clock, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.After(d):
		return nil
	}
}
