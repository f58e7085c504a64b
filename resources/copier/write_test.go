package copier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// immutable refuses to change the cidr of a pool, as a rule of its CRD does, and to create one with a cidr that
// is in bad.
func immutable(w *world, bad string) interceptor.Funcs {
	invalid := func(obj client.Object) error {
		return apierrs.NewInvalid(schema.GroupKind{Kind: "IPPool"}, obj.GetName(), field.ErrorList{field.Invalid(field.NewPath("spec", "cidr"), nil, "is immutable")})
	}
	cidr := func(obj client.Object) string {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		w.must(err)
		out, _, _ := unstructured.NestedString(u, "spec", "cidr")
		return out
	}
	return interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if now := w.get(kindOf(w.T, "IPPool").V3GVK(), obj.GetName()); now != nil && cidr(obj) != "" && cidr(obj) != cidr(now) {
				return invalid(obj)
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if cidr(obj) == bad {
				return invalid(obj)
			}
			return c.Create(ctx, obj, opts...)
		},
	}
}

// A pool that is deleted and created anew in v1 may have what no update may change. Only our own copy of what
// it was is in the way then.
func TestWhatIsImmutableIsCreatedAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		why      string
		edit     string // of the copy
		forget   bool   // the copy is not ours
		bad      string
		counts   Counts
		rejected int
		conflict string // the first field of the conflict
		cidr     string // of v3 in the end
	}{
		"our copy":  {why: "nobody else has a part in it", counts: Counts{Created: 1}, cidr: "11.0.0.0/8"},
		"finalizer": {why: "a copy that goes is no pool that goes: nobody does the work of a finalizer for it", edit: `{"metadata":{"finalizers":["projectcalico.org/ippool-finalizer"]}}`, counts: Counts{Created: 1}, cidr: "11.0.0.0/8"},
		"edited": {why: "what somebody has written there is his", edit: `{"metadata":{"labels":{"his":"own"}}}`, counts: Counts{Conflicts: 1}, cidr: "10.0.0.0/8",
			conflict: `Edited spec.cidr: "11.0.0.0/8" in v1, "10.0.0.0/8" in v3, which cannot be changed: delete the v3 object, and it is copied again`},
		"not ours":        {why: "a person says which one is right", forget: true, counts: Counts{Conflicts: 1}, cidr: "10.0.0.0/8", conflict: `Unmanaged spec.cidr: "11.0.0.0/8" in v1, "10.0.0.0/8" in v3`},
		"refused as well": {why: "a copy is not removed for one that v3 does not take", bad: "11.0.0.0/8", counts: Counts{Rejected: 1}, rejected: 1, cidr: "10.0.0.0/8"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pool := kindOf(t, "IPPool")
			w.v1("IPPool", "metadata: {name: pool}\nspec: {cidr: 10.0.0.0/8, blockSize: 26}")
			c := w.copier(immutable(w, tc.bad))
			w.mustCopy(c)
			w.must(w.client.Delete(t.Context(), w.get(pool.V1GVK(), "pool")))
			w.v1("IPPool", "metadata: {name: pool}\nspec: {cidr: 11.0.0.0/8, blockSize: 26}")
			if tc.edit != "" {
				w.patch(w.get(pool.V3GVK(), "pool"), tc.edit)
			}
			if tc.forget {
				_, err := c.RemoveMigrationAnnotations(t.Context())
				w.must(err)
			}
			tc.counts.Total, tc.counts.Done = 1, 1
			result := w.mustCopy(c)
			if diff := cmp.Diff(tc.counts, result.Counts); diff != "" || len(result.Rejected) != tc.rejected {
				t.Errorf("%s; rejected %v, counts (-want +got):\n%s", tc.why, result.Rejected, diff)
			}
			for when, conflicts := range map[string][]Conflict{"copy": result.Conflicts, "verify": w.mustVerify(c).Different} {
				if got := firstForPerson(conflicts); got != tc.conflict {
					t.Errorf("%s says %q, want %q", when, got, tc.conflict)
				}
			}
			live := w.get(pool.V3GVK(), "pool")
			if live == nil {
				t.Fatal("the pool is gone from v3")
			}
			if got, _, _ := unstructured.NestedString(live.Object, "spec", "cidr"); got != tc.cidr {
				t.Errorf("v3 has %s, want %s: %s", got, tc.cidr, tc.why)
			}
			if tc.rejected == 0 && tc.conflict == "" {
				w.wantVerified(c)
			}
		})
	}
}

