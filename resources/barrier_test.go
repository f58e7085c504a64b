package resources_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// A barrier is the one thing that has changed since the version that it notes: else the note says nothing. It may
// come along with a manifest, from another cluster or from before.
func TestContentVersion(t *testing.T) {
	cases := map[string]struct {
		why  string
		edit func(*metav1.ObjectMeta) // after the barrier
		want string
	}{
		"a barrier": {why: "only the barrier was written since 10", edit: func(*metav1.ObjectMeta) {}, want: "10"},
		"another barrier": {why: "however often one is written, it is known since when nothing else was", edit: func(obj *metav1.ObjectMeta) {
			metav1.SetMetaDataAnnotation(obj, migrationv1.AnnotationBarrier, resources.BarrierOver(obj))
			obj.ResourceVersion = "40"
		}, want: "10"},
		"never a barrier":    {why: "each write may have changed it", edit: func(obj *metav1.ObjectMeta) { obj.Annotations = nil }, want: "30"},
		"changed since":      {why: "its spec has another generation", edit: func(obj *metav1.ObjectMeta) { obj.Generation++ }, want: "30"},
		"labelled since":     {why: "a label is content, and leaves the generation as it is", edit: func(obj *metav1.ObjectMeta) { obj.Labels = map[string]string{"tier": "x"} }, want: "30"},
		"owned since":        {why: "an owner is content, and leaves the generation as it is", edit: func(obj *metav1.ObjectMeta) { obj.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", UID: "o"}} }, want: "30"},
		"annotated since":    {why: "labels of v3 are hidden in an annotation", edit: func(obj *metav1.ObjectMeta) { obj.Annotations[resources.MetadataAnnotation] = "{}" }, want: "30"},
		"applied elsewhere":  {why: "the versions of another cluster say nothing here", edit: func(obj *metav1.ObjectMeta) { obj.UID = "other" }, want: "30"},
		"a note of a person": {why: "what is no note of ours says nothing", edit: func(obj *metav1.ObjectMeta) { obj.Annotations[migrationv1.AnnotationBarrier] = "keep" }, want: "30"},
		"written by hand":    {why: "nobody but us knows since when", edit: func(obj *metav1.ObjectMeta) { obj.Annotations[migrationv1.AnnotationBarrier] = "10/4/20" }, want: "30"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := &metav1.ObjectMeta{UID: "u", ResourceVersion: "10", Generation: 4, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}}
			metav1.SetMetaDataAnnotation(obj, migrationv1.AnnotationBarrier, resources.BarrierOver(obj))
			obj.ResourceVersion = "30"
			tc.edit(obj)
			if got := resources.ContentVersion(obj); got != tc.want {
				t.Errorf("ContentVersion %s, want %s: %s", got, tc.want, tc.why)
			}
		})
	}
}
