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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// fenceSettles is how long the fence may be there before it is believed. An API server
// looks for new policies once a second; the others do so, too, and only one is asked.
const fenceSettles = 2 * time.Second

func (s *steps) fenceRights() []rbacv1.PolicyRule {
	return grants(s.followRights(), onFence("get delete"), rule("create", admissionregistrationv1.GroupName, fencePolicies), rule("create", admissionregistrationv1.GroupName, fenceBindings),
		whoAmI(), s.onV1Lock("get patch"),
		// Who makes a policy with parameters must be allowed to read all that could be ones.
		rule("get", resources.V1Group, s.Registry.Lock().V1Plural()))
}

func (s *steps) unfenceRights() []rbacv1.PolicyRule {
	return grants(removeFenceRights(), s.onV1("list patch"))
}

// removeFenceRights are also for what lifts a fence that was made for another account.
func removeFenceRights() []rbacv1.PolicyRule { return onFence("get delete") }

// lockStandsRights are also for what lifts a fence that was made for another account.
func (s *steps) lockStandsRights() []rbacv1.PolicyRule {
	return grants(onFence("get"), rule("patch", admissionregistrationv1.GroupName, fencePolicies, migrationv1.FenceName), whoAmI(), s.onV1Lock("get"))
}

func onFence(verbs string) []rbacv1.PolicyRule {
	return grants(rule(verbs, admissionregistrationv1.GroupName, fencePolicies, migrationv1.FenceName),
		rule(verbs, admissionregistrationv1.GroupName, fenceBindings, migrationv1.FenceName))
}

func whoAmI() []rbacv1.PolicyRule {
	return rule("create", authenticationv1.GroupName, "selfsubjectreviews")
}

// fenceV1 installs what refuses writes of v1 from the moment on in which it is locked,
// and proves that it works while it still lets everybody pass. What was installed long
// ago, without a proof then, need not settle any more. Under the lock it only looks: a
// fence that was down for a moment has let somebody in.
func (s *steps) fenceV1(ctx context.Context, sc *scope) (outputs, error) {
	if sc.Object.Status.Lock != nil {
		return nil, s.lockStands(ctx, sc)
	}
	possible, err := s.canFence(ctx)
	if err != nil || !possible {
		return nil, err
	}
	want, account, err := s.fence(ctx, sc.Object)
	if err != nil {
		return nil, err
	}
	if err := sc.Save(ctx, fenceAccountKey, account); err != nil {
		return nil, err
	}
	var stands fenceParts
	for i, part := range want {
		if stands[i], err = s.install(ctx, part); err != nil {
			return nil, err
		}
	}
	settled := s.ledgers.fenced(sc.Object, stands, sc.Clock.Now()).Add(sc.With.Duration("settle", fenceSettles))
	if !sc.With.Bool("prove", true) {
		return nil, nil
	}
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error { return s.follow(both, sc) })
	group.Go(func() error { return sleep(both, sc.Clock, settled.Sub(sc.Clock.Now())) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return nil, s.proveFence(ctx, sc, string(sc.Object.UID), probeMessage(sc.Object))
}

// canFence tells whether there is anything to make a fence of: an API server that knows
// ValidatingAdmissionPolicy, and a lock that the policy can look at.
func (s *steps) canFence(ctx context.Context) (bool, error) {
	served, err := s.discover(admissionregistrationv1.GroupName)
	if err != nil || !slices.Contains(versionsOf(served[fencePolicies]), admissionregistrationv1.SchemeGroupVersion.Version) {
		return false, err
	}
	info, err := s.clusterInformation(ctx, s.Registry.Lock().V1GVK())
	return info != nil, err
}

// fence is what belongs into the cluster, in the order in which it is made: for this
// migration, and for the account that runs it.
func (s *steps) fence(ctx context.Context, dm *migration) (parts [2]client.Object, account string, err error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := s.client.Create(ctx, review); err != nil {
		return parts, "", fmt.Errorf("ask the API server who we are: %w", err)
	}
	account = review.Status.UserInfo.Username
	return [2]client.Object{fencePolicy(dm, s.Registry.Lock().V1GVK(), account), fenceBinding(dm)}, account, nil
}

// install makes a part of the fence, and tells by its UID whether it is the one of last
// time. What is there and differs is of a migration that is gone, or made for another
// account: it is made anew, so that it settles anew.
func (s *steps) install(ctx context.Context, want client.Object) (types.UID, error) {
	have, err := s.partOfFence(ctx, want)
	if err != nil {
		return "", err
	}
	if have != nil && samePart(have, want) {
		return have.GetUID(), nil
	}
	if have != nil {
		if err := s.removePart(ctx, have); err != nil {
			return "", err
		}
	}
	if err := s.client.Create(ctx, want); err != nil {
		return "", fmt.Errorf("create the fence, %s: %w", s.nameOf(want), err)
	}
	return want.GetUID(), nil
}

// partOfFence reads what has the kind and name of part; nil when there is none, or no
// such kind.
func (s *steps) partOfFence(ctx context.Context, part client.Object) (client.Object, error) {
	have := part.DeepCopyObject().(client.Object)
	err := s.client.Get(ctx, types.NamespacedName{Name: part.GetName()}, have)
	if apierrs.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the fence, %s: %w", s.nameOf(part), err)
	}
	return have, nil
}

