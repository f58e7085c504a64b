package datastoremigration

import (
	"cmp"
	"context"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/fsm"
)

// v1Lock closes v1 and opens it again. Each write of datastoreReady notes whose lock it is, so that a crash leaves
// either nothing or a lock with its owner. People see it in status.lock, with its deadline.
type v1Lock struct {
	copiers

	fence    *fence
	takeover *apiServiceTakeover
}

// lockV1 closes v1: for Calico's components, which heed datastoreReady, and after `grace` for all others, whom the fence
// refuses. How long v1 may stay closed is counted from the first time, whatever is tried again.
func (s *v1Lock) lockV1(ctx context.Context, sc *scope) (outputs, error) {
	if sc.Object.Status.Lock == nil { // v1 is open
		s.caches.opened(sc.Object)
	}
	mode, err := s.lockMode(ctx, sc)
	if err != nil {
		return nil, err
	}
	info, err := s.v1Info(ctx)
	if err != nil {
		return nil, err
	}
	since, deadline, err := s.recordLock(ctx, sc, info)
	if err != nil {
		return nil, err
	}
	if info != nil {
		if err := s.closeV1(ctx, sc, info, mode); err != nil {
			return nil, err
		}
	}
	sc.Report(func(dm *migration) {
		if dm.Status.DatastoreLockedAt == nil {
			dm.Status.DatastoreLockedAt = &since
		}
		if dm.Status.StartedAt == nil {
			dm.Status.StartedAt = &since
		}
		if dm.Status.Lock == nil {
			dm.Status.Lock = &migrationv1.Lock{Mode: mode, Deadline: deadline}
		}
	})
	return nil, nil
}

// closeV1 gives Calico's components `grace` to end what they have begun before the fence refuses it. A CNI plugin that has
// found the datastore ready tries each write 100 times (libcalico-go/lib/ipam), and gives up after 90 s; it holds the lock of
// its node meanwhile, so that all new pods of the node wait for it, also after v3 is open.
func (s *v1Lock) closeV1(ctx context.Context, sc *scope, info *unstructured.Unstructured, mode migrationv1.LockMode) error {
	grace := sc.With.Duration("grace", 0)
	if grace > 0 && mode == migrationv1.LockEnforced && (isReady(info) || isClosing(info)) {
		if err := s.lock(ctx, info, sc.Object.UID+closing); err != nil {
			return err
		}
		if err := sleep(ctx, sc.Clock, grace); err != nil {
			return err
		}
	}
	return s.lock(ctx, info, sc.Object.UID)
}

// lockMode says what the lock will rest on. A machine without the fence has none.
func (s *v1Lock) lockMode(ctx context.Context, sc *scope) (migrationv1.LockMode, error) {
	if !sc.Machine.Holds(&sc.Object.Status.Machine, fenceAction) {
		return migrationv1.LockCooperative, nil
	}
	possible, err := s.fence.canFence(ctx)
	if err != nil || !possible {
		return migrationv1.LockCooperative, err
	}
	// Before the lock, so that it costs nothing under it, and an API server that starts meanwhile reads this.
	if err := s.fence.whileUnknown(ctx, sc.Object, admissionregistrationv1.Fail); err != nil {
		return "", err
	}
	return migrationv1.LockEnforced, s.fence.fenceStands(ctx, sc)
}

// lockStands is an error, for good, where v1 is not closed any more as lockV1 has left
// it: what was written since may be missing in v3. Without a lock of this migration it
// asks nothing.
func (s *v1Lock) lockStands(ctx context.Context, sc *scope) error {
	lock := sc.Object.Status.Lock
	if lock == nil {
		return nil
	}
	enforced := lock.Mode == migrationv1.LockEnforced
	var closed, fence error
	var both sync.WaitGroup
	both.Go(func() { closed = s.v1Closed(ctx, sc.Object.UID, enforced) })
	if enforced {
		both.Go(func() { fence = s.fence.fenceStands(ctx, sc) })
	}
	both.Wait()
	return cmp.Or(closed, fence)
}

