package runner

import (
	"crypto/sha256"
	"encoding/json"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// What caches keep of each object: there may be a hundred thousand, most of them of no concern here, and annotations
// are the largest part of many.

// digestKey is the annotation in a cache that has the digest of what is only compared; the API server takes none of
// that name.
const digestKey = ""

// strip makes what an informer keeps of an object.
func strip(keep func(from metav1.Object, kept *metav1.PartialObjectMetadata)) cache.TransformFunc {
	return func(obj any) (any, error) {
		from, ok := obj.(metav1.Object)
		if !ok {
			return obj, nil
		}
		if _, done := from.GetAnnotations()[digestKey]; done { // client-go may hand over an object twice
			return obj, nil
		}
		kept := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: from.GetNamespace(), Name: from.GetName(), UID: from.GetUID(), ResourceVersion: from.GetResourceVersion(),
			Generation: from.GetGeneration(), DeletionTimestamp: from.GetDeletionTimestamp(),
		}}
		keep(from, kept)
		return kept, nil
	}
}

// stripOwn is for the objects of the machine, see matters.
var stripOwn = strip(func(from metav1.Object, kept *metav1.PartialObjectMetadata) {
	digest(kept, from.GetAnnotations(), from.GetLabels())
})

// stripOthers is for what is watched: of an owned object, its owner counts, and only if it is of this kind.
func stripOthers(owner schema.GroupKind) cache.TransformFunc {
	return strip(func(from metav1.Object, kept *metav1.PartialObjectMetadata) {
		if ref := metav1.GetControllerOf(from); ref != nil && schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() == owner {
			kept.OwnerReferences = []metav1.OwnerReference{*ref}
		}
	})
}

// stripState is for states.
var stripState = strip(func(from metav1.Object, kept *metav1.PartialObjectMetadata) {
	kept.Finalizers = from.GetFinalizers()
	if about, named := from.GetAnnotations()[v1alpha1.ObjectAnnotation]; named {
		kept.Annotations = map[string]string{v1alpha1.ObjectAnnotation: about}
	}
})

// stripReferred is for what specs name, with what is read of it.
func stripReferred(read func(*unstructured.Unstructured) string) cache.TransformFunc {
	return strip(func(from metav1.Object, kept *metav1.PartialObjectMetadata) {
		if whole, is := from.(*unstructured.Unstructured); is {
			digest(kept, read(whole))
		}
	})
}

func digest(kept *metav1.PartialObjectMetadata, of ...any) {
	text, err := json.Marshal(of)
	if err != nil {
		text = []byte(kept.ResourceVersion) // texts always can be: it only costs a look
	}
	sum := sha256.Sum256(text)
	kept.Annotations = map[string]string{digestKey: string(sum[:16])}
}

// matters is false for a change of the status, which only the runner writes.
func matters(old, now metav1.Object) bool {
	return old.GetUID() != now.GetUID() || old.GetGeneration() != now.GetGeneration() ||
		old.GetDeletionTimestamp().IsZero() != now.GetDeletionTimestamp().IsZero() ||
		!maps.Equal(old.GetAnnotations(), now.GetAnnotations()) || !maps.Equal(old.GetLabels(), now.GetLabels())
}
