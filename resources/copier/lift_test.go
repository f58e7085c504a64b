package copier

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// Through Calico's own API a note of ours may come to lie in hidden metadata, too. An abort leaves none.
func TestBarriersAreLiftedWhereverTheyAre(t *testing.T) {
	w := newWorld(t)
	kind := kindOf(t, "IPReservation")
	const note = migrationv1.AnnotationBarrier
	for name, annotations := range map[string]string{
		"plain":   "{keep: me, " + note + ": 1/1/1}",
		"hidden":  `{projectcalico.org/metadata: '{"labels":{"a":"b"},"annotations":{"keep":"me","` + note + `":"1/1/1"}}'}`,
		"both":    "{" + note + `: 1/1/1, projectcalico.org/metadata: '{"annotations":{"` + note + `":"1/1/1"}}'}`,
		"none":    `{projectcalico.org/metadata: '{ "labels":{"a":"b"}}'}`,
		"no JSON": "{projectcalico.org/metadata: '{'}",
	} {
		w.v1("IPReservation", "metadata: {name: "+strings.ReplaceAll(strings.ToLower(name), " ", "-")+", annotations: "+annotations+"}\nspec: {}")
	}
	for range 2 { // again, it writes nothing
		w.must(w.copier(interceptor.Funcs{}).LiftBarriers(t.Context(), []*resources.Kind{kind}))
	}
	got := map[string]map[string]string{}
	for _, name := range []string{"plain", "hidden", "both", "none", "no-json"} {
		got[name] = w.get(kind.V1GVK(), name).GetAnnotations()
	}
	want := map[string]map[string]string{
		"plain":   {"keep": "me"},
		"hidden":  {resources.MetadataAnnotation: `{"annotations":{"keep":"me"},"labels":{"a":"b"}}`},
		"both":    {resources.MetadataAnnotation: `{}`},
		"none":    {resources.MetadataAnnotation: `{ "labels":{"a":"b"}}`},
		"no-json": {resources.MetadataAnnotation: "{"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}
