package datastoremigration

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
)

func (s *steps) unlockV3Rights() []rbacv1.PolicyRule {
	return grants(onAPIService("get patch"), s.onV1Lock("get patch"), s.onV3Lock("get patch delete"), removeFenceRights())
}

// unlockV3 opens v3 for business, or takes away what lockV3 did. The fence around v3 hears of it by its
// parameter at once, and goes after that: a policy that is deleted is enforced for another second.
func (s *steps) unlockV3(ctx context.Context, sc *scope) (outputs, error) {
	keep := sc.With.String("created", "delete") == "keep"
	if keep {
		if err := s.noteV3Open(ctx, sc.Object); err != nil {
			return nil, err
		}
	}
	err := s.mustReachV3(ctx, sc, func(version string) error {
		return s.openV3(ctx, sc, s.Registry.Through(version).Lock().V3GVK(), keep)
	})
	if err != nil || !keep {
		return nil, err
	}
	return nil, s.removeNamed(ctx, sc.Object, migrationv1.V3FenceName)
}

// noteV3Open tells the fence around v3 that v3 is open.
func (s *steps) noteV3Open(ctx context.Context, dm *migration) error {
	info, err := s.clusterInformation(ctx, s.Registry.Lock().V1GVK())
	if err != nil && !gone(err) {
		return err
	}
	if info == nil || info.GetAnnotations()[migrationv1.AnnotationV3Open] == string(dm.UID) {
		return nil
	}
	err = patch.MutateAndPatchSpec(ctx, s.client, info, func(info *unstructured.Unstructured) {
		info.SetAnnotations(labels.Merge(info.GetAnnotations(), labels.Set{migrationv1.AnnotationV3Open: string(dm.UID)}))
	})
	if err != nil {
		return fmt.Errorf("note on v1 ClusterInformation %s that v3 is open: %w", clusterInformationName, err)
	}
	return nil
}

func (s *steps) openV3(ctx context.Context, sc *scope, gvk schema.GroupVersionKind, keep bool) error {
	info, err := s.clusterInformation(ctx, gvk)
	if err != nil || info == nil {
		return err
	}
	switch holder := lockedBy(info); decideUnlock(info, sc.Object.UID, keep) {
	case unlockDeletes:
		own := info.GetUID()
		err := s.client.Delete(ctx, info, client.Preconditions{UID: &own})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the v3 ClusterInformation that this migration created: %w", err)
		}
	case unlockOpens:
		return s.setReady(ctx, info, true, "")
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
