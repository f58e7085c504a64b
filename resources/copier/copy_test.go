package copier

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// What the API server makes at its first sight of a kind it would make for each object that comes meanwhile; the
// others go side by side.
func TestTheFirstOfAKindGoesAlone(t *testing.T) {
	w := newWorld(t)
	const each = 6
	kinds := []string{"NetworkSet", "GlobalNetworkSet"}
	for i := range each {
		w.v1(kinds[0], fmt.Sprintf(`{"metadata": {"namespace": "default", "name": "set-%d"}}`, i))
		w.v1(kinds[1], fmt.Sprintf(`{"metadata": {"name": "set-%d"}}`, i))
	}
	var mu sync.Mutex
	begun, answered, most := map[string]int{}, map[string]int{}, map[string]int{}
	c := w.copier(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			kind := obj.GetObjectKind().GroupVersionKind().Kind
			mu.Lock()
			if begun[kind]++; begun[kind] > 1 && answered[kind] == 0 {
				t.Errorf("%s %s is sent before the first %s is answered", kind, obj.GetName(), kind)
			}
			most[kind] = max(most[kind], begun[kind]-answered[kind])
			mu.Unlock()
			time.Sleep(50 * time.Millisecond) // as an API server that has something to make
			err := c.Create(ctx, obj, opts...)
			mu.Lock()
			answered[kind]++
			mu.Unlock()
			return err
		},
	})
	result, err := c.Copy(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if done := result.Progress.Done; done != int64(each*len(kinds)) {
		t.Errorf("%d objects are copied, want %d", done, each*len(kinds))
	}
	for _, kind := range kinds {
		if most[kind] < 2 {
			t.Errorf("at most %d %ss are in flight at a time: the others wait for nothing", most[kind], kind)
		}
	}
}

// What is being deleted in v1 must not live on in v3, where nobody deletes it.
func TestACopyGoesWithAnObjectThatIsBeingDeleted(t *testing.T) {
	for name, ledger := range map[string]*EqualityCache{"compared": nil, "with a ledger": NewEqualityCache()} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			kind := kindOf(t, "IPReservation")
			for _, object := range []string{"stays", "going"} {
				w.v1("IPReservation", "metadata: {name: "+object+", finalizers: [test/hold]}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
			}
			c := w.copier(interceptor.Funcs{}, WithEqualityCache(ledger))
			w.mustCopy(c)
			w.must(w.client.Delete(t.Context(), w.get(kind.V1GVK(), "going")))
			v := w.mustVerify(c)
			if len(v.Extra) != 1 || v.Extra[0].Name != "going" || v.OK() {
				t.Errorf("extra %v, want the copy of the one that goes", v.Extra)
			}
			want := Counts{Total: 2, Done: 2, Kept: 1, Terminating: 1, Deleted: 1}
			if diff := cmp.Diff(want, w.mustCopy(c).Counts); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			if left := w.get(kind.V3GVK(), "going"); left != nil {
				t.Errorf("it lives on in v3: %v", left)
			}
			w.wantVerified(c)
			deletion, err := c.DeleteCopies(t.Context(), false)
			if err != nil || deletion.Deleted != 1 {
				t.Errorf("%+v, %v: want that an abort deletes the other one", deletion, err)
			}
		})
	}
}

