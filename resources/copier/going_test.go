package copier

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

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
