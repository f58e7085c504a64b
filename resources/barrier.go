package resources

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
)

// BarrierOver is what AnnotationBarrier says on an object that we write as it is now: since which version
// nobody but us has written it, what its generation is, over which version we write, so that no two
// barriers are the same, and a digest of what of it has no generation.
func BarrierOver(obj metav1.Object) string {
	return fmt.Sprintf("%s/%d/%s/%s", ContentVersion(obj), obj.GetGeneration(), obj.GetResourceVersion(), barrierDigest(obj))
}

// ContentVersion is the resourceVersion in which an object got the content that it has, as far as we know: a
// barrier of ours gives it another one, and changes nothing. A note that is about another object, or another
// content, says nothing: it came along with a manifest, or somebody has written the object since.
func ContentVersion(obj metav1.Object) string {
	note := strings.Split(obj.GetAnnotations()[migrationv1.AnnotationBarrier], "/")
	if len(note) == 4 && note[1] == strconv.FormatInt(obj.GetGeneration(), 10) && note[3] == barrierDigest(obj) {
		return note[0]
	}
	return obj.GetResourceVersion()
}

// rulesRevision counts up with each change of what Convert makes of an object. What an earlier release has copied by
// other rules differs from what this one would have written, and nobody has edited it.
const rulesRevision = "/2"

// CopiedVersion is what CopiedVersionAnnotation says of a copy of this v1 object.
func CopiedVersion(v1 metav1.Object) string { return ContentVersion(v1) + rulesRevision }

// barrierDigest is of which object it is, and of all of its metadata that is content: that has no generation. It reads
// the lists as they are stored: their order is a change like any other.
func barrierDigest(obj metav1.Object) string {
	annotations := maps.Clone(obj.GetAnnotations())
	delete(annotations, migrationv1.AnnotationBarrier)
	data, _ := json.Marshal([]any{obj.GetUID(), merged(nil, obj.GetLabels()), merged(nil, annotations), obj.GetFinalizers(), obj.GetOwnerReferences()}) // plain data
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
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
