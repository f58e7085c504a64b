package resources

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SplitOwners separates references to Calico objects from all others and keeps both in order.
func SplitOwners(refs []metav1.OwnerReference) (calico, foreign []metav1.OwnerReference) {
	for _, ref := range refs {
		if IsCalicoOwner(ref) {
			calico = append(calico, ref)
		} else {
			foreign = append(foreign, ref)
		}
	}
	return calico, foreign
}

// DiffOwners compares two lists of owner references as sets; nothing means equal.
func DiffOwners(want, have []metav1.OwnerReference) []FieldDiff {
	w, h := canonicalOwners(want), canonicalOwners(have)
	if bytes.Equal(encoded(w), encoded(h)) {
		return nil
	}
	return []FieldDiff{{Path: "metadata.ownerReferences", Want: shown(w), Have: shown(h)}}
}
