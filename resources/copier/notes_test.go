package copier

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// wantManagers compares the field managers of an object, as "name version".
func (w *world) wantManagers(obj client.Object, want ...string) {
	w.Helper()
	var names []string
	for _, entry := range obj.GetManagedFields() {
		names = append(names, entry.Manager+" "+entry.APIVersion)
	}
	slices.Sort(names)
	if names = slices.Compact(names); !slices.Equal(names, want) {
		w.Errorf("%s is managed by %q, want %q", obj.GetName(), names, want)
	}
}

// Whoever owns an object in v1 owns its copy, by whatever name; what is no copy keeps its owners; a second call
// writes nothing; and what is refused is named, and does not keep the others.
func TestHandOver(t *testing.T) {
	const hidden = `projectcalico.org/metadata: '{"name":"%s"}'`
	w := newWorld(t)
	for i := range 5 {
		w.v1("GlobalNetworkSet", fmt.Sprintf("metadata: {name: set-%d}\nspec: {nets: [192.0.2.0/24]}", i))
		// Of these the order of the names is another one in v3.
		w.v1("GlobalNetworkPolicy", fmt.Sprintf("metadata: {name: policy-%d, annotations: {%s}}\nspec: {order: 1}", i, fmt.Sprintf(hidden, fmt.Sprintf("p-%d", 9-i))))
	}
	set, _ := resources.Default().Kind("GlobalNetworkSet")
	policy, _ := resources.Default().Kind("GlobalNetworkPolicy")
	foreign := object(t, "metadata: {name: foreign}\nspec: {nets: [192.0.2.0/24]}")
	foreign.SetGroupVersionKind(set.V3GVK())
	w.must(w.client.Create(t.Context(), foreign, client.FieldOwner("bob")))

	writes, refuse := 0, "set-3"
	c := w.copier(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if obj.GetName() == refuse {
			return apierrs.NewForbidden(schema.GroupResource{Resource: "globalnetworksets"}, refuse, fmt.Errorf("a policy says no"))
		}
		w.mu.Lock()
		writes++
		w.mu.Unlock()
		return c.Patch(ctx, obj, patch, opts...)
	}})
	w.mustCopy(c)
	refused, err := c.HandOver(t.Context(), func(string) bool { return true })
	w.must(err)
	if len(refused) != 1 || refused[0].Name != "set-3" {
		t.Errorf("refused: %v, want set-3", refused)
	}
	refuse = ""
	if refused, err = c.HandOver(t.Context(), func(string) bool { return true }); err != nil || len(refused) > 0 || writes != 10 {
		t.Errorf("refused %v, error %v, %d writes in all, want one for each copy", refused, err, writes)
	}
	for i := range 5 {
		w.wantManagers(w.get(set.V3GVK(), fmt.Sprintf("set-%d", i)), "phasegate projectcalico.org/v3", "test projectcalico.org/v3")
		w.wantManagers(w.get(policy.V3GVK(), fmt.Sprintf("p-%d", i+5)), "phasegate projectcalico.org/v3", "test projectcalico.org/v3")
	}
	w.wantManagers(w.get(set.V3GVK(), "foreign"), "bob projectcalico.org/v3") // which we did not copy
	if refused, err = c.HandOver(t.Context(), func(string) bool { return true }); err != nil || len(refused) > 0 || writes != 10 {
		t.Errorf("a second call: refused %v, error %v, %d writes", refused, err, writes)
	}
}
