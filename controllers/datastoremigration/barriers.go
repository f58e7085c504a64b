package datastoremigration

import (
	"context"
	"encoding/json"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// Lists take the longer the more objects there are, and under the lock they would be most of
// it. So large kinds are watched from before the lock on. A watch says what has changed, and
// not that there is nothing more to come: that is known when it shows a write of our own, to an
// object of the same kind, which is called a barrier. Which objects these are is on record on the
// migration before the first one is written; the note goes with the fence.

// watchFrom is how many objects of a kind make it worth a watch where the machine does not say: fewer are
// listed within milliseconds.
const watchFrom = 300

// followRights: barriers are written on both sides. Copies may be patched by those who make them.
func (s *steps) followRights() []rbacv1.PolicyRule {
	var kinds []*resources.Kind
	for _, kind := range s.Registry.Kinds() {
		if copier.MayFollow(kind) {
			kinds = append(kinds, kind)
		}
	}
	const verbs = "list watch patch"
	return grants(allOf(verbs, resources.V1Group, kinds, (*resources.Kind).V1Plural), allOf(verbs, resources.V3Group, kinds, (*resources.Kind).V3Plural))
}

// follow watches the large kinds from now on, if they are copied ahead. What cannot be watched is
// listed. Barriers that are on record from an earlier try are used again: they are to be lifted, too.
func (s *steps) follow(ctx context.Context, sc *scope) error {
	barriers, err := barriersOf(sc.Object)
	if err != nil || !isAhead(sc) {
		return err
	}
	c := s.copierOver(sc.Object, migrationv1.SideDoorVersion)
	if len(barriers) == 0 {
		if barriers, err = s.planBarriers(ctx, sc, c); err != nil {
			return err
		}
	}
	if err := c.Follow(ctx, barriers); err != nil && ctx.Err() == nil {
		sc.Warn("NotWatched", "some kinds are listed under the lock, which takes longer: %v", err)
	}
	return ctx.Err()
}

// planBarriers chooses which objects will be written, and puts them on record.
func (s *steps) planBarriers(ctx context.Context, sc *scope, c *copier.Copier) ([]copier.Barrier, error) {
	barriers, err := c.Barriers(ctx, int64(sc.With.Int("watchFrom", watchFrom)))
	if err != nil || len(barriers) == 0 {
		return nil, err
	}
	text, err := json.Marshal(barriers)
	if err != nil {
		return nil, fmt.Errorf("note which v1 objects will be written to know that watches are up to date: %w", err)
	}
	return barriers, sc.PatchMetadata(ctx, func(dm *migration) {
		metav1.SetMetaDataAnnotation(&dm.ObjectMeta, migrationv1.AnnotationBarriers, string(text))
	})
}

// barriersOf reads what planBarriers has noted.
func barriersOf(dm *migration) (barriers []copier.Barrier, err error) {
	text, noted := dm.Annotations[migrationv1.AnnotationBarriers]
	if !noted {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &barriers); err != nil {
		return nil, fmt.Errorf("annotation %s of DatastoreMigration %s cannot be read: repair it, or remove it and annotation %s of v1 objects: %w",
			migrationv1.AnnotationBarriers, dm.Name, migrationv1.AnnotationBarrier, err)
	}
	return barriers, nil
}

// liftBarriers takes our notes off v1; those in v3 go with the copies, or with the other notes on them.
func (s *steps) liftBarriers(ctx context.Context, sc *scope) error {
	barriers, err := barriersOf(sc.Object)
	if err != nil || len(barriers) == 0 {
		return err
	}
	if err := s.copier(sc.Object).LiftBarriers(ctx, barriers); err != nil {
		return err
	}
	return sc.PatchMetadata(ctx, func(dm *migration) { delete(dm.Annotations, migrationv1.AnnotationBarriers) })
}
