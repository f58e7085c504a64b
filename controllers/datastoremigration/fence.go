package datastoremigration

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/datastoremigration/policies"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// fence refuses writes of v1 while it is locked, and of v3 until it is open: two policies with their bindings. They are
// inert until v1 is locked, and nothing but their annotation says whose they are: a crash leaves any of the four, which
// the release finds by name. People see the policies, and their message when a write is refused.
type fence struct {
	cluster

	servers   *servers
	caches    *caches
	watchSync *watchSync
}

// fenceSettles is how long the fence may be there before it is believed. An API server
// looks for new policies once a second; one that cannot be asked by itself does so, too.
const fenceSettles = 2 * time.Second

func (f *fence) fenceRights() []rbacv1.PolicyRule {
	return grants(f.watchSync.followRights(), apiServersRights(), onFence("get delete"), onFencePolicy("patch"), rule("create", admissionregistrationv1.GroupName, policies.PolicyResource), rule("create", admissionregistrationv1.GroupName, policies.BindingResource),
		whoAmI(), f.onV1Lock("get patch"),
		// Who makes a policy with parameters must be allowed to read all that could be ones.
		rule("get", resources.V1Group, f.registry.Lock().V1Plural()))
}

func (f *fence) unfenceRights() []rbacv1.PolicyRule {
	return grants(removeFenceRights(), f.onV1("list patch"))
}

// removeFenceRights are also for what lifts a fence that was made for another account.
func removeFenceRights() []rbacv1.PolicyRule { return onFence("get delete") }

// lockStandsRights are also for what lifts a fence that was made for another account.
func (f *fence) lockStandsRights() []rbacv1.PolicyRule {
	return grants(onFence("get"), rule("patch", admissionregistrationv1.GroupName, policies.PolicyResource, policies.Names...), whoAmI(), f.onV1Lock("get"))
}

// onFencePolicy is about the one policy that the lock changes.
func onFencePolicy(verbs string) []rbacv1.PolicyRule {
	return rule(verbs, admissionregistrationv1.GroupName, policies.PolicyResource, migrationv1.FenceName)
}

func onFence(verbs string) []rbacv1.PolicyRule {
	return grants(rule(verbs, admissionregistrationv1.GroupName, policies.PolicyResource, policies.Names...), rule(verbs, admissionregistrationv1.GroupName, policies.BindingResource, policies.Names...))
}

func whoAmI() []rbacv1.PolicyRule {
	return rule("create", authenticationv1.GroupName, "selfsubjectreviews")
}

// blockV1Writes installs what refuses writes of v1 from the moment on in which it is locked,
// and proves that it works while it still lets everybody pass. What was installed long
// ago, without a proof then, need not settle any more.
func (f *fence) blockV1Writes(ctx context.Context, sc *scope) (outputs, error) {
	possible, err := f.canFence(ctx)
	if err != nil || !possible {
		return nil, err
	}
	account, err := f.self(ctx)
	if err != nil {
		return nil, err
	}
	if err := sc.Save(ctx, fenceAccountKey, account); err != nil {
		return nil, err
	}
	var stands fenceParts
	for i, part := range f.partsFor(sc.Object, account, admissionregistrationv1.Ignore) {
		if stands[i], err = f.install(ctx, part); err != nil {
			return nil, err
		}
	}
	if err := f.whileUnknown(ctx, sc.Object, admissionregistrationv1.Ignore); err != nil {
		return nil, err
	}
	settled := f.caches.fenced(sc.Object, stands, sc.Clock.Now()).Add(sc.With.Duration("settle", fenceSettles))
	if !sc.With.Bool("prove", true) {
		return nil, nil
	}
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error { return f.watchSync.follow(both, sc) })
	group.Go(func() error { return sleep(both, sc.Clock, settled.Sub(sc.Clock.Now())) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	_, err = f.proveFence(ctx, sc, newest, string(sc.Object.UID), policies.ProbeMessage(sc.Object), proofs)
	return nil, err
}

// canFence tells whether there is anything to make a fence of: an API server that knows
// ValidatingAdmissionPolicy, and a lock that the policy can look at.
func (f *fence) canFence(ctx context.Context) (bool, error) {
	served, err := f.discover(admissionregistrationv1.GroupName)
	if err != nil || !slices.Contains(versionsOf(served[policies.PolicyResource]), admissionregistrationv1.SchemeGroupVersion.Version) {
		return false, err
	}
	info, err := f.v1Info(ctx)
	return info != nil, err
}

// partsFor are what belongs into the cluster for this migration, in the order in which it is made: a fence that lets an
// account pass.
func (f *fence) partsFor(dm *migration, account string, whileUnknown admissionregistrationv1.FailurePolicyType) [4]client.Object {
	return policies.Fence(dm, f.registry.Lock(), clusterInformationName, account, whileUnknown)
}

// whileUnknown says what the fence of this migration does as long as an API server does not
// know its parameter, for half a minute after its own start: Ignore while v1 is open, so
// that nobody is refused, and Fail while it is closed, so that nobody is let in.
func (f *fence) whileUnknown(ctx context.Context, dm *migration, want admissionregistrationv1.FailurePolicyType) error {
	named, _ := policies.Named(dm, migrationv1.FenceName)
	have, err := f.partOfFence(ctx, named)
	if err != nil || have == nil || !policies.Of(have, dm) {
		return err
	}
	policy := have.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	if policy.Spec.FailurePolicy != nil && *policy.Spec.FailurePolicy == want {
		return nil
	}
	err = patch.MutateAndPatchSpec(ctx, f.client, policy, func(policy *admissionregistrationv1.ValidatingAdmissionPolicy) {
		policy.Spec.FailurePolicy = &want
	})
	if err != nil {
		return fmt.Errorf("set failurePolicy %s on the fence, %s: %w", want, f.nameOf(policy), err)
	}
	return nil
}

// install makes a part of the fence, and tells by its UID whether it is the one of last
// time. What is there and differs is of a migration that is gone, or made for another
// account: it is made anew, so that it settles anew.
func (f *fence) install(ctx context.Context, want client.Object) (types.UID, error) {
	have, err := f.partOfFence(ctx, want)
	if err != nil {
		return "", err
	}
	if have != nil && policies.Same(have, want, true) {
		return have.GetUID(), nil
	}
	if have != nil {
		if err := remove(ctx, f.client, have, "the fence, "+f.nameOf(have)); err != nil {
			return "", err
		}
	}
	if err := f.client.Create(ctx, want); err != nil {
		return "", fmt.Errorf("create the fence, %s: %w", f.nameOf(want), err)
	}
	return want.GetUID(), nil
}

// partOfFence reads what has the kind and name of part; nil when there is none, or no
// such kind.
func (f *fence) partOfFence(ctx context.Context, part client.Object) (client.Object, error) {
	have, err := read(ctx, f.client, byName(part.GetName()), part.DeepCopyObject().(client.Object), "the fence, "+f.nameOf(part))
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	return have, err
}

// allowV1Writes also takes back what was noted on v1 since the fence was there.
func (f *fence) allowV1Writes(ctx context.Context, sc *scope) (outputs, error) {
	if err := f.removeFence(ctx, sc.Object); err != nil {
		return nil, err
	}
	return nil, f.watchSync.liftBarriers(ctx, sc)
}

// removeWriteBlock removes the fence past the point of no return: that of this migration, and what an earlier one has left.
func (f *fence) removeWriteBlock(ctx context.Context, sc *scope) (outputs, error) {
	if err := f.withEarlier(ctx, sc.Object, f.removeFence); err != nil {
		return nil, err
	}
	return nil, f.watchSync.liftBarriers(ctx, sc)
}

// removeFence removes what this migration installed.
func (f *fence) removeFence(ctx context.Context, dm *migration) error {
	return f.removeNamed(ctx, dm, policies.Names...)
}

func (f *fence) removeNamed(ctx context.Context, dm *migration, names ...string) error {
	parts, err := f.partsOf(ctx, dm, names)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err := remove(ctx, f.client, part, "the fence, "+f.nameOf(part)); err != nil {
			return err
		}
	}
	return nil
}

