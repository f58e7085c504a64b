package copier

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// A policy of v1 without types is one of both directions. A copy of ours that says less, since an earlier release has
// made it, is corrected; an object of somebody else is a conflict, and so is a copy that somebody has changed.
func TestPolicyWithFewerTypes(t *testing.T) {
	w := newWorld(t)
	gnp, _ := resources.Default().Kind("GlobalNetworkPolicy")
	want := map[string]string{}
	const absent = "spec.types"
	for name, tc := range map[string]struct {
		why     string
		ours    string // version that the copy is said to be of, "" for an object of somebody else
		types   string // of v3
		edited  string // a merge patch by somebody else
		verdict string
	}{
		"earlier":       {why: "an earlier release wrote what Calico's policy would", ours: "of v1 as it is", types: "types: [Ingress]", verdict: "Stale " + absent},
		"of-others":     {why: "nobody but its owner may open it", types: "types: [Ingress]", verdict: "Unmanaged " + absent},
		"says-nothing":  {why: "the next write of it would get it one direction from admission", types: "order: 1", verdict: "Unmanaged spec.order " + absent},
		"same":          {why: "it says the same", types: "types: [Ingress, Egress]"},
		"edited":        {why: "what he has changed is his", ours: "of v1 as it is", types: "types: [Ingress]", edited: `{"spec":{"types":["Egress"]}}`, verdict: "Edited " + absent},
		"earlier-equal": {why: "nothing to correct", ours: "of v1 as it is", types: "types: [Ingress, Egress]"},
	} {
		v1 := w.v1("GlobalNetworkPolicy", "metadata: {name: "+name+"}\nspec: {selector: all()}")
		v3 := object(t, "metadata: {name: "+name+", labels: {projectcalico.org/tier: default}}\nspec: {selector: all(), tier: default, "+tc.types+"}")
		v3.SetGroupVersionKind(gnp.V3GVK())
		manager := "test"
		if tc.ours != "" {
			v3.SetAnnotations(map[string]string{resources.MigratedByAnnotation: string(me), resources.CopiedVersionAnnotation: v1.GetResourceVersion()})
			manager = fieldManager
		}
		w.must(w.client.Create(t.Context(), v3, client.FieldOwner(manager)))
		if tc.edited != "" {
			w.patch(v3, tc.edited)
		}
		if tc.verdict != "" {
			want[name] = tc.verdict
		}
	}
	c := w.copier(interceptor.Funcs{})
	if diff := cmp.Diff(want, said(w.mustVerify(c).Different)); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	result := w.mustCopy(c)
	delete(want, "earlier")
	if diff := cmp.Diff(want, said(result.Conflicts)); diff != "" || result.Updated != 1 {
		t.Errorf("%d corrected, want 1 (-want +got):\n%s", result.Updated, diff)
	}
	got, _, _ := unstructured.NestedStringSlice(w.get(gnp.V3GVK(), "earlier").Object, "spec", "types")
	if diff := cmp.Diff([]string{"Ingress", "Egress"}, got); diff != "" {
		t.Errorf("the earlier copy (-want +got):\n%s", diff)
	}
}

// said is what a Copy, or a Verify, says of an object: its cause and the fields.
func said(conflicts []Conflict) map[string]string {
	out := map[string]string{}
	for _, c := range conflicts {
		text := string(c.Cause)
		for _, f := range c.Fields {
			text += " " + f.Path
		}
		out[c.Name] = text
	}
	return out
}

// An owner that v1 gets after a barrier was written is a change of v1: nobody has edited the copy.
func TestOwnedSinceTheBarrier(t *testing.T) {
	w := newWorld(t)
	set, _ := resources.Default().Kind("GlobalNetworkSet")
	v1 := w.v1("GlobalNetworkSet", "metadata: {name: a}\nspec: {nets: [10.0.0.0/8]}")
	w.patch(v1, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, migrationv1.AnnotationBarrier, resources.BarrierOver(v1)))
	c := w.copier(interceptor.Funcs{})
	w.mustCopy(c)
	w.patch(w.get(set.V1GVK(), "a"), `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"00000000-0000-4000-8000-000000000001"}]}}`)
	result := w.mustCopy(c)
	if diff := cmp.Diff(map[string]string{}, said(result.Conflicts)); diff != "" || result.Updated != 1 {
		t.Errorf("%d updated, want 1 (-want +got):\n%s", result.Updated, diff)
	}
	w.wantVerified(c)
}
