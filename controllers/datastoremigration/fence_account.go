package datastoremigration

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/patch"
)

// fenceAccountKey is where the state has the account that the fence lets pass.
const fenceAccountKey = "fenceAccount"

// takeFenceOver makes the fence of this migration let this account pass, in place of the one that was on record: the
// manager was installed anew under another name, and goes on. In place, nobody else passes meanwhile. Any other
// difference is not ours to explain, and taken is false.
func (s *steps) takeFenceOver(ctx context.Context, sc *scope, have client.Object, part int, want client.Object) (taken bool, err error) {
	policy, is := have.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	before := sc.Saved(fenceAccountKey)
	if !is || before == "" || !samePart(policy, s.fenceFor(sc.Object, before, admissionregistrationv1.Fail)[part], false) {
		return false, nil
	}
	err = patch.MutateAndPatchSpec(ctx, s.client, policy, func(policy *admissionregistrationv1.ValidatingAdmissionPolicy) {
		policy.Spec = want.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec
	})
	if err != nil {
		return false, fmt.Errorf("let this account pass the fence, %s: %w", s.nameOf(policy), err)
	}
	return true, nil
}
