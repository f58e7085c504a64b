package copier

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// What is being deleted in v1 must not live on in v3, where nobody deletes it.
func TestACopyGoesWithAnObjectThatIsBeingDeleted(t *testing.T) {
	for name, ledger := range map[string]*Ledger{"compared": nil, "with a ledger": NewLedger()} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			kind := kindOf(t, "IPReservation")
			for _, object := range []string{"stays", "going"} {
				w.v1("IPReservation", "metadata: {name: "+object+", finalizers: [test/hold]}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
			}
			c := w.copier(interceptor.Funcs{}, WithLedger(ledger))
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
			deletion, err := c.DeleteCopies(t.Context(), false, nil)
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
