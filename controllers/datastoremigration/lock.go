package datastoremigration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
)

// clusterInformationName is the singleton that holds Calico's lock.
const clusterInformationName = "default"

// clusterInformation reads the lock object of one side; nil when there is none.
func (s *steps) clusterInformation(ctx context.Context, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	return readLock(ctx, s.client, gvk)
}

func readLock(ctx context.Context, c client.Client, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	info := &unstructured.Unstructured{}
	info.SetGroupVersionKind(gvk)
	err := c.Get(ctx, types.NamespacedName{Name: clusterInformationName}, info)
	// Behind a side door that is shut the object may be there.
	shut := gvk.Version == migrationv1.SideDoorVersion && apierrs.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	if apierrs.IsNotFound(err) && !shut {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the lock, %s %s: %w", gvk.GroupKind(), clusterInformationName, err)
	}
	return info, nil
}

// isReady is false only where datastoreReady says so: absent means open.
func isReady(info *unstructured.Unstructured) bool {
	ready, found, _ := unstructured.NestedBool(info.Object, "spec", "datastoreReady")
	return ready || !found
}

func lockedBy(info *unstructured.Unstructured) types.UID {
	return types.UID(info.GetAnnotations()[migrationv1.AnnotationLockedBy])
}

func createdBy(info *unstructured.Unstructured) types.UID {
	return types.UID(info.GetAnnotations()[migrationv1.AnnotationMigratedBy])
}

// setReady changes the lock and the note of its owner in one write, so that
// there is never a lock of which nobody knows whose it is.
func (s *steps) setReady(ctx context.Context, info *unstructured.Unstructured, ready bool, owner types.UID) error {
	err := patch.MutateAndPatchSpec(ctx, s.client, info, func(u *unstructured.Unstructured) {
		spec, _, _ := unstructured.NestedMap(u.Object, "spec")
		if spec == nil {
			spec = map[string]any{}
		}
		spec["datastoreReady"] = ready
		u.Object["spec"] = spec
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		if owner == "" {
			delete(annotations, migrationv1.AnnotationLockedBy)
		} else {
			annotations[migrationv1.AnnotationLockedBy] = string(owner)
		}
		u.SetAnnotations(annotations)
	})
	if err != nil {
		return fmt.Errorf("set datastoreReady=%t on %s %s: %w", ready, info.GroupVersionKind().GroupKind(), info.GetName(), err)
	}
	return nil
}

// lock takes an existing lock object for this migration.
func (s *steps) lock(ctx context.Context, info *unstructured.Unstructured, owner types.UID) error {
	switch holder := lockedBy(info); {
	case !isReady(info) && holder == owner:
		return nil
	case !isReady(info):
		return fsm.Terminal("AlreadyLocked",
			"%s %s has datastoreReady=false, locked by %q, not by this migration: find out who locked it, set datastoreReady to true when it is safe, then retry",
			info.GroupVersionKind().GroupKind(), info.GetName(), holder)
	}
	return s.setReady(ctx, info, false, owner)
}

// lockV1 closes v1. With a fence, this one write is both the request that Calico's
// components heed and the parameter by which the API server refuses all others. How
// long v1 may stay closed is counted from the first time, whatever is tried again.
func (s *steps) lockV1(ctx context.Context, sc *scope) (outputs, error) {
	mode, err := s.lockMode(ctx, sc)
	if err != nil {
		return nil, err
	}
	info, err := s.clusterInformation(ctx, s.Registry.Lock().V1GVK())
	if err != nil {
		return nil, err
	}
	if info != nil {
		if err := s.lock(ctx, info, sc.Object.UID); err != nil {
			return nil, err
		}
	}
	sc.Report(func(dm *migration) {
		now := metav1.NewTime(sc.Clock.Now().Truncate(time.Second)) // as the status has it
		if dm.Status.DatastoreLockedAt == nil {
			dm.Status.DatastoreLockedAt = &now
		}
		if dm.Status.StartedAt == nil {
			dm.Status.StartedAt = &now
		}
		if dm.Status.Lock == nil {
			dm.Status.Lock = &migrationv1.Lock{Mode: mode}
			if limit := sc.With.Duration("deadline", 0); limit > 0 {
				dm.Status.Lock.Deadline = &metav1.Time{Time: now.Add(limit)}
			}
		}
	})
	return nil, nil
}

