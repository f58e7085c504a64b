package copier

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// What the API server makes at its first sight of a kind it would make for each object that comes meanwhile; the
// others go side by side.
func TestTheFirstOfAKindGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		w.wantCounts("all", w.mustCopy(c), Counts{Created: each * int64(len(kinds))})
		if diff := cmp.Diff(map[string]int{kinds[0]: each - 1, kinds[1]: each - 1}, most); diff != "" {
			t.Errorf("in flight at a time: the others wait for nothing (-want +got):\n%s", diff)
		}
	})
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
			w.remove(named(kind.V1GVK(), "going"))
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
		w.remove(named(v1(of[0]), of[1]))
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

func TestConflictsAreReportedAndOthersGoOn(t *testing.T) {
	w := newWorld(t)
	c := w.copier(interceptor.Funcs{}, WithEqualityCache(NewEqualityCache()))
	for _, name := range []string{"equal", "theirs", "ours"} {
		w.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	}
	theirs := w.v3("IPReservation", "metadata: {name: theirs}\nspec: {reservedCIDRs: [11.0.0.0/8]}")
	equal := w.v3("IPReservation", "metadata: {name: equal}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	want := []Conflict{{Kind: "IPReservation", Name: "theirs", Cause: CauseUnmanaged, Fields: []resources.FieldDiff{
		{Path: "spec.reservedCIDRs[0]", Want: `"10.0.0.0/8"`, Have: `"11.0.0.0/8"`},
	}}}

	first := w.mustCopy(c)
	w.wantCounts("copy", first, Counts{Created: 1, AlreadyEqual: 1, Conflicts: 1})
	if diff := cmp.Diff([][]Conflict{want, want}, [][]Conflict{first.Conflicts, w.mustCompare(c).Conflicts}); diff != "" {
		t.Errorf("conflicts of the copy and found again (-want +got):\n%s", diff)
	}
	w.patch(theirs, `{"spec":{"reservedCIDRs":["10.0.0.0/8"]}}`)
	w.wantVerified(c)
	w.mustDelete(c)
	for _, obj := range []*unstructured.Unstructured{theirs, equal} {
		if got := w.get(v3("IPReservation"), obj.GetName()); got.GetUID() != obj.GetUID() {
			t.Errorf("%s, which is not ours, is another object now", obj.GetName())
		}
	}
	if n := w.count(v3("IPReservation")); n != 2 {
		t.Errorf("%d objects are left, want the two that are not ours", n)
	}
}

// Where v3 has nothing there is nothing to be in conflict with: before the first copy, that is nearly everywhere.
func TestConflictsReadsNoV1WhereV3IsEmpty(t *testing.T) {
	var read atomic.Int32
	w := newWorld(t)
	c := w.copier(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if gvk := list.GetObjectKind().GroupVersionKind(); gvk.Group == resources.V1Group && gvk.Kind == "IPReservationList" {
			read.Add(1)
		}
		return c.List(ctx, list, opts...)
	}}, WithEqualityCache(NewEqualityCache()))
	w.v1("IPReservation", "metadata: {name: one}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	if found := w.mustCompare(c).Conflicts; len(found) != 0 || read.Load() != 0 {
		t.Errorf("%v, and %d lists of v1; want none, nothing is in v3", found, read.Load())
	}
	w.v3("IPReservation", "metadata: {name: one}\nspec: {reservedCIDRs: [11.0.0.0/8]}")
	if found := w.mustCompare(c).Conflicts; len(found) != 1 || read.Load() == 0 {
		t.Errorf("%v, and %d lists of v1; want one conflict", found, read.Load())
	}
}

// Who was first in v1 is first in v3, whatever the names say.
func TestPoolsAreCreatedInOrder(t *testing.T) {
	w := newWorld(t)
	var order []string
	note := func(write string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		order = append(order, write)
	}
	c := w.copier(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			note(obj.GetName())
			return c.Create(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			note(obj.GetName() + " " + sub)
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
	for name, year := range map[string]string{"c-first": "2020", "b-second": "2021", "a-third": "2022", "d-third": "2022"} {
		w.v1("IPPool", "metadata: {name: "+name+`, annotations: {projectcalico.org/metadata: '{"creationTimestamp":"`+year+"-01-01T00:00:00Z\"}'}}\n"+poolSpec)
		w.setStatus(named(v1("IPPool"), name), "True")
	}
	w.mustCopy(c)
	want := []string{"c-first", "c-first status", "b-second", "b-second status", "a-third", "a-third status", "d-third", "d-third status"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// Admission that changes every copy must not keep a migration from converging.
func TestWhatAdmissionChangesIsNoConflict(t *testing.T) {
	audit := func(obj client.Object) {
		labels := obj.GetLabels() // a copy
		labels["audited"] = "yes"
		obj.SetLabels(labels)
	}
	for name, tc := range map[string]struct {
		why     string
		updates bool // are changed, too
	}{
		"always":      {why: "a repair would be changed in the same way", updates: true},
		"on creation": {why: "our own write brought the label, and another one of ours takes it away"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.copier(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					audit(obj)
					return c.Create(ctx, obj, opts...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if tc.updates {
						audit(obj)
					}
					return c.Patch(ctx, obj, patch, opts...)
				},
			}, WithEqualityCache(NewEqualityCache()))
			for i := range 5 {
				w.v1("GlobalNetworkSet", fmt.Sprintf("metadata: {name: set-%d, labels: {team: blue}}\nspec: {nets: [10.0.0.0/8]}", i))
			}
			w.wantCounts("copy", w.mustCopy(c), Counts{Created: 5})
			if got := w.get(v3("GlobalNetworkSet"), "set-0").GetLabels()["audited"]; got != "yes" {
				t.Fatalf("admission does nothing, the label is %q", got)
			}
			again := w.mustCopy(c) // as after a crash
			if len(again.Conflicts) != 0 || again.Kept+again.Updated != 5 {
				t.Errorf("%+v, conflicts %v: want none, %s", again.Counts, again.Conflicts, tc.why)
			}
			w.wantVerified(c)
			w.patch(named(v3("GlobalNetworkSet"), "set-1"), `{"spec":{"nets":["12.0.0.0/8"]}}`)
			w.wantSaid("somebody else's change is still found", w.mustVerify(c).Different, map[string]string{"set-1": "Edited spec.nets[0]"})
		})
	}
}

// The aggregated API server shows v1 itself under v3, with the UIDs turned round. Everything "is there already and equal"
// then: a copy that believes it would lose every object at clean-up.
func TestAMirrorIsNeverTakenForACopy(t *testing.T) {
	w := newWorld(t)
	tier := w.v1("Tier", "metadata: {name: security}\nspec: {order: 10}")
	shown, err := resources.ReverseUID(tier.GetUID())
	w.must(err)
	w.showAs = shown
	w.v3("Tier", "metadata: {name: security}\nspec: {order: 10, defaultAction: Deny}")
	c := w.copier(interceptor.Funcs{})
	_, copied := c.Copy(t.Context(), nil)
	_, verified := c.Verify(t.Context())
	for what, err := range map[string]error{"Copy": copied, "Verify": verified} {
		if err == nil || !strings.Contains(err.Error(), "shown by an aggregated API server") {
			t.Errorf("%s: %v; want an error that says who shows v3", what, err)
		}
	}
}
