package copier_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// Through a version that the API server of Calico does not know, no copy may refer to an owner; after the
// cut-over all get theirs.
func TestWithheldOwners(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	tier := s.v1("Tier", "metadata: {name: security}\nspec: {order: 5, defaultAction: Deny}")
	s.v1("GlobalNetworkPolicy", owned("security.p", "crd.projectcalico.org/v1", "Tier", "security", tier)+"spec: {tier: security, selector: all()}")
	early := copier.New(resources.Default(), live.Client, owner, copier.DeferOwners())
	for _, when := range []string{"copied", "copied again"} {
		result, err := early.Copy(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if refs := s.get(v3("GlobalNetworkPolicy"), "security.p").GetOwnerReferences(); len(refs) != 0 || result.Deferred != 1 {
			t.Errorf("%s: owners %v, %d withheld; want none and the policy", when, refs, result.Deferred)
		}
	}
	compared, err := early.Compare(t.Context())
	if err != nil || len(compared.Conflicts) != 0 {
		t.Errorf("conflicts %v, %v: nobody has taken an owner away", compared.Conflicts, err)
	}
	if n := s.mustCopy().Changed(); n != 0 {
		t.Errorf("the copy after the cut-over has changed %d objects, want none: owners are patched in", n)
	}
	s.wantRemap(1)
	s.wantOwner(s.get(v3("GlobalNetworkPolicy"), "security.p"), s.get(v3("Tier"), "security"))
	s.wantVerified()
}

// An owner that somebody takes off a copy is his deed, also where the v1 object has changed since it was copied
// ahead: by us, who took its owners off under the lock.
func TestOwnersTakenOffAreAConflict(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	tier := s.v1("Tier", "metadata: {name: security}\nspec: {order: 5, defaultAction: Deny}")
	s.v1("GlobalNetworkPolicy", owned("security.p", "crd.projectcalico.org/v1", "Tier", "security", tier)+"spec: {tier: security, selector: all()}")
	as, ledger := owner, copier.NewEqualityCache()
	if _, err := copier.New(resources.Default(), live.Client, as, copier.WithEqualityCache(ledger), copier.DeferOwners()).Copy(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s.copier = copier.New(resources.Default(), live.Client, as, copier.WithEqualityCache(ledger), copier.UseSnapshot())
	if err := s.copier.Snapshot.Take(t.Context(), resources.Default().Kinds()); err != nil {
		t.Fatal(err)
	}
	if moving, err := s.copier.ChangedSince(t.Context(), resources.Default().Kinds()); err != nil || len(moving) > 0 {
		t.Fatalf("moving %v, %v", moving, err)
	}
	refs, err := s.copier.OwnedV1(t.Context())
	if err != nil || len(refs) != 1 {
		t.Fatalf("%d with owners, %v", len(refs), err)
	}
	s.copier.Invalidate(refs)
	if err := s.copier.EditAll(t.Context(), refs, func(obj *copier.Meta) error { return resources.DetachOwners(obj, owner) }); err != nil {
		t.Fatal(err)
	}
	if n := s.mustCopy().Changed(); n != 0 {
		t.Errorf("the copy under the lock has changed %d objects, want none", n)
	}
	s.wantRemap(1)
	s.wantVerified()
	s.patch(s.get(v3("GlobalNetworkPolicy"), "security.p"), `{"metadata":{"ownerReferences":null}}`)
	for name, look := range map[string]*copier.Copier{"with the ledger": s.copier, "without": copier.New(resources.Default(), live.Client, as)} {
		compared, err := look.Compare(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.wantFindings(name, compared.Conflicts, map[string]string{"security.p": "Edited metadata.ownerReferences"})
	}
}

// Of a migration that is gone, which somebody has taken the finalizer off, there may be copies that never got
// their owners. They are nobody's now: the next one finds them before anything is locked.
func TestCopiesOfAMigrationThatIsGone(t *testing.T) {
	cases := map[string]struct {
		why      string
		detached bool // the gone one had taken the owners off v1
	}{
		"gone before the lock": {why: "v1 is as it was"},
		"gone under the lock":  {why: "v1 bears what its owners were", detached: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, interceptor.Funcs{})
			tier := s.v1("Tier", "metadata: {name: security}\nspec: {order: 5, defaultAction: Deny}")
			s.v1("GlobalNetworkPolicy", owned("security.p", "crd.projectcalico.org/v1", "Tier", "security", tier)+"spec: {tier: security, selector: all()}")
			gone := copier.New(resources.Default(), live.Client, "gone", copier.DeferOwners())
			if _, err := gone.Copy(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if tc.detached {
				refs, err := gone.OwnedV1(t.Context())
				if err != nil || len(refs) != 1 {
					t.Fatalf("%d with owners, %v", len(refs), err)
				}
				if err := gone.EditAll(t.Context(), refs, func(obj *copier.Meta) error { return resources.DetachOwners(obj, "gone") }); err != nil {
					t.Fatal(err)
				}
			}
			next := copier.New(resources.Default(), live.Client, owner, copier.DeferOwners())
			want := map[string]string{"security.p": "Unmanaged metadata.ownerReferences"}
			compared, err := next.Compare(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.wantFindings("before the copy, where "+tc.why, compared.Conflicts, want)
			result, err := next.Copy(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			s.wantFindings("by the copy, where "+tc.why, result.Conflicts, want)
			if result.AlreadyEqual != 1 || result.Counts.Conflicts != 1 || result.Deferred != 0 {
				t.Errorf("%d adopted, %d in conflict, %d with owners withheld; want the tier, the policy, and none", result.AlreadyEqual, result.Counts.Conflicts, result.Deferred)
			}
		})
	}
}
