package copier

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// owner is the UID of the migration that the copies belong to; "" where there is none yet.
type owner types.UID

// has is false for every object where there is no migration.
func (me owner) has(obj metav1.Object) bool {
	return me != "" && obj.GetAnnotations()[resources.MigratedByAnnotation] == string(me)
}

// mark stamps an object that we are about to write: whose it is, and of what it is a copy. Its metadata
// is its own: see resources.Convert.
func (me owner) mark(obj metav1.Object, conv *resources.Converted) {
	annotate(obj, resources.MigratedByAnnotation, string(me))
	annotate(obj, resources.CopiedVersionAnnotation, conv.V1Content)
}

// deferred ends the CopiedVersionAnnotation of a copy that does not have all its owners yet.
const deferred = " owners withheld"

// markDeferred says of a copy that RemapOwners is to set its owners.
func markDeferred(obj metav1.Object, conv *resources.Converted) {
	annotate(obj, resources.CopiedVersionAnnotation, conv.V1Content+deferred)
}

func annotate(obj metav1.Object, key, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	obj.SetAnnotations(annotations)
}

// unmark removes the annotations of this program.
func unmark(obj *Meta) {
	delete(obj.Annotations, resources.MigratedByAnnotation)
	delete(obj.Annotations, resources.CopiedVersionAnnotation)
	delete(obj.Annotations, migrationv1.AnnotationBarrier)
}