// lockMode says what the lock will rest on. A machine without the fence has none.
func (s *steps) lockMode(ctx context.Context, sc *scope) (migrationv1.LockMode, error) {
	if !sc.Machine.Holds(&sc.Object.Status.Machine, fenceAction) {
		return migrationv1.LockCooperative, nil
	}
	possible, err := s.canFence(ctx)
	if err != nil || !possible {
		return migrationv1.LockCooperative, err
	}
	// Before the lock, so that it costs nothing under it, and an API server that starts meanwhile reads this.
	if err := s.whileUnknown(ctx, sc.Object, admissionregistrationv1.Fail); err != nil {
		return "", err
	}
	return migrationv1.LockEnforced, s.fenceStands(ctx, sc)
}

// lockStands is an error, for good, where v1 is not closed any more as lockV1 has left
// it: what was written since may be missing in v3. Without a lock of this migration it
// asks nothing.
func (s *steps) lockStands(ctx context.Context, sc *scope) error {
	lock := sc.Object.Status.Lock
	if lock == nil {
		return nil
	}
	enforced := lock.Mode == migrationv1.LockEnforced
	var closed, fence error
	var both sync.WaitGroup
	both.Go(func() { closed = s.v1Closed(ctx, sc.Object.UID, enforced) })
	if enforced {
		both.Go(func() { fence = s.fenceStands(ctx, sc) })
	}
	both.Wait()
	return cmp.Or(closed, fence)
}

func (s *steps) v1Closed(ctx context.Context, uid types.UID, enforced bool) error {
	info, err := s.clusterInformation(ctx, s.Registry.Lock().V1GVK())
	if err != nil {
		return err
	}
	// Calico's components may drop the note when they write the object; the fence keeps them from it, and heeds the note.
	ours := info != nil && (lockedBy(info) == uid || lockedBy(info) == "" && !enforced)
	if enforced && info == nil || info != nil && (isReady(info) || !ours) {
		return lockBroken("somebody else has opened v1, " + s.Registry.Lock().V1GVK().GroupKind().String() + " " + clusterInformationName)
	}
	return nil
}

// whileLocked is a context that ends with the lock's deadline, for a step that may take
// long: v1 is not to stay closed because nobody looks in between. It is an error, for
// good, where the lock does not stand, or has lasted long enough; and it waits where v3 is
// not answered by the CRDs any more.
func (s *steps) whileLocked(ctx context.Context, sc *scope) (context.Context, context.CancelFunc, error) {
	if err := s.lockStands(ctx, sc); err != nil {
		return nil, nil, err
	}
	if err := s.staysParked(ctx, sc); err != nil {
		return nil, nil, err
	}
	return untilDeadline(ctx, sc)
}

// untilDeadline is a context that ends with the lock's deadline; an error, for good, where that is over.
func untilDeadline(ctx context.Context, sc *scope) (context.Context, context.CancelFunc, error) {
	lock := sc.Object.Status.Lock
	if lock == nil || lock.Deadline == nil {
		return ctx, func() {}, nil
	}
	over := fsm.Terminal("LockDeadline", "v1 has been locked until its deadline, %s, and everything is given back: see what it waited for (an API server that does not answer, a copy that takes long), or give LockV1 a later deadline",
		lock.Deadline.UTC().Format(time.RFC3339))
	left := lock.Deadline.Sub(sc.Clock.Now())
	if left <= 0 {
		return nil, nil, over
	}
	within, cancel := context.WithTimeoutCause(ctx, left, over)
	return within, cancel, nil
}

func lockBroken(how string) error {
	return fsm.Terminal("LockBroken", "%s while this migration had it locked: what was written since may be missing in v3; stop who did it, then retry", how)
}

