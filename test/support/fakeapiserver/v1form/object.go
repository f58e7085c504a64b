package v1form

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/resources"
)

// tiered are the kinds with a name of their own in the metadata annotation.
var tiered = map[string]bool{
	"GlobalNetworkPolicy": true, "NetworkPolicy": true, "StagedGlobalNetworkPolicy": true, "StagedNetworkPolicy": true,
}

// Names returns the v1 names under which an object with the v3 name may be stored, the likeliest
// first. Whether it is the object must be checked on its v3 view.
func Names(kind *resources.Kind, v3Name string) []string {
	if tiered[kind.Name()] {
		return []string{v3Name, "default." + v3Name}
	}
	return []string{v3Name}
}

// FromV3 returns the v1 object that stores v3 under the given v1 name. The input is left alone. Errors
// name what cannot be stored: an owner or own uid that is no UUID, a BlockAffinity whose deleted is not
// a boolean.
func FromV3(kind *resources.Kind, v3 *unstructured.Unstructured, v1Name string) (*unstructured.Unstructured, error) {
	obj := v3.DeepCopy()
	obj.SetGroupVersionKind(kind.V1GVK())
	if uid := obj.GetUID(); uid != "" {
		raw, err := resources.ReverseUID(uid)
		if err != nil {
			return nil, fmt.Errorf("uid of %s %s: %w", kind.Name(), v3.GetName(), err)
		}
		obj.SetUID(raw)
	}
	if err := HideMetadata(obj, tiered[kind.Name()]); err != nil {
		return nil, err
	}
	obj.SetName(v1Name)
	if kind.Name() == "BlockAffinity" {
		if err := deletedToString(obj); err != nil {
			return nil, err
		}
	}
	return obj, nil
}

// deletedToString undoes the one field of the one kind whose type differs between the groups.
func deletedToString(obj *unstructured.Unstructured) error {
	deleted, _, err := unstructured.NestedBool(obj.Object, "spec", "deleted")
	if err != nil {
		return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	if err := unstructured.SetNestedField(obj.Object, strconv.FormatBool(deleted), "spec", "deleted"); err != nil {
		return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return nil
}

// ToV3 shows a v1 object as Calico's API server does: the migration's conversion, and on top of it what
// a copy must leave behind, such as uid, resourceVersion, status and references to Calico owners.
// The result shares sub-objects with v1.
func ToV3(kind *resources.Kind, v1 *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	converted, err := resources.Convert(kind, v1, nil)
	if err != nil {
		return nil, err
	}
	view := converted.Object
	uid, err := resources.ReverseUID(v1.GetUID())
	if err != nil {
		return nil, fmt.Errorf("uid of %s %s: %w", kind.Name(), v1.GetName(), err)
	}
	view.SetUID(uid)
	view.SetResourceVersion(v1.GetResourceVersion())
	if status, found := v1.Object["status"]; found {
		view.Object["status"] = status
	}

	hidden, found := v1.GetAnnotations()[resources.MetadataAnnotation]
	if !found {
		setServerFields(view, v1)
		view.SetOwnerReferences(v1.GetOwnerReferences())
		return view, nil
	}
	meta := &metav1.ObjectMeta{}
	if err := json.Unmarshal([]byte(hidden), meta); err != nil {
		return nil, fmt.Errorf("hidden metadata of %s %s: %w", kind.Name(), v1.GetName(), err)
	}
	setServerFields(view, meta)
	if meta.CreationTimestamp.IsZero() {
		view.SetCreationTimestamp(v1.GetCreationTimestamp())
	}
	owners, err := ownersToV3(meta.OwnerReferences)
	if err != nil {
		return nil, fmt.Errorf("owners of %s %s: %w", kind.Name(), v1.GetName(), err)
	}
	view.SetOwnerReferences(owners)
	return view, nil
}

func setServerFields(view *unstructured.Unstructured, from metav1.Object) {
	view.SetCreationTimestamp(from.GetCreationTimestamp())
	view.SetGeneration(from.GetGeneration())
	view.SetDeletionTimestamp(from.GetDeletionTimestamp())
	view.SetManagedFields(from.GetManagedFields()) // of a hidden object: those of the API server's clients, never v1's own
}

// ownersToV3 shows references to Calico owners under the v3 group and the uid of the owner's v3 view.
// Before uids differed, Calico stored them under the v3 group already, but with the raw uid.
func ownersToV3(refs []metav1.OwnerReference) ([]metav1.OwnerReference, error) {
	for i, ref := range refs {
		if !resources.IsCalicoOwner(ref) {
			continue
		}
		shown, err := resources.ReverseUID(ref.UID)
		if err != nil {
			return nil, err
		}
		refs[i].APIVersion, refs[i].UID = resources.V3Group+"/"+resources.V3Version, shown
	}
	return refs, nil
}
