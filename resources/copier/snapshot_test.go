package copier_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// Whatever is written to v1 is seen, in the kind that it was written to, and once.
func TestMoving(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	cases := map[string]struct {
		why  string
		do   func(name string)
		want []string
	}{
		"nothing": {why: "nobody writes", do: func(string) {}},
		"created": {why: "one more, and newer", do: func(name string) {
			s.v1("IPReservation", "metadata: {name: new-"+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
		}, want: []string{"IPReservation"}},
		"changed": {why: "a newer version", do: func(name string) {
			s.patch(s.get(v1("IPReservation"), name), `{"metadata":{"labels":{"a":"b"}}}`)
		}, want: []string{"IPReservation"}},
		"deleted": {why: "no version is newer, but one is gone", do: func(name string) {
			s.remove(s.get(v1("IPReservation"), name))
		}, want: []string{"IPReservation"}},
		"replaced": {why: "there are as many as before", do: func(name string) {
			s.remove(s.get(v1("IPReservation"), name))
			s.v1("IPReservation", "metadata: {name: other-"+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
		}, want: []string{"IPReservation"}},
		"v3": {why: "v3 is not v1", do: func(name string) {
			s.v3("IPReservation", "metadata: {name: new-"+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
			kinds := resources.Default().All()
			if err := s.copier.Snapshot.Take(t.Context(), kinds); err != nil {
				t.Fatal(err)
			}
			tc.do(name)
			for when, want := range [][]string{tc.want, nil} {
				moving, err := s.copier.ChangedSince(t.Context(), kinds)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, kind := range moving {
					got = append(got, kind.Name())
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("look %d: %s (-want +got):\n%s", when, tc.why, diff)
				}
			}
		})
	}
}

// A frozen Copy goes on with the lists that proved v1 to be still. A Verify finds what was written all the
// same, and the next lists bring it.
func TestFrozenLists(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	for _, name := range []string{"a", "b"} {
		s.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	}
	ledger := copier.NewEqualityCache()
	s.copier = copier.New(resources.Default(), live.Client, owner, copier.WithEqualityCache(ledger), copier.UseSnapshot())
	s.wantCounts("without lists", s.mustCopy(), copier.Counts{Created: 2})
	look := func() {
		t.Helper()
		if _, err := s.copier.ChangedSince(t.Context(), resources.Default().All()); err != nil {
			t.Fatal(err)
		}
	}
	look()
	s.patch(s.get(v1("IPReservation"), "a"), `{"spec":{"reservedCIDRs":["11.0.0.0/8"]}}`)
	s.wantCounts("behind the back of the lists", s.mustCopy(), copier.Counts{Kept: 2})
	s.wantDifferent("a")
	look()
	s.wantCounts("with new lists", s.mustCopy(), copier.Counts{Kept: 1, Updated: 1})
	s.wantVerified()
	found, err := s.copier.OwnedV1(t.Context())
	if err != nil || len(found) != 0 {
		t.Errorf("%v refer to an owner (%v), want none", found, err)
	}
	tier := s.v1("Tier", "metadata: {name: security}\nspec: {order: 5}")
	s.v1("GlobalNetworkPolicy", owned("security.p", "crd.projectcalico.org/v1", "Tier", "security", tier)+"spec: {tier: security, selector: all()}")
	look()
	if found, err = s.copier.OwnedV1(t.Context()); err != nil || len(found) != 1 || found[0].Name != "security.p" {
		t.Errorf("%v refer to an owner (%v), want the policy", found, err)
	}
}

// Under the lock nothing is read that cannot have changed: a kind that neither side had when it was looked at last.
func TestFrozenCopyListsNoEmptyKind(t *testing.T) {
	var mu sync.Mutex
	listed := map[string]bool{}
	funcs := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		mu.Lock()
		defer mu.Unlock()
		listed[strings.TrimSuffix(list.GetObjectKind().GroupVersionKind().Kind, "List")] = true
		return c.List(ctx, list, opts...)
	}}
	s := newScene(t, interceptor.Funcs{})
	s.v1("IPReservation", "metadata: {name: a}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	s.v3("BGPFilter", "metadata: {name: only-in-v3}\nspec: {}")
	s.copier = copier.New(resources.Default(), interceptor.NewClient(live.Client, funcs), owner,
		copier.WithEqualityCache(copier.NewEqualityCache()), copier.UseSnapshot())
	everything := s.listedByCopy(listed)
	if len(everything) < len(resources.Default().Kinds())-1 {
		t.Errorf("a first Copy has listed %v only", everything)
	}
	if _, err := s.copier.ChangedSince(t.Context(), resources.Default().All()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"BGPFilter", "IPReservation"}, s.listedByCopy(listed)); diff != "" {
		t.Errorf("what a Copy lists after that (-want +got):\n%s", diff)
	}
}

// listedByCopy are the kinds that a Copy lists, as listed notes them.
func (s *scene) listedByCopy(listed map[string]bool) []string {
	s.Helper()
	clear(listed)
	s.mustCopy()
	delete(listed, "Tier") // of which a cluster may have its own
	return slices.Sorted(maps.Keys(listed))
}
