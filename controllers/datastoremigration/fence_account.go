package datastoremigration

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
)

// fenceAccountKey is where the state has the account that the fence lets pass.
const fenceAccountKey = "fenceAccount"

// takeFenceOver makes the fence of this migration let this account pass, in place of the one that was on record: the
// manager was installed anew under another name, and goes on. In place, nobody else passes meanwhile. The error waits
// until the API servers have heard of it. Any other difference is not ours to explain.
func (s *steps) takeFenceOver(ctx context.Context, sc *scope, have, want client.Object) error {
	policy, is := have.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	before := sc.Saved(fenceAccountKey)
	if !is || before == "" || !samePart(policy, fencePolicy(sc.Object, s.Registry.Lock().V1GVK(), before)) {
		return nil
	}
	err := patch.MutateAndPatchSpec(ctx, s.client, policy, func(policy *admissionregistrationv1.ValidatingAdmissionPolicy) {
		policy.Spec = want.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec
	})
	if err != nil {
		return fmt.Errorf("let this account pass the fence, %s: %w", s.nameOf(policy), err)
	}
	return &fsm.WaitError{After: fenceSettles, Message: fmt.Sprintf("the fence around v1 was made for the account %q of another installation; it lets this one pass now", before)}
}
