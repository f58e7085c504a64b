package datastoremigration

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
)

// v3Lock closes v3 before anything is copied to it, and opens it for good, or takes it away: it is created locked, with
// the UID of the migration in two annotations. People see no v3 that is open and not complete.
type v3Lock struct {
	cluster

	door  *door
	fence *fence
}

// lockV3 makes sure that v3 is locked before anything can be read from it. The object is
// created locked, with everything else that v1 says. Where v3 is out of reach before
// v1 is locked, nothing is copied ahead.
func (l *v3Lock) lockV3(ctx context.Context, sc *scope) (outputs, error) {
	blocked, err := l.door.overV3(ctx, sc, func(version string) error {
		return l.closeV3(ctx, sc, l.registry.Through(version).Lock().V3GVK())
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
func (l *v3Lock) closeV3(ctx context.Context, sc *scope, gvk schema.GroupVersionKind) error {
	info, err := l.clusterInformation(ctx, gvk)
	if err != nil {
		return err
	}
	uid := sc.Object.UID
	if info != nil && createdBy(info) != uid {
		left, err := l.isLeft(ctx, info)
		if err != nil {
			return err
		}
		if !left {
			return l.lock(ctx, info, uid)
		}
	}
	v1, err := l.v1Info(ctx)
	if err != nil {
		return err
	}
	want := lockedCopy(v1, gvk, uid)
	if info == nil {
		err = l.client.Create(ctx, want)
		if apierrs.IsAlreadyExists(err) {
			return fsm.Wait("another client has just created the v3 ClusterInformation")
		}
	} else if lockedBy(info) != uid || !equality.Semantic.DeepEqual(info.Object["spec"], want.Object["spec"]) {
		err = patch.MutateAndPatchSpec(ctx, l.client, info, func(u *unstructured.Unstructured) {
			u.Object["spec"] = want.Object["spec"]
			u.SetAnnotations(labels.Merge(u.GetAnnotations(), want.GetAnnotations()))
		})
	}
	if err != nil {
		return fmt.Errorf("lock the v3 ClusterInformation: %w", err)
	}
	return nil
}

// isLeft tells whether the lock of v3 is a copy that a migration has made which is gone, and
// which nobody has opened since.
func (l *v3Lock) isLeft(ctx context.Context, info *unstructured.Unstructured) (bool, error) {
	by := createdBy(info)
	if by == "" || lockedBy(info) != by || isReady(info) {
		return false, nil
	}
	all, err := l.migrations(ctx)
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

// unlockV3 opens v3 for business, or takes away what lockV3 did. The fence around v3 hears of it by its
// parameter at once, and goes after that: a policy that is deleted is enforced for another second.
func (l *v3Lock) unlockV3(ctx context.Context, sc *scope) (outputs, error) {
	keep := sc.With.String("created", "delete") == "keep"
	if keep {
		if err := l.noteV3Open(ctx, sc.Object); err != nil {
			return nil, err
		}
	}
	err := l.door.mustReachV3(ctx, sc, func(version string) error {
		return l.openV3(ctx, sc, l.registry.Through(version).Lock().V3GVK(), keep)
	})
	if err != nil || !keep {
		return nil, err
	}
	return nil, l.fence.removeNamed(ctx, sc.Object, migrationv1.V3FenceName)
}

// noteV3Open tells the fence around v3 that v3 is open.
func (l *v3Lock) noteV3Open(ctx context.Context, dm *migration) error {
	info, err := l.v1Info(ctx)
	if err != nil {
		return err
	}
	if info == nil || info.GetAnnotations()[migrationv1.AnnotationV3Open] == string(dm.UID) {
		return nil
	}
	err = patch.MutateAndPatchSpec(ctx, l.client, info, func(info *unstructured.Unstructured) {
		info.SetAnnotations(labels.Merge(info.GetAnnotations(), labels.Set{migrationv1.AnnotationV3Open: string(dm.UID)}))
	})
	if err != nil {
		return fmt.Errorf("note on v1 ClusterInformation %s that v3 is open: %w", clusterInformationName, err)
	}
	return nil
}

func (l *v3Lock) openV3(ctx context.Context, sc *scope, gvk schema.GroupVersionKind, keep bool) error {
	info, err := l.clusterInformation(ctx, gvk)
	if err != nil || info == nil {
		return err
	}
	switch holder := lockedBy(info); decideUnlock(info, sc.Object.UID, keep) {
	case unlockDeletes:
		return remove(ctx, l.client, info, "the v3 ClusterInformation that this migration created")
	case unlockOpens:
		return l.setReady(ctx, info, true, "")
	case unlockWaits:
		return fsm.Wait("%s %s has datastoreReady=false, set by %q and not by this migration, which has to open v3: find out who did it, and set datastoreReady to true when it is safe",
			gvk.GroupKind(), clusterInformationName, holder)
	case unlockLeavesClosed:
		sc.Warn("V3StaysLocked", "%s %s has datastoreReady=false, set by %q and not by this migration, which leaves it so", gvk.GroupKind(), clusterInformationName, holder)
	}
	return nil
}

// unlockDecision says what becomes of the lock of v3.
type unlockDecision string

const (
	unlockDeletes      unlockDecision = "delete"
	unlockOpens        unlockDecision = "open"
	unlockHasNothing   unlockDecision = "nothing to do"
	unlockWaits        unlockDecision = "wait"
	unlockLeavesClosed unlockDecision = "leave closed"
)

// decideUnlock says it of a lock that this migration holds. keep: v3 has to be open afterwards.
func decideUnlock(info *unstructured.Unstructured, uid types.UID, keep bool) unlockDecision {
	holder := lockedBy(info)
	switch {
	case createdBy(info) == uid && !keep:
		return unlockDeletes
	case holder == uid:
		return unlockOpens
	case isReady(info):
		return unlockHasNothing
	case keep && holder == "": // it was closed by lockV3, which refuses the lock of another; Calico's components may drop the note
		return unlockOpens
	case keep:
		return unlockWaits
	}
	return unlockLeavesClosed
}
