package copier

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// What v3 has, and nobody has migrated, is in force as soon as v3 is open: each look at both sides names it.
func TestOnlyInV3IsNamed(t *testing.T) {
	for name, ledger := range map[string]*EqualityCache{"compared": nil, "with a ledger": NewEqualityCache()} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.v1("NetworkSet", "metadata: {namespace: shop, name: both}\nspec: {nets: [10.0.0.0/8]}")
			w.v1("NetworkSet", "metadata: {namespace: shop, name: equal}\nspec: {nets: [10.0.0.0/8]}")
			w.v3("NetworkSet", "metadata: {namespace: shop, name: equal}\nspec: {nets: [10.0.0.0/8]}")
			w.v3("NetworkSet", "metadata: {namespace: shop, name: by-hand}\nspec: {nets: [11.0.0.0/8]}")
			w.v3("GlobalNetworkPolicy", "metadata: {name: aborted, annotations: {migration.projectcalico.org/migrated-by: another}}\nspec: {order: 5}")
			w.v3("Tier", "metadata: {name: kube-admin}\nspec: {order: 1000, defaultAction: Pass}") // in every v3, and nobody may delete it
			want := []resources.Problem{
				{Kind: "GlobalNetworkPolicy", Name: "aborted", Reason: resources.ReasonOnlyInV3,
					Message: "is in v3 only, and in force as soon as v3 is open: another migration has left it",
					Remedy:  "delete it, unless v3 is to have it: kubectl delete globalnetworkpolicies.v3.projectcalico.org aborted"},
				{Kind: "NetworkSet", Namespace: "shop", Name: "by-hand", Reason: resources.ReasonOnlyInV3,
					Message: "is in v3 only, and in force as soon as v3 is open: no migration has made it",
					Remedy:  "delete it, unless v3 is to have it: kubectl delete networksets.v3.projectcalico.org by-hand -n shop"},
			}
			c := w.copier(interceptor.Funcs{}, WithEqualityCache(ledger))
			check := func(when string, got []resources.Problem) {
				t.Helper()
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", when, diff)
				}
			}
			compared, err := c.Compare(t.Context())
			w.must(err)
			check("before a copy", compared.OnlyInV3)
			check("by the copy", w.mustCopy(c).OnlyInV3)
			check("by the next copy", w.mustCopy(c).OnlyInV3)
			check("by the comparison before v3 opens", w.mustVerify(c).OnlyInV3)
			w.wantVerified(c) // nothing is wrong with the copies
		})
	}
}