func (s *steps) removePart(ctx context.Context, part client.Object) error {
	uid := part.GetUID()
	err := s.client.Delete(ctx, part, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the fence, %s: %w", s.nameOf(part), err)
	}
	return nil
}

// unfenceV1 also takes back what was noted on v1 since the fence was there.
func (s *steps) unfenceV1(ctx context.Context, sc *scope) (outputs, error) {
	if err := s.removeFence(ctx, sc.Object); err != nil {
		return nil, err
	}
	return nil, s.liftBarriers(ctx, sc)
}

// liftFence removes the fence past the point of no return: that of this migration, and what an earlier one has left.
func (s *steps) liftFence(ctx context.Context, sc *scope) (outputs, error) {
	earlier, err := s.earlier(ctx, sc.Object)
	if err != nil {
		return nil, err
	}
	if earlier != nil {
		if err := s.removeFence(ctx, earlier); err != nil {
			return nil, err
		}
	}
	return s.unfenceV1(ctx, sc)
}

// removeFence removes what this migration installed: the binding first, without which the
// policy does nothing.
func (s *steps) removeFence(ctx context.Context, dm *migration) error {
	for _, part := range []client.Object{fenceBinding(dm), &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: fenceMeta(dm)}} {
		have, err := s.partOfFence(ctx, part)
		if err != nil {
			return err
		}
		if have == nil || !ofMigration(have, dm) {
			continue
		}
		if err := s.removePart(ctx, have); err != nil {
			return err
		}
	}
	return nil
}

// letUsPass lifts a fence of this migration that was made for another account, because
// the manager runs as another one since: nobody could give v1 back through it. It is for
// releases only, for which v1 need not be closed any more.
func (s *steps) letUsPass(ctx context.Context, sc *scope) error {
	policy, err := s.partOfFence(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: fenceMeta(sc.Object)})
	if err != nil || policy == nil || !ofMigration(policy, sc.Object) {
		return err
	}
	want, _, err := s.fence(ctx, sc.Object)
	if err != nil || samePart(policy, want[0]) {
		return err
	}
	if err := s.removeFence(ctx, sc.Object); err != nil {
		return err
	}
	return &fsm.WaitError{After: fenceSettles, Message: "the fence around v1 was made for another account than this one; it is lifted, to give v1 back"}
}

// fenceStands is an error, for good, where the fence is not as fenceV1 has left it.
func (s *steps) fenceStands(ctx context.Context, sc *scope) error {
	want, account, err := s.fence(ctx, sc.Object)
	if err != nil {
		return err
	}
	for _, part := range want {
		have, err := s.partOfFence(ctx, part)
		if err != nil {
			return err
		}
		if have != nil && !samePart(have, part) {
			if err := s.takeFenceOver(ctx, sc, have, part); err != nil {
				return err
			}
		}
		if have == nil || !samePart(have, part) {
			return lockBroken("somebody else has removed or changed the fence around v1, " + s.nameOf(part) + ",")
		}
	}
	return sc.Save(ctx, fenceAccountKey, account)
}

func (s *steps) nameOf(part client.Object) string {
	gvk, _ := s.client.GroupVersionKindFor(part) // every scheme that these steps run with knows it
	return gvk.Kind + " " + part.GetName()
}

func ofMigration(part client.Object, dm *migration) bool {
	return part.GetAnnotations()[migrationv1.AnnotationLockedBy] == string(dm.UID)
}

// samePart compares what decides: whose it is, and what it says.
func samePart(have, want client.Object) bool {
	if !have.GetDeletionTimestamp().IsZero() || have.GetAnnotations()[migrationv1.AnnotationLockedBy] != want.GetAnnotations()[migrationv1.AnnotationLockedBy] {
		return false
	}
	switch want := want.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return equality.Semantic.DeepEqual(have.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec, want.Spec)
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return equality.Semantic.DeepEqual(have.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding).Spec, want.Spec)
	}
	return false
}

// canBeFenced warns where the lock will be a request and nothing else.
func (s *steps) canBeFenced() check.Check {
	return check.Check{ID: "fence", Title: "writes of v1 can be refused while it is locked", Run: func(ctx context.Context) ([]check.Finding, error) {
		possible, err := s.canFence(ctx)
		if meta.IsNoMatchError(err) {
			return nil, nil // there is no v1: other checks say so
		}
		if err != nil || possible {
			return nil, err
		}
		return []check.Finding{{Level: check.Warning,
			Message: "the lock of v1 is cooperative only, nothing refuses writes while the objects are copied: the API server does not serve ValidatingAdmissionPolicy in v1, or there is no v1 ClusterInformation " + clusterInformationName,
			Remedy:  "serve admissionregistration.k8s.io/v1, or stop everything but Calico that writes crd.projectcalico.org"}}, nil
	}}
}