func (s *v1Lock) v1Closed(ctx context.Context, uid types.UID, enforced bool) error {
	info, err := s.v1Info(ctx)
	if err != nil {
		return err
	}
	// Calico's components may drop the note when they write the object; the fence keeps them from it, and heeds the note.
	ours := info != nil && (noteOf(info) == uid || lockedBy(info) == "" && !enforced)
	if enforced && info == nil || info != nil && (isReady(info) || !ours) {
		return lockBroken("another client has opened v1, " + s.registry.Lock().V1GVK().GroupKind().String() + " " + clusterInformationName)
	}
	return nil
}

// step is the work of an action.
type step func(context.Context, *scope) (outputs, error)

// whileLocked is a step that may take long under the lock. It fails, for good, where the lock does not stand, and waits
// where v3 is not answered by the CRDs any more.
func (s *v1Lock) whileLocked(do step) step {
	return func(ctx context.Context, sc *scope) (outputs, error) {
		if err := s.lockStands(ctx, sc); err != nil {
			return nil, err
		}
		if err := s.takeover.staysDisabled(ctx, sc); err != nil {
			return nil, err
		}
		return untilDeadline(do)(ctx, sc)
	}
}

// untilDeadline is a step whose context ends with the lock's deadline: v1 is not to stay closed because nobody looks in
// between. It fails, for good, where that is over.
func untilDeadline(do step) step {
	return func(ctx context.Context, sc *scope) (outputs, error) {
		if now := sc.Clock.Now(); believeLock(sc.Object, now) {
			sc.Report(func(dm *migration) { believeLock(dm, now) })
		}
		lock := sc.Object.Status.Lock
		if lock == nil || lock.Deadline == nil {
			return do(ctx, sc)
		}
		over := fsm.Terminal("LockDeadline", "v1 has been locked until its deadline, %s, and everything is released: see what it waited for (an API server that does not answer, a copy that takes long), or give LockV1 a later deadline",
			lock.Deadline.UTC().Format(time.RFC3339))
		left := lock.Deadline.Sub(sc.Clock.Now())
		if left <= 0 {
			return nil, over
		}
		ctx, cancel := context.WithTimeoutCause(ctx, left, over)
		defer cancel()
		return do(ctx, sc)
	}
}

// believeLock brings a lock of which the clock of another manager says that it was set later than now to now: v1 stays
// closed for no longer than the file says. It tells whether it has changed anything. fsm/time.go has the same for the
// machine's own times.
func believeLock(dm *migration, now time.Time) bool {
	at, lock := dm.Status.DatastoreLockedAt, dm.Status.Lock
	if at == nil || !at.After(now) {
		return false
	}
	ahead := at.Sub(now.Truncate(time.Second)) // as the status has it
	dm.Status.DatastoreLockedAt = new(metav1.NewTime(at.Add(-ahead)))
	if lock != nil && lock.Deadline != nil {
		dm.Status.Lock = &migrationv1.Lock{Mode: lock.Mode, Deadline: new(metav1.NewTime(lock.Deadline.Add(-ahead)))}
	}
	return true
}

func lockBroken(how string) error {
	return fsm.Terminal("LockBroken", "%s while this migration had it locked: what was written since may be missing in v3; stop who did it, then retry", how)
}

// unlockV1 opens v1 if this migration locked it. The note may have been lost
// (Calico's own components rewrite the object); then our record of having
// locked it decides.
func (s *v1Lock) unlockV1(ctx context.Context, sc *scope) (outputs, error) {
	if err := s.fence.letUsPass(ctx, sc); err != nil {
		return nil, err
	}
	info, err := s.v1Info(ctx)
	if err != nil {
		return nil, err
	}
	if info != nil && isOurs(info, sc.Object) {
		if err := s.setReady(ctx, info, true, ""); err != nil {
			return nil, err
		}
	}
	if err := s.fence.whileUnknown(ctx, sc.Object, admissionregistrationv1.Ignore); err != nil {
		return nil, err
	}
	return nil, sc.Save(ctx, deadlineKey, "")
}

// isOurs tells that this migration has locked v1.
func isOurs(info *unstructured.Unstructured, dm *migration) bool {
	holder := lockedBy(info)
	return holder == dm.UID || holder == "" && !isReady(info) && dm.Status.DatastoreLockedAt != nil
}
