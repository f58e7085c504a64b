package datastoremigration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/resources"
)

// A tier of Calico's own that has drifted blocks, as it does at Calico's own controller: v3 would refuse the copy.
func TestBuiltInTiers(t *testing.T) {
	spec := func(order, action any) map[string]any { return map[string]any{"order": order, "defaultAction": action} }
	cases := map[string]struct {
		why  string
		tier string
		spec map[string]any
		want string // the message, empty if nothing blocks
	}{
		"default":                  {why: "it is as v3 demands", tier: "default", spec: spec(int64(1_000_000), "Deny")},
		"default as a float":       {why: "YAML writes 1e+06", tier: "default", spec: spec(1e6, "Deny")},
		"default says nothing":     {why: "Calico fills it in", tier: "default", spec: map[string]any{}},
		"default without a spec":   {why: "the same", tier: "default"},
		"default, empty action":    {why: "an empty value is none, and is not copied", tier: "default", spec: spec(int64(1_000_000), "")},
		"default has moved":        {why: "its order", tier: "default", spec: spec(int64(500), "Deny"), want: "Tier default has order 500 and defaultAction Deny; v3 demands order 1000000 and defaultAction Deny"},
		"default passes":           {why: "its action", tier: "default", spec: spec(int64(1_000_000), "Pass"), want: "Tier default has order 1000000 and defaultAction Pass; v3 demands order 1000000 and defaultAction Deny"},
		"kube-admin":               {why: "it is as v3 demands", tier: "kube-admin", spec: spec(int64(1_000), "Pass")},
		"kube-admin has moved":     {why: "its order", tier: "kube-admin", spec: spec(int64(2), "Pass"), want: "Tier kube-admin has order 2 and defaultAction Pass; v3 demands order 1000 and defaultAction Pass"},
		"kube-admin, no action":    {why: "Calico would fill in Deny", tier: "kube-admin", spec: map[string]any{"order": int64(1_000)}, want: "Tier kube-admin has order 1000 and no defaultAction; v3 demands order 1000 and defaultAction Pass"},
		"kube-admin, empty action": {why: "the same", tier: "kube-admin", spec: spec(int64(1_000), ""), want: "Tier kube-admin has order 1000 and no defaultAction; v3 demands order 1000 and defaultAction Pass"},
		"kube-baseline denies":     {why: "its action", tier: "kube-baseline", spec: spec(int64(10_000_000), "Deny"), want: "Tier kube-baseline has order 10000000 and defaultAction Deny; v3 demands order 10000000 and defaultAction Pass"},
		"kube-baseline, no order":  {why: "Calico would fill in that of default", tier: "kube-baseline", spec: map[string]any{"defaultAction": "Pass"}, want: "Tier kube-baseline has no order and defaultAction Pass; v3 demands order 10000000 and defaultAction Pass"},
		"another":                  {why: "people may order their own as they like", tier: "mine", spec: spec(int64(7), "Pass")},
	}
	kind, _ := resources.Default().Kind(tierKind)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tier := &unstructured.Unstructured{Object: map[string]any{}}
			if c.spec != nil {
				tier.Object["spec"] = c.spec
			}
			tier.SetGroupVersionKind(kind.V1GVK())
			tier.SetName(c.tier)
			s := newEffects(newFake().WithObjects(tier).Build(), Settings{Registry: resources.Default()})
			findings, err := s.preflight.builtInTiers().Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range findings {
				got += f.Message
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
