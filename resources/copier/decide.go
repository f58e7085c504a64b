package copier

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/resources"
)

// action is what to do about a v3 object that is there already.
type action string

const (
	keep   action = "keep"   // it is what we want
	repair action = "repair" // it is ours and differs
	clash  action = "clash"  // it is somebody else's and differs
)

// decide compares an existing v3 object with the wanted one. Owners in Calico are not compared: some of
// them may not be known yet, and RemapOwners repairs them.
func decide(kind *resources.Kind, schema *resources.Schema, want, live *unstructured.Unstructured, owner types.UID) (action, []resources.FieldDiff) {
	if at := live.GetDeletionTimestamp(); at != nil {
		return clash, []resources.FieldDiff{{Path: "metadata.deletionTimestamp", Want: "(absent)", Have: at.UTC().Format(time.RFC3339)}}
	}
	diffs := resources.Diff(kind, schema, withCalicoOwners(want, nil), withCalicoOwners(live, nil))
	switch {
	case len(diffs) == 0:
		return keep, nil
	case live.GetAnnotations()[resources.MigratedByAnnotation] == string(owner):
		return repair, diffs
	}
	return clash, diffs
}

// desiredOver is the live object with the content that we want. What the server manages, the status, the
// owners in Calico and the finalizers of Calico's own controllers stay as they are.
func desiredOver(kind *resources.Kind, want, live *unstructured.Unstructured) *unstructured.Unstructured {
	out := live.DeepCopy()
	for field := range live.Object {
		if !keptField(kind, field) {
			delete(out.Object, field)
		}
	}
	for field, value := range want.Object {
		if !keptField(kind, field) {
			out.Object[field] = value
		}
	}
	out.SetLabels(want.GetLabels())
	out.SetAnnotations(want.GetAnnotations())
	finalizers := want.GetFinalizers()
	for _, f := range live.GetFinalizers() {
		if kind.ControllerFinalizer(f) && !slices.Contains(finalizers, f) {
			finalizers = append(finalizers, f)
		}
	}
	out.SetFinalizers(finalizers)
	calico, _ := resources.SplitOwners(live.GetOwnerReferences())
	_, foreign := resources.SplitOwners(want.GetOwnerReferences())
	out.SetOwnerReferences(append(foreign, calico...))
	return out
}

func keptField(kind *resources.Kind, field string) bool {
	return field == "apiVersion" || field == "kind" || field == "metadata" || field == "status" && kind.HasStatus()
}

// mark stamps an object that we are about to create. Its metadata is its own: see resources.Convert.
func (c *Copier) mark(obj *unstructured.Unstructured) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resources.MigratedByAnnotation] = string(c.owner.UID)
	obj.SetAnnotations(annotations)
}

// setOwners replaces all owner references of an object whose metadata is its own.
func setOwners(obj *unstructured.Unstructured, refs []metav1.OwnerReference) {
	if len(refs) > 0 {
		obj.SetOwnerReferences(refs)
	}
}
