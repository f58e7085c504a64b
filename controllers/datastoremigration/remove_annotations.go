package datastoremigration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/resources/inflight"
)

// removeMigrationAnnotations takes the notes of this migration, and of one that it has taken over, off
// everything in v3: from here on nothing is anybody's copy. Where admission refuses that, the notes stay, and it is
// told: v1 is gone, so that there is no way but on, and a note means nothing any more. It is not done sooner, because
// Calico's webhooks, which come with v3, let nobody but Calico write ClusterInformation: v1 would stay for good. And
// until v1 is gone the notes say whose the copies are, should the state be lost.
func (s *copying) removeMigrationAnnotations(ctx context.Context, sc *scope) (outputs, error) {
	var kept []resources.Problem
	err := s.withEarlier(ctx, sc.Object, func(ctx context.Context, dm *migration) error {
		more, err := s.forgetCopiesOf(inflight.WithLowPriority(ctx), dm) // a write for each object, and nobody waits for it
		kept = append(kept, more...)
		return err
	})
	if err == nil && len(kept) > 0 {
		var why []string
		for _, p := range kept {
			why = append(why, p.Message)
		}
		slices.Sort(why)
		sc.Warn("NotesKept", "%d v3 objects keep the annotations of this migration, which is harmless: %s: %s", len(kept),
			strings.Join(examples(kept, func(p resources.Problem) string { return p.Kind + " " + p.Object() }), ", "), strings.Join(examples(slices.Compact(why), asIs), "; "))
	}
	return nil, err
}

// forgetCopiesOf takes its notes off the lock last: the lock tells whose they are.
func (s *copying) forgetCopiesOf(ctx context.Context, dm *migration) (kept []resources.Problem, err error) {
	if kept, err = s.copier(dm).RemoveMigrationAnnotations(ctx); err != nil {
		return nil, err
	}
	lock, uid := s.registry.Lock(), dm.UID
	info, err := s.clusterInformation(ctx, lock.V3GVK())
	if err != nil || info == nil || createdBy(info) != uid && lockedBy(info) != uid {
		return kept, err
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
	if apierrors.Refused(err) {
		return append([]resources.Problem{copier.Refusal("patch", lock, client.ObjectKeyFromObject(info), err)}, kept...), nil
	}
	if err != nil {
		return nil, fmt.Errorf("take the notes of this migration off the v3 ClusterInformation: %w", err)
	}
	return kept, nil
}
