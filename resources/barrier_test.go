package resources_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

func TestContentVersion(t *testing.T) {
	cases := map[string]struct {
		why        string
		note       string
		generation int64
		want       string
	}{
		"never a barrier":    {why: "each write may have changed it", want: "30"},
		"a barrier":          {why: "only the barrier was written since 10", note: "10/4/20", generation: 4, want: "10"},
		"changed since":      {why: "its spec has another generation", note: "10/4/20", generation: 5, want: "30"},
		"a note of a person": {why: "what is no note of ours says nothing", note: "keep", want: "30"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := &metav1.ObjectMeta{ResourceVersion: "30", Generation: tc.generation}
			if tc.note != "" {
				obj.Annotations = map[string]string{migrationv1.AnnotationBarrier: tc.note}
			}
			if got := resources.ContentVersion(obj); got != tc.want {
				t.Errorf("ContentVersion %s, want %s: %s", got, tc.want, tc.why)
			}
		})
	}
}

// However often a barrier is written, it is known since when nothing else was.
func TestBarrierOverBarrier(t *testing.T) {
	obj := &metav1.ObjectMeta{ResourceVersion: "10", Generation: 4}
	for _, next := range []string{"20", "30"} {
		metav1.SetMetaDataAnnotation(obj, migrationv1.AnnotationBarrier, resources.BarrierOver(obj))
		obj.ResourceVersion = next
	}
	if got := resources.ContentVersion(obj); got != "10" {
		t.Errorf("ContentVersion %s, want 10", got)
	}
}