// unlockV1 opens v1 if this migration locked it. The note may have been lost
// (Calico's own components rewrite the object); then our record of having
// locked it decides.
func (s *steps) unlockV1(ctx context.Context, sc *scope) (outputs, error) {
	if err := s.letUsPass(ctx, sc); err != nil {
		return nil, err
	}
	info, err := s.clusterInformation(ctx, s.Registry.Lock().V1GVK())
	if err != nil {
		return nil, err
	}
	if info != nil && isOurs(info, sc.Object) {
		if err := s.setReady(ctx, info, true, ""); err != nil {
			return nil, err
		}
	}
	return nil, s.whileUnknown(ctx, sc.Object, admissionregistrationv1.Ignore)
}

// isOurs tells that this migration has locked v1.
func isOurs(info *unstructured.Unstructured, dm *migration) bool {
	holder := lockedBy(info)
	return holder == dm.UID || holder == "" && !isReady(info) && dm.Status.DatastoreLockedAt != nil
}

// lockV3 makes sure that v3 is locked before anything can be read from it. The object is
// created locked, with everything else that v1 says. Where v3 is out of reach before
// v1 is locked, nothing is copied ahead.
func (s *steps) lockV3(ctx context.Context, sc *scope) (outputs, error) {
	blocked, err := s.overV3(ctx, sc, func(version string) error {
		return s.closeV3(ctx, sc, s.Registry.Through(version).Lock().V3GVK())
	})
	if blocked == "" || err != nil {
		return nil, err
	}
	if isLocked(sc.Machine, sc.Object) {
		return nil, fsm.Wait("v3 cannot be locked: %s", blocked)
	}
	refuseAhead(sc, blocked)
	return nil, nil
}

// closeV3 also brings an object that this migration has created, when it copied ahead, to
// what v1 says by now. One that a migration has left that is gone becomes ours: it would
// be in the way of every other, and nobody sees it behind the aggregated API server.
func (s *steps) closeV3(ctx context.Context, sc *scope, gvk schema.GroupVersionKind) error {
	info, err := s.clusterInformation(ctx, gvk)
	if err != nil {
		return err
	}
	uid := sc.Object.UID
	if info != nil && createdBy(info) != uid {
		left, err := s.isLeft(ctx, info)
		if err != nil {
			return err
		}
		if !left {
			return s.lock(ctx, info, uid)
		}
	}
	v1, err := s.clusterInformation(ctx, s.Registry.Lock().V1GVK())
	if err != nil {
		return err
	}
	want := lockedCopy(v1, gvk, uid)
	if info == nil {
		err = s.client.Create(ctx, want)
		if apierrs.IsAlreadyExists(err) {
			return fsm.Wait("the v3 ClusterInformation was created by somebody else just now")
		}
	} else if lockedBy(info) != uid || !equality.Semantic.DeepEqual(info.Object["spec"], want.Object["spec"]) {
		err = patch.MutateAndPatchSpec(ctx, s.client, info, func(u *unstructured.Unstructured) {
			u.Object["spec"] = want.Object["spec"]
			annotations := u.GetAnnotations()
			maps.Copy(annotations, want.GetAnnotations())
			u.SetAnnotations(annotations)
		})
	}
	if err != nil {
		return fmt.Errorf("lock the v3 ClusterInformation: %w", err)
	}
	return nil
}

// isLeft tells whether the lock of v3 is a copy that a migration has made which is gone, and
// which nobody has opened since.
func (s *steps) isLeft(ctx context.Context, info *unstructured.Unstructured) (bool, error) {
	by := createdBy(info)
	if by == "" || lockedBy(info) != by || isReady(info) {
		return false, nil
	}
	all, err := s.migrations(ctx)
	return err == nil && !slices.ContainsFunc(all, func(dm migration) bool { return dm.UID == by }), err
}

// lockedCopy is the v3 ClusterInformation to create; v1 may be nil.
func lockedCopy(v1 *unstructured.Unstructured, gvk schema.GroupVersionKind, owner types.UID) *unstructured.Unstructured {
	spec := map[string]any{}
	if v1 != nil {
		if own, found, _ := unstructured.NestedMap(v1.Object, "spec"); found {
			spec = own
		}
	}
	spec["datastoreReady"] = false
	info := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	info.SetGroupVersionKind(gvk)
	info.SetName(clusterInformationName)
	info.SetAnnotations(map[string]string{
		migrationv1.AnnotationMigratedBy: string(owner),
		migrationv1.AnnotationLockedBy:   string(owner),
	})
	return info
}