// A namespace may end between the list of v1 and the write of a copy, under the lock as well: that is no reason to
// give the migration up, unless the v1 object has outlived it.
func TestAnObjectMayGoWithItsNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		outlives bool
		want     Counts
	}{
		"it went, too":          {want: Counts{Total: 1, Done: 1, Terminating: 1}},
		"it is there all alone": {outlives: true, want: Counts{Total: 1, Done: 1, Rejected: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			set := w.v1("NetworkSet", "metadata: {namespace: ended, name: set}\nspec: {nets: [10.0.0.0/8]}")
			copies := w.copier(interceptor.Funcs{
				Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
					if !c.outlives {
						w.must(client.IgnoreNotFound(w.client.Delete(ctx, set)))
					}
					return apierrs.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ended")
				},
			})
			if diff := cmp.Diff(c.want, w.mustCopy(copies).Counts); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

// Calico keeps a pool that is being deleted as long as it has blocks, and a tier as long as it has policies. Both
// live on in v1, so v3 must not silently lack them: the object is named, before the lock and under it.
func TestWhatOthersNeedIsNamed(t *testing.T) {
	w := newWorld(t)
	w.v1("IPPool", "metadata: {name: used, finalizers: [projectcalico.org/ippool-finalizer]}\nspec: {cidr: 10.0.0.0/8}")
	w.v1("IPPool", "metadata: {name: unused, finalizers: [projectcalico.org/ippool-finalizer]}\nspec: {cidr: 11.0.0.0/8}")
	w.v1("IPAMBlock", "metadata: {name: 10-1-0-0-26}\nspec: {cidr: 10.1.0.0/26}")
	w.v1("IPAMBlock", "metadata: {name: 11-1-0-0-26}\nspec: {cidr: 11.1.0.0/26, deleted: true}")
	w.v1("Tier", "metadata: {name: apps, finalizers: [projectcalico.org/tier-controller]}\nspec: {order: 5}")
	w.v1("Tier", "metadata: {name: free, finalizers: [projectcalico.org/tier-controller]}\nspec: {order: 6}")
	w.v1("GlobalNetworkPolicy", "metadata: {name: apps.web}\nspec: {tier: apps}")
	for _, of := range [][2]string{{"IPPool", "used"}, {"IPPool", "unused"}, {"Tier", "apps"}, {"Tier", "free"}} {
		w.must(w.client.Delete(t.Context(), w.get(kindOf(t, of[0]).V1GVK(), of[1])))
	}
	c := w.copier(interceptor.Funcs{})
	plan, err := c.Plan(t.Context(), true)
	w.must(err)
	result := w.mustCopy(c)
	named := []string{
		"IPPool used: is being deleted, and 1 object still needs it: IPAMBlock 10-1-0-0-26",
		"Tier apps: is being deleted, and 1 object still needs it: GlobalNetworkPolicy apps.web",
	}
	for when, problems := range map[string][]resources.Problem{"plan": plan.Problems, "copy": result.Rejected} {
		var got []string
		for _, p := range problems {
			got = append(got, p.Kind+" "+p.Object()+": "+p.Message)
		}
		if diff := cmp.Diff(named, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	skipped := []Skipped{{Kind: "IPPool", Name: "unused", Why: SkippedTerminating}, {Kind: "Tier", Name: "free", Why: SkippedTerminating}}
	for when, got := range map[string][]Skipped{"plan": plan.Skipped, "copy": result.Skipped} {
		if diff := cmp.Diff(skipped, got); diff != "" {
			t.Errorf("%s skipped (-want +got):\n%s", when, diff)
		}
	}
	want := Counts{Total: 7, Done: 7, Created: 3, Terminating: 2, Rejected: 2}
	if diff := cmp.Diff(want, result.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// What v3 has already is listed, too: a person may not expect it there.
func TestWhatIsSkippedIsListed(t *testing.T) {
	w := newWorld(t)
	kind := kindOf(t, "IPReservation")
	for _, name := range []string{"here", "there"} {
		w.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	}
	c := w.copier(interceptor.Funcs{}, WithEqualityCache(NewEqualityCache()))
	w.mustCopy(c)
	w.patch(w.get(kind.V3GVK(), "there"), `{"metadata":{"annotations":{"migration.projectcalico.org/migrated-by":null,"migration.projectcalico.org/copied-version":null}}}`)
	want := []Skipped{{Kind: "IPReservation", Name: "there", Why: SkippedEqual}}
	for _, when := range []string{"compared", "by the ledger"} {
		if diff := cmp.Diff(want, w.mustCopy(c).Skipped); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	compared, err := c.Compare(t.Context())
	w.must(err)
	if diff := cmp.Diff(want, compared.Equal); diff != "" {
		t.Errorf("before a copy (-want +got):\n%s", diff)
	}
}

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
