package datastoremigration

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/patch"
)

// forgetCopies takes the notes of this migration, and of one that it has taken over, off
// everything in v3: from here on nothing is anybody's copy.
func (s *steps) forgetCopies(ctx context.Context, sc *scope) (outputs, error) {
	return nil, s.withEarlier(ctx, sc.Object, s.forgetCopiesOf)
}

// forgetCopiesOf takes its notes off the lock last: the lock tells whose they are.
func (s *steps) forgetCopiesOf(ctx context.Context, dm *migration) error {
	if _, err := s.copier(dm).ForgetCopies(ctx); err != nil {
		return err
	}
	info, err := s.clusterInformation(ctx, s.Registry.Lock().V3GVK())
	uid := dm.UID
	if err != nil || info == nil || createdBy(info) != uid && lockedBy(info) != uid {
		return err
	}
	err = patch.MutateAndPatchSpec(ctx, s.client, info, func(u *unstructured.Unstructured) {
		annotations := u.GetAnnotations()
		for _, key := range []string{migrationv1.AnnotationMigratedBy, migrationv1.AnnotationLockedBy} {
			if annotations[key] == string(uid) {
				delete(annotations, key)
			}
		}
		u.SetAnnotations(annotations)
	})
	if err != nil {
		return fmt.Errorf("take the notes of this migration off the v3 ClusterInformation: %w", err)
	}
	return nil
}
