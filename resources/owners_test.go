package resources_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

const (
	migrationUID = types.UID("11111111-0000-4000-8000-000000000000")
	tierRef      = `{"apiVersion":"crd.projectcalico.org/v1","kind":"Tier","name":"platform","uid":"0e5e3214-5bda-429e-8d53-2f1b77363286"}`
	podRef       = `{"apiVersion":"v1","kind":"Pod","name":"p","uid":"a1b2c3d4-e5f6-4a7b-8c9d-0123456789ab"}`
)

var (
	tierOwner = metav1.OwnerReference{APIVersion: "projectcalico.org/v3", Kind: "Tier", Name: "platform", UID: "0e5e3214-5bda-429e-8d53-2f1b77363286"}
	podOwner  = metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "a1b2c3d4-e5f6-4a7b-8c9d-0123456789ab"}
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// owned is an object with hidden metadata, if any, and real owners.
func owned(hidden string, visible ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "o", OwnerReferences: visible}}
	if hidden != "" {
		obj.Annotations = map[string]string{resources.MetadataAnnotation: hidden}
	}
	return obj
}

func TestDetachAndAttachOwners(t *testing.T) {
	cases := map[string]struct {
		why      string
		before   *metav1.PartialObjectMetadata
		has      bool
		detached *metav1.PartialObjectMetadata // without the note
	}{
		"none":    {why: "objects without such owners are not written", before: owned(`{"name":"a"}`)},
		"foreign": {why: "only Calico's objects change places", before: owned(`{"ownerReferences":[`+podRef+`]}`, podOwner)},
		"no JSON": {why: "nobody can read it, so nobody sees owners in it", before: owned(`{"ownerReferences":`)},
		"hidden": {why: "all else of the annotation stays", has: true,
			before:   owned(`{ "zone":1.50, "ownerReferences":[` + tierRef + `,` + podRef + `], "labels":{"a":"b"}}`),
			detached: owned(`{"labels":{"a":"b"},"ownerReferences":[` + podRef + `],"zone":1.50}`)},
		"hidden, all": {why: "an empty list is no list", has: true, before: owned(`{"ownerReferences":[` + tierRef + `]}`), detached: owned(`{}`)},
		"real": {why: "the object was written by kubectl", has: true, before: owned("", podOwner, tierOwner),
			detached: owned("", podOwner)},
		"both": {why: "the collector of v1 sees the real ones", has: true, before: owned(`{"ownerReferences":[`+tierRef+`]}`, tierOwner),
			detached: owned(`{}`)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			obj := c.before.DeepCopy()
			if has := resources.HasCalicoOwners(obj); has != c.has {
				t.Fatalf("has owners in Calico: %t: %s", has, c.why)
			}
			if !c.has {
				return
			}
			for range 2 { // again, it changes nothing
				must(t, resources.DetachOwners(obj, migrationUID))
				bare := obj.DeepCopy()
				delete(bare.Annotations, migrationv1.AnnotationDetachedOwners)
				if len(bare.Annotations) == 0 {
					bare.Annotations = nil
				}
				if diff := cmp.Diff(c.detached, bare); diff != "" {
					t.Errorf("detached (-want +got), %s:\n%s", c.why, diff)
				}
			}
			if !resources.IsDetached(obj, migrationUID) || resources.IsDetached(obj, "another") || resources.HasCalicoOwners(obj) {
				t.Errorf("it does not look detached: %v", obj.Annotations)
			}
			assertAttached(t, c.before, obj)
		})
	}
}

// assertAttached attaches, twice, and looks for any difference.
func assertAttached(t *testing.T, before, obj *metav1.PartialObjectMetadata) {
	t.Helper()
	for range 2 {
		must(t, resources.AttachOwners(obj, nil))
		if diff := cmp.Diff(before, obj); diff != "" {
			t.Errorf("attached again, not as it was (-before +after):\n%s", diff)
		}
	}
}

