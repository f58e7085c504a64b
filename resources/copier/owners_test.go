package copier

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// owned is the metadata of a v1 object with a hidden owner.
func owned(name, apiVersion, kind, owner string, uid types.UID) string {
	return fmt.Sprintf("metadata:\n  name: %s\n  annotations:\n    projectcalico.org/metadata: "+
		`'{"ownerReferences":[{"apiVersion":"%s","kind":"%s","name":"%s","uid":"%s"}]}'`+"\n", name, apiVersion, kind, owner, uid)
}

// wantOwner fails unless the object has one owner, and has it by its UID in v3.
func (w *world) wantOwner(obj, owner *unstructured.Unstructured) {
	w.Helper()
	want := []metav1.OwnerReference{{APIVersion: "projectcalico.org/v3", Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}}
	if diff := cmp.Diff(want, obj.GetOwnerReferences()); diff != "" {
		w.Errorf("owners of %s (-want +got):\n%s", obj.GetName(), diff)
	}
}

// newOwnedWorld has a policy that its tier owns.
func newOwnedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	tier := w.v1("Tier", "metadata: {name: security}\nspec: {order: 5, defaultAction: Deny}")
	w.v1("GlobalNetworkPolicy", owned("security.p", "crd.projectcalico.org/v1", "Tier", "security", tier.GetUID())+"spec: {tier: security, selector: all()}")
	return w
}

// detach takes the owners off v1, which are the policy's, for one migration.
func (w *world) detach(c *Copier, by types.UID) {
	w.Helper()
	refs, err := c.OwnedV1(w.Context())
	if err != nil || len(refs) != 1 {
		w.Fatalf("%d with owners, %v", len(refs), err)
	}
	c.Invalidate(refs)
	w.must(c.EditAll(w.Context(), refs, func(obj *Meta) error { return resources.DetachOwners(obj, by) }))
}

// Through a version that the API server of Calico does not know, no copy may refer to an owner; after the
// cut-over all get theirs.
func TestWithheldOwners(t *testing.T) {
	w := newOwnedWorld(t)
	early, c := w.copier(interceptor.Funcs{}, DeferOwners()), w.copier(interceptor.Funcs{}, WithEqualityCache(NewEqualityCache()))
	for _, when := range []string{"copied", "copied again"} {
		deferred := w.mustCopy(early).Deferred
		if refs := w.get(v3("GlobalNetworkPolicy"), "security.p").GetOwnerReferences(); len(refs) != 0 || deferred != 1 {
			t.Errorf("%s: owners %v, %d withheld; want none and the policy", when, refs, deferred)
		}
	}
	w.wantSaid("nobody has taken an owner away", w.mustCompare(early).Conflicts, map[string]string{})
	if n := w.mustCopy(c).Changed(); n != 0 {
		t.Errorf("the copy after the cut-over has changed %d objects, want none: owners are patched in", n)
	}
	w.wantRemap(c, 1)
	w.wantOwner(w.get(v3("GlobalNetworkPolicy"), "security.p"), w.get(v3("Tier"), "security"))
	w.wantVerified(c)
}

// An owner that somebody takes off a copy is his deed, also where the v1 object has changed since it was copied
// ahead: by us, who took its owners off under the lock.
func TestOwnersTakenOffAreAConflict(t *testing.T) {
	w, ledger := newOwnedWorld(t), NewEqualityCache()
	w.mustCopy(w.copier(interceptor.Funcs{}, WithEqualityCache(ledger), DeferOwners()))
	c := w.copier(interceptor.Funcs{}, WithEqualityCache(ledger), UseSnapshot())
	w.must(c.Snapshot.Take(t.Context(), resources.Default().Kinds()))
	if moving, err := c.ChangedSince(t.Context(), resources.Default().Kinds()); err != nil || len(moving) > 0 {
		t.Fatalf("moving %v, %v", moving, err)
	}
	w.detach(c, me)
	if n := w.mustCopy(c).Changed(); n != 0 {
		t.Errorf("the copy under the lock has changed %d objects, want none", n)
	}
	w.wantRemap(c, 1)
	w.wantVerified(c)
	w.patch(named(v3("GlobalNetworkPolicy"), "security.p"), `{"metadata":{"ownerReferences":null}}`)
	for name, look := range map[string]*Copier{"with the ledger": c, "without": w.copier(interceptor.Funcs{})} {
		w.mustCopy(look)
		w.wantRemap(look, 0)
		w.wantSaid(name, w.mustCompare(look).Conflicts, map[string]string{"security.p": "Edited metadata.ownerReferences"})
	}
}

// Of a migration that is gone, which somebody has taken the finalizer off, there may be copies that never got
// their owners. They are nobody's now: the next one finds them before anything is locked.
func TestCopiesOfAMigrationThatIsGone(t *testing.T) {
	for name, detached := range map[string]bool{
		"gone before the lock, v1 is as it was":              false,
		"gone under the lock, v1 bears what its owners were": true,
	} {
		t.Run(name, func(t *testing.T) {
			w := newOwnedWorld(t)
			gone := New(resources.Default(), w.client, "gone", DeferOwners())
			w.mustCopy(gone)
			if detached {
				w.detach(gone, "gone")
			}
			next := w.copier(interceptor.Funcs{}, DeferOwners())
			want := map[string]string{"security.p": "Unmanaged metadata.ownerReferences"}
			w.wantSaid("before the copy", w.mustCompare(next).Conflicts, want)
			result := w.mustCopy(next)
			w.wantSaid("by the copy", result.Conflicts, want)
			w.wantCounts("the tier is adopted", result, Counts{AlreadyEqual: 1, Conflicts: 1})
			if result.Deferred != 0 {
				t.Errorf("owners of %d are withheld, want none", result.Deferred)
			}
		})
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
	}{
		"withheld":      {why: "the copy ahead has no owners, and v1 changes before the lock", before: owned, after: `{"spec":{"order":7}}`},
		"owner removed": {why: "v1 has let go of its owner, and nobody has changed the copy", before: owned, after: `{"metadata":{"ownerReferences":null},"spec":{"order":7}}`},
		"owner added":   {why: "the same", before: `{}`, after: owned},
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
			remapped, err := locked.RemapOwners(t.Context())
			w.must(err)
			if diff := cmp.Diff(RemapResult{Patched: 1}, remapped); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			w.wantVerified(locked)
		})
	}
}