// partsOf reads what there is of a migration's fences: the binding first, without which the policy does nothing.
func (f *fence) partsOf(ctx context.Context, dm *migration, names []string) (parts []client.Object, err error) {
	for _, name := range names {
		policy, binding := policies.Named(dm, name)
		for _, part := range []client.Object{binding, policy} {
			have, err := f.partOfFence(ctx, part)
			if err != nil {
				return nil, err
			}
			if have != nil && policies.Of(have, dm) {
				parts = append(parts, have)
			}
		}
	}
	return parts, nil
}

// letUsPass lifts a fence of this migration that was made for another account, because
// the manager runs as another one since: nobody could open v1 through it. It is for
// releases only, for which v1 need not be closed any more.
func (f *fence) letUsPass(ctx context.Context, sc *scope) error {
	named, _ := policies.Named(sc.Object, migrationv1.FenceName)
	policy, err := f.partOfFence(ctx, named)
	if err != nil || policy == nil || !policies.Of(policy, sc.Object) {
		return err
	}
	account, err := f.self(ctx)
	if err != nil || policies.Same(policy, f.partsFor(sc.Object, account, admissionregistrationv1.Ignore)[0], true) {
		return err
	}
	if err := f.removeFence(ctx, sc.Object); err != nil {
		return err
	}
	return &fsm.WaitError{After: fenceSettles, Message: "the fence around v1 was made for another account than this one; it is removed, to open v1"}
}

func (f *fence) nameOf(part client.Object) string {
	gvk, _ := f.client.GroupVersionKindFor(part) // every scheme that these steps run with knows it
	return gvk.Kind + " " + part.GetName()
}

// canBeFenced warns where the lock will be a request and nothing else.
func (f *fence) canBeFenced() check.Check {
	return check.Check{ID: "fence", Title: "writes of v1 can be refused while it is locked", Run: func(ctx context.Context) ([]check.Finding, error) {
		if crd, err := f.crd(ctx, f.registry.Lock().V1CRDName()); err != nil || crd == nil {
			return nil, err // there is no v1: other checks say so
		}
		possible, err := f.canFence(ctx)
		if err != nil || possible {
			return nil, err
		}
		return []check.Finding{{Level: check.Warning,
			Message: "the lock of v1 is cooperative only, nothing refuses writes while the objects are copied: the API server does not serve ValidatingAdmissionPolicy in v1, or there is no v1 ClusterInformation " + clusterInformationName,
			Remedy:  "serve admissionregistration.k8s.io/v1, or stop everything but Calico that writes crd.projectcalico.org"}}, nil
	}}
}

func (f *fence) fenceTraces(ctx context.Context, dm *migration, t *traces) error {
	parts, err := f.partsOf(ctx, dm, policies.Names)
	for _, part := range parts {
		t.left = append(t.left, "the fence, "+f.nameOf(part))
	}
	return err
}