// Where a dry run is refused, nothing tells before the write that a field cannot change. What somebody else has written in
// the copy keeps it from being deleted then, too.
func TestAnEditedCopyStaysWhereNoDryRunIsAllowed(t *testing.T) {
	w := newWorld(t)
	pool := kindOf(t, "IPPool")
	w.v1("IPPool", "metadata: {name: pool}\nspec: {cidr: 10.0.0.0/8, blockSize: 26}")
	faults := immutable(w, "")
	refused := faults.Patch
	faults.Patch = func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if slices.Contains(opts, client.PatchOption(client.DryRunAll)) {
			return apierrs.NewForbidden(schema.GroupResource{Resource: "ippools"}, obj.GetName(), errors.New("this webhook knows no dry run"))
		}
		return refused(ctx, c, obj, patch, opts...)
	}
	c := w.copier(faults)
	w.mustCopy(c)
	w.must(w.client.Delete(t.Context(), w.get(pool.V1GVK(), "pool")))
	w.v1("IPPool", "metadata: {name: pool}\nspec: {cidr: 11.0.0.0/8, blockSize: 26}")
	w.patch(w.get(pool.V3GVK(), "pool"), `{"metadata":{"labels":{"his":"own"}}}`)
	result := w.mustCopy(c)
	if live := w.get(pool.V3GVK(), "pool"); live == nil || live.GetLabels()["his"] != "own" || len(result.Rejected) != 1 {
		t.Errorf("rejected %v, v3 has %v: want the edited copy as it was, and the object named", result.Rejected, live)
	}
}

// What a dry run meets that is not the object's fault is an error, and no object is rejected for it.
func TestServersFaultInADryRunIsAnError(t *testing.T) {
	w := newWorld(t)
	pool := kindOf(t, "IPPool")
	w.v1("IPPool", "metadata: {name: pool}\nspec: {cidr: 10.0.0.0/8, blockSize: 26}")
	faults := immutable(w, "")
	w.mustCopy(w.copier(faults))
	w.must(w.client.Delete(t.Context(), w.get(pool.V1GVK(), "pool")))
	w.v1("IPPool", "metadata: {name: pool}\nspec: {cidr: 11.0.0.0/8, blockSize: 26}")
	for name, tc := range map[string]struct {
		why string
		do  func(*Copier) ([]resources.Problem, error)
	}{
		"a plan": {why: "the object may be taken", do: func(c *Copier) ([]resources.Problem, error) {
			plan, err := c.Plan(t.Context(), false)
			return plan.Problems, err
		}},
		"a copy to be made anew": {why: "what v1 has may be created", do: func(c *Copier) ([]resources.Problem, error) {
			result, err := c.Copy(t.Context(), nil)
			return result.Rejected, err
		}},
	} {
		faults.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrs.NewUnauthorized("no")
		}
		problems, err := tc.do(w.copier(faults, AskServer()))
		if !apierrs.IsUnauthorized(err) || len(problems) > 0 {
			t.Errorf("%s: error %v, problems %v, want the error: %s", name, err, problems, tc.why)
		}
	}
}

// firstForPerson is the first conflict, if a person has to end it.
func firstForPerson(conflicts []Conflict) string {
	if len(conflicts) == 0 || !conflicts[0].ForPerson() {
		return ""
	}
	return fmt.Sprint(conflicts[0].Cause, " ", conflicts[0].Fields[0])
}

