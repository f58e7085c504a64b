package copier

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// What only admission knows, a plan asks by dry runs: each object that would be refused or changed is named.
func TestPlanAsksTheServer(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"fine", "refused", "altered"} {
		w.v1("GlobalNetworkSet", "metadata: {name: "+name+", labels: {team: blue}}\nspec: {nets: [10.0.0.0/8]}")
	}
	for why, tc := range map[string]struct {
		unknown bool // whoever asks may not create
		want    map[string]string
	}{
		"a policy refuses one, another changes one": {want: map[string]string{
			"refused": `RejectedByServer: refused by the API server: globalnetworksets.projectcalico.org "refused" is forbidden: denied by policy`,
			"altered": `AlteredByAdmission: an admission policy or a webhook makes something else of it in v3: metadata.labels.team: "blue" in v1, "red" in v3`}},
		"a person who may not create learns that": {unknown: true, want: map[string]string{}},
	} {
		resource := schema.GroupResource{Group: "projectcalico.org", Resource: "globalnetworksets"}
		c := w.copier(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) == 0 {
				t.Errorf("%s is written", obj.GetName())
			}
			switch {
			case tc.unknown:
				return apierrs.NewForbidden(resource, obj.GetName(), errors.New(`User "me" cannot create resource "globalnetworksets" in API group "projectcalico.org" at the cluster scope`))
			case obj.GetName() == "refused":
				return apierrs.NewForbidden(resource, obj.GetName(), errors.New("denied by policy"))
			case obj.GetName() == "altered":
				obj.SetLabels(map[string]string{"team": "red", "audited": "yes"})
			}
			return nil
		}}, AskServer())
		plan, err := c.Plan(t.Context(), true)
		w.must(err)
		got := map[string]string{}
		for _, p := range plan.Problems {
			got[p.Name] = string(p.Reason) + ": " + p.Message
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || (plan.Unasked != "") != tc.unknown {
			t.Errorf("%s; unasked %q (-want +got):\n%s", why, plan.Unasked, diff)
		}
	}
}

// Our notes count towards the limit of annotations, also before there is a migration whose UID they name.
func TestPlanCountsTheNotesOnCopies(t *testing.T) {
	const limit, notes = 256 << 10, 300 // bytes
	w := newWorld(t)
	for name, size := range map[string]int{"full": limit - 100, "room": limit - notes} {
		w.v1("GlobalNetworkSet", "metadata: {name: "+name+", annotations: {a: "+strings.Repeat("x", size)+"}}\nspec: {nets: [10.0.0.0/8]}")
	}
	for _, me := range []owner{"", "6f3c2f0a-8f0e-4a53-9a0f-1d8a1d3f2b10"} {
		c := w.copier(interceptor.Funcs{})
		c.me = me
		plan, err := c.Plan(t.Context(), true)
		w.must(err)
		var named []string
		for _, p := range plan.Problems {
			named = append(named, p.Name)
		}
		if diff := cmp.Diff([]string{"full"}, named); diff != "" {
			t.Errorf("what has no room for the notes of %q (-want +got):\n%s", me, diff)
		}
	}
}

// What copies say and v1 does not is counted, by kind and value.
func TestPlanCountsWhatIsFilledIn(t *testing.T) {
	w := newWorld(t)
	for name, spec := range map[string]string{"closed": "selector: all()", "empty": "types: []", "said": "types: [Ingress]", "early": "preDNAT: true"} {
		w.v1("GlobalNetworkPolicy", "metadata: {name: "+name+"}\nspec: {"+spec+"}")
	}
	w.v1("IPAMConfig", "metadata: {name: default}\nspec: {strictAffinity: true}")
	plan, err := w.copier(interceptor.Funcs{}).Plan(t.Context(), true)
	w.must(err)
	want := []Filled{
		{Kind: "GlobalNetworkPolicy", Field: "spec.types", Value: `["Ingress","Egress"]`, Objects: 2},
		{Kind: "GlobalNetworkPolicy", Field: "spec.types", Value: `["Ingress"]`, Objects: 1},
		{Kind: "IPAMConfiguration", Field: "spec.autoAllocateBlocks", Value: "false", Objects: 1},
	}
	if diff := cmp.Diff(want, plan.Filled); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
