package copier_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// many objects of a kind are watched in these tests.
const many = 12

// lists counts the lists of whole kinds, of more than one object, that are made through it. While it is deaf,
// the answers to barriers are lost. No watch shows that the object lost comes or goes.
type lists struct {
	of   atomic.Int64
	deaf atomic.Bool
	lost string
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

// lossy has watches that do not show that one object comes or goes.
type lossy struct {
	metadata.Interface
	lost string
}

func (l lossy) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return lossyGetter{l.Interface.Resource(gvr), l.lost}
}

type lossyGetter struct {
	metadata.Getter
	lost string
}

func (l lossyGetter) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := l.Getter.Watch(ctx, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
		obj, is := event.Object.(*metav1.PartialObjectMetadata)
		return event, !is || obj.Name != l.lost || event.Type == watch.Modified
	}), nil
}

// follower is a scene with many objects that are copied, and followed from then on.
func follower(t *testing.T, l *lists) (s *scene, ledger *copier.EqualityCache, kinds []*resources.Kind) {
	t.Helper()
	s = newScene(t, interceptor.Funcs{})
	var g errgroup.Group
	for i := range many {
		g.Go(func() error {
			return live.Client.Create(t.Context(), s.parse(reservation(fmt.Sprintf("r%02d", i))))
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	watches, err := metadata.NewForConfig(live.Config)
	if err != nil {
		t.Fatal(err)
	}
	ledger = copier.NewEqualityCache()
	t.Cleanup(ledger.Unwatch)
	s.copier = copier.New(resources.Default(), interceptor.NewClient(live.Client, l.funcs()), owner,
		copier.WithEqualityCache(ledger), copier.WithWatches(lossy{watches, l.lost}, nil), copier.UseSnapshot())
	s.wantCounts("ahead", s.mustCopy(), copier.Counts{Created: many})
	if kinds, err = s.copier.LargeKinds(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	if len(kinds) != 1 || kinds[0].Name() != "IPReservation" {
		t.Errorf("%d kinds have many: one has", len(kinds))
	}
	if err := s.copier.Watch(t.Context(), kinds); err != nil {
		t.Fatal(err)
	}
	return s, ledger, kinds
}

func reservation(name string) string {
	return "apiVersion: crd.projectcalico.org/v1\nkind: IPReservation\nmetadata: {name: " + name + "}\nspec: {reservedCIDRs: [10.0.0.0/8]}"
}

// Whatever is written on either side is seen without a list, as soon as the server has answered the writer.
func TestFollow(t *testing.T) {
	l := &lists{}
	s, _, followed := follower(t, l)
	kinds := resources.Default().All()
	if err := s.copier.Snapshot.Take(t.Context(), kinds); err != nil {
		t.Fatal(err)
	}
	l.of.Store(0)
	cases := []struct {
		name, why string
		do        func()
		moving    bool // in v1
		broken    []string
		copied    copier.Counts
	}{
		{name: "nothing", why: "our own writes are none", do: func() {}, copied: copier.Counts{Kept: many}},
		{name: "v1 changed", why: "the newest write to v1", do: func() {
			s.patch(s.get(v1("IPReservation"), "r03"), `{"spec":{"reservedCIDRs":["11.0.0.0/8"]}}`)
		}, moving: true, broken: []string{"r03"}, copied: copier.Counts{Kept: many - 1, Updated: 1}},
		{name: "the barrier itself changed", why: "the object that we write may be written by others", do: func() {
			s.patch(s.get(v1("IPReservation"), "r00"), `{"spec":{"reservedCIDRs":["12.0.0.0/8"]}}`)
		}, moving: true, broken: []string{"r00"}, copied: copier.Counts{Kept: many - 1, Updated: 1}},
		{name: "v1 created", why: "it is not in v3", do: func() { s.create(reservation("new")) },
			moving: true, broken: []string{"new"}, copied: copier.Counts{Kept: many, Created: 1}},
		{name: "v1 deleted", why: "its copy has to go", do: func() { s.remove(s.get(v1("IPReservation"), "new")) },
			moving: true, broken: []string{"new"}, copied: copier.Counts{Kept: many, Deleted: 1}},
		{name: "v3 deleted", why: "v1 has not moved, and v3 lacks one", do: func() { s.remove(s.get(v3("IPReservation"), "r05")) },
			broken: []string{"r05"}, copied: copier.Counts{Kept: many - 1, Created: 1}},
		{name: "v3 changed", why: "somebody has edited our copy", do: func() {
			s.patch(s.get(v3("IPReservation"), "r07"), `{"spec":{"reservedCIDRs":["13.0.0.0/8"]}}`)
		}, broken: []string{"r07"}, copied: copier.Counts{Kept: many - 1, Conflicts: 1}},
		{name: "the copy of the barrier changed", why: "that we have written v1 is no change of v1, to be copied over the edit", do: func() {
			s.patch(s.get(v3("IPReservation"), "r00"), `{"spec":{"reservedCIDRs":null}}`)
		}, broken: []string{"r00", "r07"}, copied: copier.Counts{Kept: many - 2, Conflicts: 2}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			tc.do()
			moving, err := s.copier.ChangedSince(t.Context(), kinds)
			if err != nil || (len(moving) > 0) != tc.moving {
				t.Errorf("v1 moves in %d kinds (%v): %s", len(moving), err, tc.why)
			}
			if diff := cmp.Diff(tc.broken, broken(s.mustVerify())); diff != "" {
				t.Errorf("what differs, %s (-want +got):\n%s", tc.why, diff)
			}
			s.wantCounts(tc.why, s.mustCopy(), tc.copied)
		})
	}
	if n := l.of.Load(); n != 0 {
		t.Errorf("%d lists of the kind that is followed", n)
	}
	for range 2 {
		if err := s.copier.LiftBarriers(t.Context(), followed); err != nil {
			t.Fatal(err)
		}
	}
	if notes := s.get(v1("IPReservation"), "r00").GetAnnotations(); len(notes) != 0 {
		t.Errorf("annotations %v are left on the v1 object", notes)
	}
}

// broken names what a verification finds fault with.
func broken(v copier.Verification) (names []string) {
	for _, c := range v.Different {
		names = append(names, c.Name)
	}
	for _, p := range slices.Concat(v.Missing, v.Extra) {
		names = append(names, p.Name)
	}
	return names
}

// Where a watch cannot be trusted any more, the kind is listed, and nothing is overlooked.
func TestUnfollowed(t *testing.T) {
	cases := map[string]struct {
		why string
		do  func(s *scene, l *lists, ledger *copier.EqualityCache)
	}{
		"an answer is lost": {why: "nobody knows what the barrier has become", do: func(_ *scene, l *lists, _ *copier.EqualityCache) { l.deaf.Store(true) }},
		"the watches ended": {why: "nothing is shown any more", do: func(_ *scene, _ *lists, ledger *copier.EqualityCache) { ledger.Unwatch() }},
		"the barrier is gone": {why: "there is nothing that may be written in v1", do: func(s *scene, _ *lists, _ *copier.EqualityCache) {
			s.remove(s.get(v1("IPReservation"), "r00"))
			s.remove(s.get(v3("IPReservation"), "r00"))
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := &lists{}
			s, ledger, _ := follower(t, l)
			s.patch(s.get(v1("IPReservation"), "r03"), `{"spec":{"reservedCIDRs":["11.0.0.0/8"]}}`)
			tc.do(s, l, ledger)
			l.of.Store(0)
			if diff := cmp.Diff([]string{"r03"}, broken(s.mustVerify())); diff != "" {
				t.Errorf("what differs (-want +got):\n%s", diff)
			}
			if l.of.Load() == 0 {
				t.Errorf("nothing was listed: %s", tc.why)
			}
		})
	}
}

// A watch that has lost an event without an end shows another number of objects than there are, for ever. Nobody writes
// v1 under the lock: the kind is listed instead, v1 is seen to be still, and nothing is overlooked.
func TestALostEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		lost string
		do   func(*scene)
	}{
		"a deletion": {why: "the watch shows one too many", lost: "r05", do: func(s *scene) { s.remove(s.get(v1("IPReservation"), "r05")) }},
		"a creation": {why: "the watch shows one too few", lost: "new", do: func(s *scene) { s.create(reservation("new")) }},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lists{lost: tc.lost}
			s, _, _ := follower(t, l)
			tc.do(s)
			var moving []int
			for range 2 { // as Drain
				if err := s.copier.Snapshot.Take(t.Context(), resources.Default().All()); err != nil {
					t.Fatal(err)
				}
				changed, err := s.copier.ChangedSince(t.Context(), resources.Default().All())
				if err != nil {
					t.Fatal(err)
				}
				moving = append(moving, len(changed))
			}
			if diff := cmp.Diff([]int{1, 0}, moving); diff != "" {
				t.Errorf("kinds that move, look by look; %s (-want +got):\n%s", tc.why, diff)
			}
			if diff := cmp.Diff([]string{tc.lost}, broken(s.mustVerify())); diff != "" {
				t.Errorf("what differs; %s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
