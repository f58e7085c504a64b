package copier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// many objects of a kind are watched in these tests.
const many = 12

// lists counts the lists of whole kinds, of more than one object, that are made through it. While it is deaf,
// the answers to barriers are lost.
type lists struct {
	of   atomic.Int64
	deaf atomic.Bool
}

func (l *lists) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var o client.ListOptions
			o.ApplyOptions(opts)
			if _, of := list.(*metav1.PartialObjectMetadataList); of && o.Limit > 1 && list.GetObjectKind().GroupVersionKind().Kind == "IPReservationList" {
				l.of.Add(1)
			}
			return c.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			err := c.Patch(ctx, obj, patch, opts...)
			if _, barrier := obj.(*metav1.PartialObjectMetadata); barrier && l.deaf.Load() {
				return errors.New("the answer is lost")
			}
			return err
		},
	}
}

// newFollower has many objects that are copied, and followed from then on.
func newFollower(t *testing.T, l *lists) (w *world, c *Copier, ledger *EqualityCache, kinds []*resources.Kind) {
	t.Helper()
	w, _ = newLive(t, interceptor.Funcs{})
	for i := range many {
		w.reserve(fmt.Sprintf("r%02d", i))
	}
	watches, err := metadata.NewForConfig(w.config)
	w.must(err)
	ledger = NewEqualityCache()
	t.Cleanup(ledger.Unwatch)
	c = w.copier(l.funcs(), WithEqualityCache(ledger), WithWatches(watches, nil), UseSnapshot())
	w.wantCounts("ahead", w.mustCopy(c), Counts{Created: many})
	kinds, err = c.LargeKinds(t.Context(), many)
	w.must(err)
	if len(kinds) != 1 || kinds[0].Name() != "IPReservation" {
		t.Errorf("%d kinds have many: one has", len(kinds))
	}
	w.must(c.Watch(t.Context(), kinds))
	return w, c, ledger, kinds
}

func (w *world) reserve(name string) {
	w.Helper()
	w.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
}

// Whatever is written on either side is seen without a list, as soon as the server has answered the writer.
func TestFollow(t *testing.T) {
	l := &lists{}
	w, c, _, followed := newFollower(t, l)
	kinds := resources.Default().All()
	w.must(c.Snapshot.Take(t.Context(), kinds))
	l.of.Store(0)
	cases := []struct {
		name, why string
		do        func()
		moving    bool // in v1
		broken    []string
		copied    Counts
	}{
		{name: "nothing", why: "our own writes are none", do: func() {}, copied: Counts{Kept: many}},
		{name: "v1 changed", why: "the newest write to v1", do: func() {
			w.patch(named(v1("IPReservation"), "r03"), `{"spec":{"reservedCIDRs":["11.0.0.0/8"]}}`)
		}, moving: true, broken: []string{"r03"}, copied: Counts{Kept: many - 1, Updated: 1}},
		{name: "the barrier itself changed", why: "the object that we write may be written by others", do: func() {
			w.patch(named(v1("IPReservation"), "r00"), `{"spec":{"reservedCIDRs":["12.0.0.0/8"]}}`)
		}, moving: true, broken: []string{"r00"}, copied: Counts{Kept: many - 1, Updated: 1}},
		{name: "v1 created", why: "it is not in v3", do: func() { w.reserve("new") },
			moving: true, broken: []string{"new"}, copied: Counts{Kept: many, Created: 1}},
		{name: "v1 deleted", why: "its copy has to go", do: func() { w.remove(named(v1("IPReservation"), "new")) },
			moving: true, broken: []string{"new"}, copied: Counts{Kept: many, Deleted: 1}},
		{name: "v3 deleted", why: "v1 has not moved, and v3 lacks one", do: func() { w.remove(named(v3("IPReservation"), "r05")) },
			broken: []string{"r05"}, copied: Counts{Kept: many - 1, Created: 1}},
		{name: "v3 changed", why: "somebody has edited our copy", do: func() {
			w.patch(named(v3("IPReservation"), "r07"), `{"spec":{"reservedCIDRs":["13.0.0.0/8"]}}`)
		}, broken: []string{"r07"}, copied: Counts{Kept: many - 1, Conflicts: 1}},
		{name: "the copy of the barrier changed", why: "that we have written v1 is no change of v1, to be copied over the edit", do: func() {
			w.patch(named(v3("IPReservation"), "r00"), `{"spec":{"reservedCIDRs":null}}`)
		}, broken: []string{"r00", "r07"}, copied: Counts{Kept: many - 2, Conflicts: 2}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			tc.do()
			moving, err := c.ChangedSince(t.Context(), kinds)
			if err != nil || (len(moving) > 0) != tc.moving {
				t.Errorf("v1 moves in %d kinds (%v): %s", len(moving), err, tc.why)
			}
			if diff := cmp.Diff(tc.broken, broken(w.mustVerify(c))); diff != "" {
				t.Errorf("what differs, %s (-want +got):\n%s", tc.why, diff)
			}
			w.wantCounts(tc.why, w.mustCopy(c), tc.copied)
		})
	}
	if n := l.of.Load(); n != 0 {
		t.Errorf("%d lists of the kind that is followed", n)
	}
	for range 2 {
		w.must(c.LiftBarriers(t.Context(), followed))
	}
	if notes := w.get(v1("IPReservation"), "r00").GetAnnotations(); len(notes) != 0 {
		t.Errorf("annotations %v are left on the v1 object", notes)
	}
}

// broken names what a verification finds fault with.
func broken(v Verification) (all []string) {
	for _, c := range v.Different {
		all = append(all, c.Name)
	}
	return append(all, names(slices.Concat(v.Missing, v.Extra))...)
}

// Where a watch cannot be trusted any more, the kind is listed, and nothing is overlooked.
func TestUnfollowed(t *testing.T) {
	cases := map[string]struct {
		why string
		do  func(w *world, l *lists, ledger *EqualityCache)
	}{
		"an answer is lost": {why: "nobody knows what the barrier has become", do: func(_ *world, l *lists, _ *EqualityCache) { l.deaf.Store(true) }},
		"the watches ended": {why: "nothing is shown any more", do: func(_ *world, _ *lists, ledger *EqualityCache) { ledger.Unwatch() }},
		"the barrier is gone": {why: "there is nothing that may be written in v1", do: func(w *world, _ *lists, _ *EqualityCache) {
			w.remove(named(v1("IPReservation"), "r00"))
			w.remove(named(v3("IPReservation"), "r00"))
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := &lists{}
			w, c, ledger, _ := newFollower(t, l)
			w.patch(named(v1("IPReservation"), "r03"), `{"spec":{"reservedCIDRs":["11.0.0.0/8"]}}`)
			tc.do(w, l, ledger)
			l.of.Store(0)
			if diff := cmp.Diff([]string{"r03"}, broken(w.mustVerify(c))); diff != "" {
				t.Errorf("what differs (-want +got):\n%s", diff)
			}
			if l.of.Load() == 0 {
				t.Errorf("nothing was listed: %s", tc.why)
			}
		})
	}
}
