package copier

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// Whatever is written to v1 is seen, in the kind that it was written to, and once.
func TestMoving(t *testing.T) {
	w := newWorld(t)
	c := w.copier(interceptor.Funcs{}, WithEqualityCache(NewEqualityCache()))
	cases := map[string]struct {
		why  string
		do   func(name string)
		want []string
	}{
		"nothing": {why: "nobody writes", do: func(string) {}},
		"created": {why: "one more, and newer", do: func(name string) {
			w.v1("IPReservation", "metadata: {name: new-"+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
		}, want: []string{"IPReservation"}},
		"changed": {why: "a newer version", do: func(name string) {
			w.patch(named(v1("IPReservation"), name), `{"metadata":{"labels":{"a":"b"}}}`)
		}, want: []string{"IPReservation"}},
		"deleted": {why: "no version is newer, but one is gone", do: func(name string) {
			w.remove(named(v1("IPReservation"), name))
		}, want: []string{"IPReservation"}},
		"replaced": {why: "there are as many as before", do: func(name string) {
			w.remove(named(v1("IPReservation"), name))
			w.v1("IPReservation", "metadata: {name: other-"+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
		}, want: []string{"IPReservation"}},
		"v3": {why: "v3 is not v1", do: func(name string) {
			w.v3("IPReservation", "metadata: {name: new-"+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
			kinds := resources.Default().All()
			w.must(c.Snapshot.Take(t.Context(), kinds))
			tc.do(name)
			for when, want := range [][]string{tc.want, nil} {
				moving, err := c.ChangedSince(t.Context(), kinds)
				w.must(err)
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
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		w.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	}
	c := w.copier(interceptor.Funcs{}, WithEqualityCache(NewEqualityCache()), UseSnapshot())
	w.wantCounts("without lists", w.mustCopy(c), Counts{Created: 2})
	look := func() {
		t.Helper()
		_, err := c.ChangedSince(t.Context(), resources.Default().All())
		w.must(err)
	}
	look()
	w.patch(named(v1("IPReservation"), "a"), `{"spec":{"reservedCIDRs":["11.0.0.0/8"]}}`)
	w.wantCounts("behind the back of the lists", w.mustCopy(c), Counts{Kept: 2})
	w.wantSaid("read again", w.mustVerify(c).Different, map[string]string{"a": "Stale spec.reservedCIDRs[0]"})
	look()
	w.wantCounts("with new lists", w.mustCopy(c), Counts{Kept: 1, Updated: 1})
	w.wantVerified(c)
	found, err := c.OwnedV1(t.Context())
	if err != nil || len(found) != 0 {
		t.Errorf("%v refer to an owner (%v), want none", found, err)
	}
	tier := w.v1("Tier", "metadata: {name: security}\nspec: {order: 5}")
	w.v1("GlobalNetworkPolicy", owned("security.p", "crd.projectcalico.org/v1", "Tier", "security", tier.GetUID())+"spec: {tier: security, selector: all()}")
	look()
	if found, err = c.OwnedV1(t.Context()); err != nil || len(found) != 1 || found[0].Name != "security.p" {
		t.Errorf("%v refer to an owner (%v), want the policy", found, err)
	}
}

// Under the lock nothing is read that cannot have changed: a kind that neither side had when it was looked at last.
func TestFrozenCopyListsNoEmptyKind(t *testing.T) {
	w := newWorld(t)
	listed := map[string]bool{}
	w.v1("IPReservation", "metadata: {name: a}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	w.v3("BGPFilter", "metadata: {name: only-in-v3}\nspec: {}")
	c := w.copier(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		w.mu.Lock()
		listed[strings.TrimSuffix(list.GetObjectKind().GroupVersionKind().Kind, "List")] = true
		w.mu.Unlock()
		return c.List(ctx, list, opts...)
	}}, WithEqualityCache(NewEqualityCache()), UseSnapshot())
	w.mustCopy(c)
	if len(listed) < len(resources.Default().Kinds()) {
		t.Errorf("a first Copy has listed %v only", listed)
	}
	_, err := c.ChangedSince(t.Context(), resources.Default().All())
	w.must(err)
	clear(listed)
	w.mustCopy(c)
	if diff := cmp.Diff(map[string]bool{"BGPFilter": true, "IPReservation": true}, listed); diff != "" {
		t.Errorf("what a Copy lists after that (-want +got):\n%s", diff)
	}
}

// What was verified is what v1 holds, until v1 changes; v3 and its CRDs have no say in it.
func TestDigestsFollowV1(t *testing.T) {
	w := newWorld(t)
	c := w.copier(interceptor.Funcs{}, WithEqualityCache(NewEqualityCache()))
	for _, name := range []string{"a", "b"} {
		w.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	}
	w.v1("IPPool", "metadata: {name: pool}\n"+poolSpec)
	w.mustCopy(c)
	agree := func() {
		t.Helper()
		now, err := c.V1Digests(t.Context(), nil)
		w.must(err)
		for _, was := range w.mustVerify(c).Verified() {
			if diff := cmp.Diff(V1Kind{VerifiedKind: was, Listed: was.Objects}, now[was.Kind]); diff != "" {
				t.Errorf("Verify and V1Digests disagree (-Verify +V1Digests):\n%s", diff)
			}
		}
	}
	before := w.mustVerify(c).Verified()
	agree()
	w.setStatus(named(v1("IPPool"), "pool"), "False") // moves on by itself
	w.patch(named(v3("IPReservation"), "a"), `{"spec":{"reservedCIDRs":["11.0.0.0/8"]}}`)
	w.patch(named(v1("IPReservation"), "b"), `{"metadata":{"annotations":{"x":"y"}}}`)
	var changed []string
	for i, after := range w.mustVerify(c).Verified() {
		if after != before[i] {
			changed = append(changed, fmt.Sprintf("%s %d %v", after.Kind, after.Objects, after.Digest != before[i].Digest))
		}
	}
	if diff := cmp.Diff([]string{"IPReservation 2 true"}, changed); diff != "" {
		t.Errorf("digests that changed (-want +got):\n%s", diff)
	}
	agree()
}

// What the copies add is known from a page of each kind.
func TestBytes(t *testing.T) {
	w := newWorld(t)
	w.v1("GlobalNetworkSet", "metadata: {name: small}\nspec: {nets: [192.0.2.0/24]}")
	small, err := w.copier(interceptor.Funcs{}).Bytes(t.Context())
	w.must(err)
	w.v1("GlobalNetworkSet", "metadata: {name: large, annotations: {filler: "+strings.Repeat("x", 100000)+"}}\nspec: {nets: [192.0.2.0/24]}")
	both, err := w.copier(interceptor.Funcs{}).Bytes(t.Context())
	w.must(err)
	if small < 500 || small > 3000 || both < 250000 || both > 260000 {
		t.Errorf("%d and %d bytes", small, both)
	}
}

// Of each v1 object it is known whether it was written since a verification, whatever has gone meanwhile.
func TestWhatWasWrittenSinceAVerification(t *testing.T) {
	w := newWorld(t)
	kind := kindOf(t, "NetworkSet")
	made := map[string]*Meta{}
	for _, name := range []string{"kept", "gone", "edited"} {
		obj := w.v1("NetworkSet", "metadata: {namespace: shop, name: "+name+", creationTimestamp: \"2026-01-01T00:00:00Z\"}\nspec: {nets: [10.0.0.0/8]}")
		made[name] = metadataOf(obj)
	}
	c := w.copier(interceptor.Funcs{})
	since := &migrationv1.Verified{At: metav1.NewTime(time.Now().Add(time.Hour)), Revision: int64(parseVersion(made["edited"].ResourceVersion))}
	w.must(w.client.Delete(t.Context(), made["gone"]))
	w.patch(made["edited"], `{"metadata":{"labels":{"a":"b"}}}`)
	w.v1("NetworkSet", "metadata: {namespace: shop, name: late, creationTimestamp: \"2026-01-01T00:00:00Z\"}\nspec: {nets: [10.0.0.0/8]}")
	for why, tc := range map[string]struct {
		since *migrationv1.Verified
		want  []string
	}{
		"some were written":             {since: since, want: []string{"shop/edited", "shop/late"}},
		"nothing is known":              {since: &migrationv1.Verified{At: since.At}},
		"all were made anew, elsewhere": {since: &migrationv1.Verified{At: metav1.NewTime(time.Unix(-1, 0)), Revision: 1 << 40}, want: []string{"shop/edited", "shop/kept", "shop/late"}},
	} {
		held, err := c.V1Digests(t.Context(), tc.since)
		w.must(err)
		if diff := cmp.Diff(fmt.Sprint(tc.want), fmt.Sprint(held[kind.Name()].Since)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", why, diff)
		}
	}
}