// A controller puts references back between two tries. What the first has noted is not forgotten for it.
func TestDetachOwnersAgain(t *testing.T) {
	const setRef = `{"apiVersion":"crd.projectcalico.org/v1","kind":"NetworkSet","name":"s","uid":"44444444-0000-4000-8000-000000000000"}`
	const setRefTurned = `{"kind":"NetworkSet","name":"s","apiVersion":"crd.projectcalico.org/v1","uid":"44444444-0000-4000-8000-000000000000"}`
	setOwner := metav1.OwnerReference{APIVersion: "crd.projectcalico.org/v1", Kind: "NetworkSet", Name: "s", UID: "44444444-0000-4000-8000-000000000000"}
	yes := true
	controlled := setOwner
	controlled.Controller = &yes
	hidden := func(refs string) string { return `{"ownerReferences":[` + refs + `]}` }
	for name, c := range map[string]struct {
		why         string
		before      *metav1.PartialObjectMetadata
		again       []metav1.OwnerReference // what is put back
		hiddenAgain string
		after       *metav1.PartialObjectMetadata // attached
	}{
		"one of two": {why: "its controller knows of its own only", before: owned("", tierOwner, setOwner),
			again: []metav1.OwnerReference{setOwner}, after: owned("", tierOwner, setOwner)},
		"changed": {why: "the newer one is right", before: owned("", tierOwner, setOwner),
			again: []metav1.OwnerReference{controlled}, after: owned("", tierOwner, controlled)},
		"a new one": {why: "both are owners", before: owned("", tierOwner), again: []metav1.OwnerReference{setOwner}, after: owned("", tierOwner, setOwner)},
		"with a foreign one": {why: "all that is there by then is as it was left", before: owned("", tierOwner),
			again: []metav1.OwnerReference{podOwner, setOwner}, after: owned("", tierOwner, podOwner, setOwner)},
		"hidden, one of two": {why: "the same, through Calico's API", before: owned(hidden(tierRef + "," + setRef)),
			hiddenAgain: hidden(setRef), after: owned(hidden(tierRef + "," + setRef))},
		"hidden, written in another way": {why: "one UID is one owner", before: owned(hidden(tierRef + "," + setRef)),
			hiddenAgain: hidden(setRefTurned), after: owned(hidden(tierRef + "," + setRefTurned))},
		"hidden, a new one": {why: "both are owners, and what else was written stays", before: owned(hidden(tierRef)),
			hiddenAgain: `{"labels":{"a":"b"},"ownerReferences":[` + podRef + `,` + setRef + `]}`,
			after:       owned(`{"labels":{"a":"b"},"ownerReferences":[` + tierRef + `,` + podRef + `,` + setRef + `]}`)},
		"hidden, other changes": {why: "what somebody writes while the references are off is kept, but for a copy of our note", before: owned(`{"ownerReferences":[`+tierRef+`],"labels":{"a":"b"}}`, tierOwner),
			again:       []metav1.OwnerReference{podOwner},
			hiddenAgain: `{"annotations":{"k":"v","` + migrationv1.AnnotationDetachedOwners + `":"copied"},"labels":{"a":"c"}}`,
			after:       owned(`{"annotations":{"k":"v"},"labels":{"a":"c"},"ownerReferences":[`+tierRef+`]}`, podOwner, tierOwner)},
	} {
		t.Run(name, func(t *testing.T) {
			obj := c.before.DeepCopy()
			detach := func() {
				for range 2 { // again, it changes nothing
					must(t, resources.DetachOwners(obj, migrationUID))
				}
			}
			detach()
			obj.OwnerReferences = c.again
			if c.hiddenAgain != "" {
				obj.Annotations[resources.MetadataAnnotation] = c.hiddenAgain
			}
			detach()
			if resources.HasCalicoOwners(obj) {
				t.Errorf("it has owners in Calico: %v", obj)
			}
			must(t, resources.AttachOwners(obj, nil))
			if diff := cmp.Diff(c.after, obj); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func TestAttachOwnersRewritten(t *testing.T) {
	obj := owned("", tierOwner, podOwner, tierOwner)
	must(t, resources.DetachOwners(obj, migrationUID))
	moved := tierOwner
	moved.UID = "22222222-0000-4000-8000-000000000000"
	err := resources.AttachOwners(obj, func(calico []metav1.OwnerReference) []metav1.OwnerReference {
		if diff := cmp.Diff([]metav1.OwnerReference{tierOwner, tierOwner}, calico); diff != "" {
			t.Errorf("asked for (-want +got):\n%s", diff)
		}
		return []metav1.OwnerReference{moved, moved}
	})
	must(t, err)
	if diff := cmp.Diff(owned("", podOwner, moved), obj); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDetachOwnersOfAnother(t *testing.T) {
	for name, note := range map[string]string{"another migration": `{"by":"another"}`, "no JSON": `{`} {
		obj := owned("", tierOwner)
		obj.Annotations = map[string]string{migrationv1.AnnotationDetachedOwners: note}
		want := obj.DeepCopy()
		if err := resources.DetachOwners(obj, migrationUID); err == nil {
			t.Errorf("%s: the note is overwritten", name)
		}
		if diff := cmp.Diff(want, obj); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// A copy has the same content and owners, whether its v1 object is detached or not.
func TestConvertSeesDetachedOwners(t *testing.T) {
	kind, _ := resources.Default().Kind("GlobalNetworkSet")
	v1 := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nets": []any{"10.0.0.0/8"}}}}
	v1.SetGroupVersionKind(kind.V1GVK())
	v1.SetName("n")
	v1.SetUID("33333333-0000-4000-8000-000000000000")
	v1.SetAnnotations(map[string]string{resources.MetadataAnnotation: `{"ownerReferences":[` + tierRef + `,` + podRef + `],"labels":{"a":"b"}}`})
	v1.SetOwnerReferences([]metav1.OwnerReference{tierOwner})
	want, err := resources.Convert(kind, v1, nil)
	must(t, err)
	if len(want.Owners) != 1 {
		t.Fatalf("owners: %v", want.Owners)
	}
	must(t, resources.DetachOwners(v1, migrationUID))
	before := v1.DeepCopy()
	got, err := resources.Convert(kind, v1, nil)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-attached +detached):\n%s", diff)
	}
	if diff := cmp.Diff(before, v1); diff != "" {
		t.Errorf("the argument is changed:\n%s", diff)
	}
}
