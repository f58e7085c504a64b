package builtin

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// LabelOwner is on every object that an action made; its value is the UID of the
// object that the machine drives.
const LabelOwner = "phasegate.dev/owner-uid"

// canOwn tells whether an owner reference from obj is one that the garbage
// collector honors: it deletes what refers to an owner in another namespace.
func (c *call) canOwn(obj *unstructured.Unstructured) bool {
	return c.owner.GetNamespace() == "" || c.owner.GetNamespace() == obj.GetNamespace()
}

// mark writes on an object who made it. The owner is its controller, so that
// `watch: owned` wakes.
func (c *call) mark(obj *unstructured.Unstructured) {
	obj.SetLabels(labels.Merge(obj.GetLabels(), labels.Set{LabelOwner: string(c.owner.GetUID())}))
	if c.canOwn(obj) {
		obj.SetOwnerReferences(append(obj.GetOwnerReferences(), metav1.OwnerReference{
			APIVersion: c.kind.GroupVersion().String(), Kind: c.kind.Kind,
			Name: c.owner.GetName(), UID: c.owner.GetUID(), Controller: new(true),
		}))
	}
}

// made tells whether this object's machine made obj. Labels are copied with a
// manifest, so they count only where there cannot be an owner reference.
func (c *call) made(obj *unstructured.Unstructured) bool {
	if c.canOwn(obj) {
		return slices.ContainsFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == c.owner.GetUID() })
	}
	return obj.GetLabels()[LabelOwner] == string(c.owner.GetUID())
}
