package copier

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// amend changes the metadata of one copy of ours. seen is read if it is nil, and read again if it has
// changed since. false says that there is no such copy of ours any more: it vanished, or lost our mark.
func (c *Copier) amend(ctx context.Context, kind *resources.Kind, key client.ObjectKey, seen *metav1.PartialObjectMetadata, change func(*metav1.PartialObjectMetadata)) (bool, error) {
	for range maxRaces {
		var err error
		if seen == nil {
			seen, err = c.getMetadata(ctx, kind, key)
		}
		if err == nil && !c.isOurs(seen) {
			return false, nil
		}
		if err == nil {
			err = c.patchMetadata(ctx, seen, func() { change(seen) })
		}
		switch apierrors.Classify(err) {
		case apierrors.None:
			return true, nil
		case apierrors.NotFound:
			return false, nil
		case apierrors.Conflict: // look again
			seen = nil
		default:
			return false, err
		}
	}
	return false, fmt.Errorf("changed %d times meanwhile", maxRaces)
}

// forget takes our notes off an object.
func forget(obj *metav1.PartialObjectMetadata) {
	delete(obj.Annotations, resources.MigratedByAnnotation)
	delete(obj.Annotations, resources.CopiedVersionAnnotation)
	delete(obj.Annotations, migrationv1.AnnotationBarrier)
}
