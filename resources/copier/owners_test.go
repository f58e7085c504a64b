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
	early := copier.New(resources.Default(), live.Client, copier.Owner{Name: "v1-to-v3", UID: owner}, copier.WithholdOwners())
	for _, when := range []string{"copied", "copied again"} {
		result, err := early.Copy(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if refs := s.get(v3("GlobalNetworkPolicy"), "security.p").GetOwnerReferences(); len(refs) != 0 || result.Withheld != 1 {
			t.Errorf("%s: owners %v, %d withheld; want none and the policy", when, refs, result.Withheld)
		}
	}
	people, err := early.Conflicts(t.Context())
	if err != nil || len(people) != 0 {
		t.Errorf("conflicts %v, %v: nobody has taken an owner away", people, err)
	}
	if n := s.mustCopy().Changed(); n != 0 {
		t.Errorf("the copy after the cut-over has changed %d objects, want none: owners are patched in", n)
	}
	s.wantRemap(1)
	s.wantOwner(s.get(v3("GlobalNetworkPolicy"), "security.p"), s.get(v3("Tier"), "security"))
	s.wantVerified()
}
