package datastoremigration

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/phasegate/phasegate/controllers/datastoremigration/policies"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/copier"
)

// drain proves that v1 is closed, lets what waits in a webhook land, and then proves that nobody has written v1 for `quiet`.
//
// A write passes the fence before it comes to the validating webhooks. They are asked at the same time, and none has
// longer than its timeout, so after the longest one there is none in them that was let in before. A write that is tried
// again, because its object has changed, comes to the fence again. How long a probe takes in them proves nothing about
// another write. They are listed once v1 is closed: one that came since the checks counts.
//
// What is delayed on the way to etcd is not seen: bringLateWrites looks for that, once v3 is open.
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
	if err := s.snapshot(ctx, sc, c, closed); err != nil {
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

// snapshot notes where v1 stands when no write waits in a webhook any more that was let in before v1 was closed. The
// webhooks are listed meanwhile, so that it takes no time where there are none.
func (s *v1Lock) snapshot(ctx context.Context, sc *scope, c *copier.Copier, closed []apiServer) error {
	if len(closed) == 0 {
		return c.Snapshot.Take(ctx, s.registry.All())
	}
	since := s.caches.closed(sc.Object, closed, sc.Clock.Now())
	var slow []slowWebhook
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error { return c.Snapshot.Take(both, s.registry.All()) })
	group.Go(func() (err error) {
		slow, err = s.slowWebhooks(both)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	left := longestDelay(slow) - sc.Clock.Since(since)
	if left <= 0 {
		return nil
	}
	sc.Report(func(dm *migration) {
		dm.Status.Message = fmt.Sprintf("v1 is closed. A write that was let in before may wait for %s in a webhook: %s", left.Round(time.Second), slow[0])
	})
	if err := sleep(ctx, sc.Clock, left); err != nil {
		return err
	}
	return c.Snapshot.Take(ctx, s.registry.All())
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
