package resources

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
)

// BarrierOver is what AnnotationBarrier says on an object that we write as it is now: since which version
// nobody but us has written it, what its generation is, and over which version we write, so that no two
// barriers are the same.
func BarrierOver(obj metav1.Object) string {
	return fmt.Sprintf("%s/%d/%s", ContentVersion(obj), obj.GetGeneration(), obj.GetResourceVersion())
}

// ContentVersion is the resourceVersion in which an object got the content that it has, as far as we know: a
// barrier of ours gives it another one, and changes nothing. Whether somebody has changed no more than its
// labels or annotations since a barrier cannot be told from the object; then it is the version before.
func ContentVersion(obj metav1.Object) string {
	content, rest, written := strings.Cut(obj.GetAnnotations()[migrationv1.AnnotationBarrier], "/")
	generation, _, _ := strings.Cut(rest, "/")
	if written && generation == strconv.FormatInt(obj.GetGeneration(), 10) {
		return content
	}
	return obj.GetResourceVersion()
}

// HasBarrier tells whether an object bears AnnotationBarrier, in plain sight or in hidden metadata: what was
// written through the aggregated API has it there.
func HasBarrier(obj metav1.Object) bool {
	fields, _ := readOwners(obj.GetAnnotations()[MetadataAnnotation])
	_, plain := obj.GetAnnotations()[migrationv1.AnnotationBarrier]
	return plain || dropHidden(fields, migrationv1.AnnotationBarrier)
}

// DropBarrier takes off an object what HasBarrier finds. All else stays as it is.
func DropBarrier(obj metav1.Object) {
	annotations := obj.GetAnnotations()
	delete(annotations, migrationv1.AnnotationBarrier)
	fields, _ := readOwners(annotations[MetadataAnnotation])
	if dropHidden(fields, migrationv1.AnnotationBarrier) {
		annotations[MetadataAnnotation] = string(encoded(fields))
	}
	obj.SetAnnotations(annotations)
}
