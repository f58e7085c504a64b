package datastoremigration

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/datastoremigration/policies"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
)

// What proves the fence: so many dry runs refused in a row, of so many tries at most.
const (
	proofs     = 3
	proofTries = 20
	proofPoll  = 50 * time.Millisecond
	// probePromptly is how long an API server under load may take for a single one.
	probePromptly = 500 * time.Millisecond
)

// fenceStands is an error, for good, where the fence is not as blockV1Writes has left it. It is asked
// under the lock: everything is read at the same time.
func (f *fence) fenceStands(ctx context.Context, sc *scope) error {
	var account string
	var have [4]client.Object
	group, reading := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		account, err = f.self(reading)
		return err
	})
	for i, part := range f.partsFor(sc.Object, "", admissionregistrationv1.Fail) { // for its kinds and names
		group.Go(func() (err error) {
			have[i], err = f.partOfFence(reading, part)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	over := false
	for i, part := range f.partsFor(sc.Object, account, admissionregistrationv1.Fail) {
		if have[i] != nil && policies.Same(have[i], part, false) {
			continue
		}
		taken, err := f.takeFenceOver(ctx, sc, have[i], i, part)
		if err != nil {
			return err
		}
		if over = over || taken; !taken {
			side, _, _ := strings.Cut(part.GetName(), "-")
			return lockBroken("another client has removed or changed the fence around " + side + ", " + f.nameOf(part) + ",")
		}
	}
	if over {
		return &fsm.WaitError{After: fenceSettles, Message: "the fence was made for the account of another installation; it lets this one pass now"}
	}
	return sc.Save(ctx, fenceAccountKey, account)
}

// fenceAccountKey is where the state has the account that the fence lets pass.
const fenceAccountKey = "fenceAccount"

// takeFenceOver makes the fence of this migration let this account pass, in place of the one that was on record: the
// manager was installed anew under another name, and goes on. In place, nobody else passes meanwhile. Any other
// difference is not ours to explain, and taken is false.
func (f *fence) takeFenceOver(ctx context.Context, sc *scope, have client.Object, part int, want client.Object) (taken bool, err error) {
	policy, is := have.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	before := sc.Saved(fenceAccountKey)
	if !is || before == "" || !policies.Same(policy, f.partsFor(sc.Object, before, admissionregistrationv1.Fail)[part], false) {
		return false, nil
	}
	err = patch.MutateAndPatchSpec(ctx, f.client, policy, func(policy *admissionregistrationv1.ValidatingAdmissionPolicy) {
		policy.Spec = want.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec
	})
	if err != nil {
		return false, fmt.Errorf("let this account pass the fence, %s: %w", f.nameOf(policy), err)
	}
	return true, nil
}

// proveFence waits until every API server, by a list of that version, refuses writes of v1, so many in a row, for the
// reason that is given and for no other one. They are dry runs, so that nothing is
// written where the fence has a hole.
func (f *fence) proveFence(ctx context.Context, sc *scope, version, mark, reason string, proofs int) ([]apiServer, error) {
	return f.servers.eachServer(ctx, sc, version, func(ctx context.Context, server apiServer) error {
		return f.proveAt(ctx, sc, server, mark, reason, proofs)
	})
}

func (f *fence) proveAt(ctx context.Context, sc *scope, server apiServer, mark, reason string, proofs int) error {
	seen := error(nil)
	for refused, tries := 0, 0; refused < proofs; tries++ {
		err := f.probeFence(ctx, server.client, mark)
		switch {
		case apierrs.IsForbidden(err) && strings.Contains(err.Error(), reason):
			refused++
			continue
		case err != nil && !apierrs.IsForbidden(err):
			return fmt.Errorf("try whether the fence around v1 works: %w", err)
		case tries >= proofTries:
			return &fsm.WaitError{After: time.Second, Message: fmt.Sprintf("the fence around v1 does not work yet at %s, is the admission plugin ValidatingAdmissionPolicy on? %s", server.name(), outcomeOf(seen))}
		}
		refused, seen = 0, err
		if err := sleep(ctx, sc.Clock, proofPoll); err != nil {
			return err
		}
	}
	return nil
}

func outcomeOf(dryRun error) string {
	if dryRun == nil {
		return "A dry run of a write was accepted"
	}
	return "A dry run of a write said: " + dryRun.Error()
}

// probeFence tries to write the lock, as a dry run.
func (f *fence) probeFence(ctx context.Context, c client.Client, mark string) error {
	info := &unstructured.Unstructured{}
	info.SetGroupVersionKind(f.registry.Lock().V1GVK())
	info.SetName(clusterInformationName)
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, migrationv1.AnnotationFenceProbe, mark)
	return c.Patch(ctx, info, client.RawPatch(types.MergePatchType, body), client.DryRunAll)
}
