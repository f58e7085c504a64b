package resources

import (
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
)

// MetadataAnnotation is where a v1 object hides the metadata that its v3 view has.
const MetadataAnnotation = "projectcalico.org/metadata"

// hiddenMetadata is the part of the annotation that counts. What else old writers left in it (uid,
// managedFields, ...) describes the v1 object or nothing, and is not read.
type hiddenMetadata struct {
	Name              string                  `json:"name"`
	CreationTimestamp metav1.Time             `json:"creationTimestamp"`
	Labels            map[string]string       `json:"labels"`
	Annotations       map[string]string       `json:"annotations"`
	Finalizers        []string                `json:"finalizers"`
	OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
	DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
}

// readHidden returns nil without error when the object carries no annotation.
func readHidden(v1 metav1.Object) (*hiddenMetadata, error) {
	return readAnnotation[hiddenMetadata](v1, MetadataAnnotation)
}

// readAnnotation decodes JSON; it is nil without error when the object does not have the annotation.
func readAnnotation[T any](obj metav1.Object, name string) (*T, error) {
	text, ok := obj.GetAnnotations()[name]
	if !ok {
		return nil, nil
	}
	value := new(T)
	if err := json.Unmarshal([]byte(text), value); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", name, err)
	}
	return value, nil
}

// Created is when a v1 object was created, as its v3 view shows it.
func Created(v1 *unstructured.Unstructured) metav1.Time {
	hidden, err := readHidden(v1)
	if err != nil || hidden == nil || hidden.CreationTimestamp.IsZero() {
		return v1.GetCreationTimestamp()
	}
	return hidden.CreationTimestamp
}

// readStringMaps refuses labels and annotations that the accessors of unstructured would silently
// take for absent.
func readStringMaps(v1 *unstructured.Unstructured) error {
	for _, field := range []string{"labels", "annotations"} {
		value, _, _ := unstructured.NestedFieldNoCopy(v1.Object, "metadata", field)
		if value == nil {
			continue
		}
		if _, _, err := unstructured.NestedStringMap(v1.Object, "metadata", field); err != nil {
			return fmt.Errorf("metadata.%s: %w", field, err)
		}
	}
	return nil
}

// reattached is the object with the owners that a migration has taken off: what belongs to an object does
// not depend on when it is looked at. It returns v1 itself if there are none.
func reattached(v1 *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if _, noted := v1.GetAnnotations()[migrationv1.AnnotationDetachedOwners]; !noted {
		return v1, nil
	}
	whole := &unstructured.Unstructured{Object: maps.Clone(v1.Object)}
	if meta, ok := v1.Object["metadata"].(map[string]any); ok {
		whole.Object["metadata"] = maps.Clone(meta)
	}
	return whole, AttachOwners(whole, nil)
}

// v3Metadata is what the v3 object starts with: the v1 metadata as Calico's aggregated API would show
// it, without what the server assigns and without owner references.
func v3Metadata(v1 *unstructured.Unstructured, hidden *hiddenMetadata) map[string]any {
	meta := map[string]any{"name": v1.GetName()}
	if ns := v1.GetNamespace(); ns != "" {
		meta["namespace"] = ns
	}
	labels, annotations, finalizers := v1.GetLabels(), v1.GetAnnotations(), v1.GetFinalizers()
	delete(annotations, MetadataAnnotation)
	delete(annotations, migrationv1.AnnotationBarrier)
	if hidden != nil {
		labels = merged(labels, hidden.Labels)
		annotations = merged(annotations, hidden.Annotations)
		// An old writer may have nested the annotation in itself; it must not come back.
		delete(annotations, MetadataAnnotation)
		delete(annotations, migrationv1.AnnotationDetachedOwners)
		delete(annotations, migrationv1.AnnotationBarrier)
		finalizers = hidden.Finalizers
	}
	setIfAny(meta, "labels", labels)
	setIfAny(meta, "annotations", annotations)
	if len(finalizers) > 0 {
		meta["finalizers"] = toAny(finalizers)
	}
	return meta
}

// ownerReferences are the hidden ones if there is hidden metadata, and the real ones only else.
func ownerReferences(v1 metav1.Object, hidden *hiddenMetadata) []metav1.OwnerReference {
	if hidden != nil {
		return hidden.OwnerReferences
	}
	return v1.GetOwnerReferences()
}

// CalicoOwners are the references of a v1 object to Calico objects, those that a migration has taken off
// included: what Convert finds as Converted.Owners, from the metadata alone. The error names what cannot be
// read.
func CalicoOwners(v1 *metav1.PartialObjectMetadata) ([]metav1.OwnerReference, error) {
	if _, noted := v1.Annotations[migrationv1.AnnotationDetachedOwners]; noted {
		v1 = v1.DeepCopy()
		if err := AttachOwners(v1, nil); err != nil {
			return nil, err
		}
	}
	hidden, err := readHidden(v1)
	if err != nil {
		return nil, err
	}
	calico, _ := SplitOwners(ownerReferences(v1, hidden))
	return calico, nil
}

// IsCalicoOwner tells whether a reference points to an object of either Calico group.
func IsCalicoOwner(ref metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && (gv.Group == V1Group || gv.Group == V3Group)
}

// merged lets over win. The result is always a new map.
func merged(under, over map[string]string) map[string]string {
	out := make(map[string]string, len(under)+len(over))
	maps.Copy(out, under)
	maps.Copy(out, over)
	return out
}

func setIfAny(meta map[string]any, field string, values map[string]string) {
	if len(values) > 0 {
		meta[field] = toAnyMap(values)
	}
}

func toAnyMap(values map[string]string) map[string]any {
	out := make(map[string]any, len(values))
	for k, v := range values {
		out[k] = v
	}
	return out
}
