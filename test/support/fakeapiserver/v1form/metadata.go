// Package v1form writes v3 objects in the form in which Calico keeps them in crd.projectcalico.org/v1,
// the inverse of the conversion in the resources package, and reads them as Calico's API server does.
// The stand-in stores with it, the fixture dresses its objects with it.
//
// It is pure: it knows no API server.
package v1form

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/resources"
)

// HideMetadata moves labels, annotations, finalizers, owner references and managedFields of obj into the metadata
// annotation. What v1 itself must be able to see stays visible: name, namespace, uid, resourceVersion,
// and the labels and annotations with a Calico key.
// The hidden name is kept for tiered policies only. It must not be called twice on one object: the
// second call would hide what the first left visible and nothing else.
func HideMetadata(obj *unstructured.Unstructured, keepName bool) error {
	meta, _, err := unstructured.NestedMap(obj.Object, "metadata")
	if err != nil {
		return fmt.Errorf("metadata of %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	owners, err := ownersToV1(obj.GetOwnerReferences())
	if err != nil {
		return fmt.Errorf("owners of %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	for _, field := range []string{"namespace", "resourceVersion", "uid", "selfLink"} {
		delete(meta, field)
	}
	if !keepName {
		delete(meta, "name")
	}
	if len(owners) > 0 {
		meta["ownerReferences"] = owners
	}
	hidden, err := json.Marshal(meta)
	if err != nil {
		return fmt.Errorf("encode metadata of %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}

	visible := &unstructured.Unstructured{Object: map[string]any{}}
	visible.SetName(obj.GetName())
	visible.SetNamespace(obj.GetNamespace())
	visible.SetUID(obj.GetUID())
	visible.SetResourceVersion(obj.GetResourceVersion())
	visible.SetLabels(calicoKeys(obj.GetLabels()))
	annotations := calicoKeys(obj.GetAnnotations())
	annotations[resources.MetadataAnnotation] = string(hidden)
	visible.SetAnnotations(annotations)
	obj.Object["metadata"] = visible.Object["metadata"]
	return nil
}

// calicoKeys returns the entries that v1 leaves in the object's own metadata.
func calicoKeys(in map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range in {
		if strings.Contains(k, "projectcalico.org/") || strings.Contains(k, "operator.tigera.io/") {
			out[k] = v
		}
	}
	return out
}

// ownersToV1 names Calico owners by the v1 group and their raw v1 uid; others stay as they are.
func ownersToV1(refs []metav1.OwnerReference) ([]metav1.OwnerReference, error) {
	for i, ref := range refs {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil {
			return nil, err
		}
		if gv.Group != resources.V3Group {
			continue
		}
		raw, err := resources.ReverseUID(ref.UID)
		if err != nil {
			return nil, err
		}
		refs[i].APIVersion, refs[i].UID = resources.V1Group+"/"+resources.V1Version, raw
	}
	return refs, nil
}