// What nobody may delete stays ours, whatever is refused.
func TestWhatIsUndeletableIsNotCreatedAnew(t *testing.T) {
	w := newWorld(t)
	w.v1("Tier", "metadata: {name: default}\nspec: {order: 5}")
	c := w.copier(interceptor.Funcs{})
	w.mustCopy(c)
	w.patch(w.get(kindOf(t, "Tier").V1GVK(), "default"), `{"spec":{"order":6}}`)
	refusing := w.copier(interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
		return apierrs.NewInvalid(schema.GroupKind{Kind: "Tier"}, obj.GetName(), nil)
	}})
	if result := w.mustCopy(refusing); len(result.Rejected) != 1 {
		t.Errorf("%+v, want the tier rejected", result.Counts)
	}
	if live := w.get(kindOf(t, "Tier").V3GVK(), "default"); live == nil || !c.me.has(live) {
		t.Errorf("the tier is not our copy any more: %v", live)
	}
}

// A status that nobody but us has written in v3 follows v1, until a controller of v3 writes it.
func TestAStatusFollowsV1(t *testing.T) {
	const status = `{"status":{"conditions":[{"type":"Allocatable","status":"%s"}]}}`
	w := newWorld(t)
	kind := kindOf(t, "IPPool")
	for _, name := range []string{"copied", "written", "dropped"} {
		w.v1("IPPool", "metadata: {name: "+name+"}\nspec: {cidr: 10.0.0.0/8}")
		w.patchStatus(w.get(kind.V1GVK(), name), "calico", `{"status":{"old":"field","conditions":[{"type":"Allocatable","status":"True"}]}}`)
	}
	c := w.copier(interceptor.Funcs{}, WithEqualityCache(NewEqualityCache()))
	w.mustCopy(c)
	w.patchStatus(w.get(kind.V3GVK(), "written"), "calico", fmt.Sprintf(status, "Unknown"))
	for _, name := range []string{"copied", "written"} {
		w.patchStatus(w.get(kind.V1GVK(), name), "calico", fmt.Sprintf(status, "False"))
	}
	w.patchStatus(w.get(kind.V1GVK(), "dropped"), "calico", `{"status":{"old":null}}`)
	named := map[string]string{}
	for _, d := range w.mustVerify(c).Different {
		named[d.Name] = fmt.Sprint(d.Cause, " ", d.Fields)
	}
	if diff := cmp.Diff(map[string]string{
		"copied":  `Stale [status.conditions[0].status: "False" in v1, "True" in v3]`,
		"dropped": `Stale [status.old: (absent) in v1, "field" in v3]`,
	}, named); diff != "" {
		t.Errorf("what Verify says before they follow (-want +got):\n%s", diff)
	}
	for _, want := range []Counts{{Updated: 2, Kept: 1}, {Kept: 3}} {
		want.Total, want.Done = 3, 3
		if diff := cmp.Diff(want, w.mustCopy(c).Counts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		w.wantVerified(c)
	}
	w.patchStatus(w.get(kind.V1GVK(), "dropped"), "calico", `{"status":null}`)
	w.mustCopy(c)
	w.wantVerified(c)
	got := map[string]any{}
	for _, name := range []string{"copied", "written", "dropped"} {
		got[name] = w.get(kind.V3GVK(), name).Object["status"]
	}
	condition := func(status string) []any { return []any{map[string]any{"type": "Allocatable", "status": status}} }
	want := map[string]any{
		"copied":  map[string]any{"old": "field", "conditions": condition("False")},
		"written": map[string]any{"old": "field", "conditions": condition("Unknown")},
		"dropped": nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

// A repair keeps the owners in Calico that a copy has. It may not say that the copy is complete while they are
// others than in v1: that would look like somebody's deed, and the migration would wait for a person.
func TestARepairLeavesOwnersToRemapOwners(t *testing.T) {
	const owned = `{"metadata":{"ownerReferences":[{"apiVersion":"crd.projectcalico.org/v1","kind":"Tier","name":"security","uid":"%s"}]}}`
	for name, tc := range map[string]struct {
		why    string
		before string // what v1 becomes before the first copy, and after it
		after  string
		late   string // and before RemapOwners; empty: nothing
	}{
		"withheld":      {why: "the copy ahead has no owners, and v1 changes before the lock", before: owned, after: `{"spec":{"order":7}}`},
		"owner removed": {why: "v1 has let go of its owner, and nobody has changed the copy", before: owned, after: `{"metadata":{"ownerReferences":null},"spec":{"order":7}}`},
		"owner added":   {why: "the same", before: `{}`, after: owned},
		"changed after the copy": {why: "what the copy lacks was never compared, and nobody has taken it away",
			before: owned, after: `{}`, late: `{"spec":{"order":7}}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			policy := kindOf(t, "GlobalNetworkPolicy").V1GVK()
			tier := w.v1("Tier", "metadata: {name: security}\nspec: {order: 5}")
			w.v1("GlobalNetworkPolicy", "metadata: {name: security.p}\nspec: {tier: security, selector: all()}")
			change := func(text string) {
				w.patch(w.get(policy, "security.p"), strings.ReplaceAll(text, "%s", string(tier.GetUID())))
			}
			change(tc.before)
			ahead, locked := w.copier(interceptor.Funcs{}, DeferOwners()), w.copier(interceptor.Funcs{})
			w.mustCopy(ahead)
			if name == "owner removed" {
				_, err := locked.RemapOwners(t.Context())
				w.must(err)
			}
			change(tc.after)
			for range 2 { // again, as after a crash
				w.mustCopy(locked)
			}
			if tc.late != "" {
				change(tc.late)
			}
			remapped, err := locked.RemapOwners(t.Context())
			w.must(err)
			if diff := cmp.Diff(RemapResult{Patched: 1}, remapped); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			if tc.late != "" {
				w.mustCopy(locked)
			}
			w.wantVerified(locked)
		})
	}
}

// What is deleted with its owner is found by it: a late write of an object whose owner is gone by now takes no owner off
// its copy. There is no garbage collector here that would be faster.
func TestALateWriteKeepsAnOwnerThatIsGone(t *testing.T) {
	w := newWorld(t)
	set, tier := kindOf(t, "GlobalNetworkSet"), kindOf(t, "Tier")
	owner := w.v1("Tier", "metadata: {name: t}\nspec: {order: 5}")
	w.v1("GlobalNetworkSet", "metadata: {name: a, ownerReferences: [{apiVersion: crd.projectcalico.org/v1, kind: Tier, name: t, uid: "+string(owner.GetUID())+"}]}\nspec: {nets: [10.0.0.0/16]}")
	c := w.copier(interceptor.Funcs{})
	w.mustCopy(c)
	_, err := c.RemapOwners(t.Context())
	w.must(err)
	before := w.get(set.V3GVK(), "a")
	newest := max(parseVersion(before.GetResourceVersion()), parseVersion(w.get(tier.V3GVK(), "t").GetResourceVersion()))
	since := &migrationv1.Verified{At: metav1.Now(), Revision: int64(newest), Digests: migrationv1.JoinDigests(w.mustVerify(c).Verified())}
	w.patch(w.get(set.V1GVK(), "a"), `{"spec":{"nets":["10.1.0.0/16"]}}`)
	w.must(w.client.Delete(t.Context(), w.get(tier.V1GVK(), "t")))
	late, err := c.BringLate(t.Context(), since)
	w.must(err)
	if diff := cmp.Diff([]string{"GlobalNetworkSet a: updated", "Tier t: deleted"}, late.Brought); diff != "" {
		t.Errorf("brought (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.GetOwnerReferences(), w.get(set.V3GVK(), "a").GetOwnerReferences()); diff != "" || len(before.GetOwnerReferences()) != 1 {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}
