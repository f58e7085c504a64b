package datastoremigration

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
	"github.com/phasegate/phasegate/resources/copier"
)

// owners takes references to Calico objects off v1 objects while the garbage collector could find the owners missing,
// and puts them back. Each object bears its references in a note with the UID of the migration, written with the same
// patch: after a crash, the notes tell which ones are done.
type owners struct {
	copiers

	namespace string
	fence     *fence
}

const (
	// canaryName is that of the ConfigMap that the garbage collector is to delete.
	canaryName = "phasegate-collector-canary"
	// catchUp bounds the wait for others before owner references come back: the lock
	// must not depend on a garbage collector that does not run, or on an API server of
	// Calico that does not come up while the lock is held.
	catchUp = 10 * time.Second
	// catchUpPoll is how often they are looked at.
	catchUpPoll = 100 * time.Millisecond
)

// detachV1Owners takes references to Calico objects off v1 objects. While v1 and v3
// change places, the garbage collector, which sees Calico's objects as v3 only, finds
// their owners missing.
func (s *owners) detachV1Owners(ctx context.Context, sc *scope) (outputs, error) {
	c := s.copier(sc.Object)
	owned, err := c.OwnedV1(ctx)
	if err != nil {
		return nil, err
	}
	c.Invalidate(owned)
	return nil, c.EditAll(ctx, owned, detachBy(sc.Object.UID))
}

// detachBy is for both sorts of objects. A note that is not ours is a person's to
// look at: no later try will find another one.
func detachBy(migration types.UID) func(*copier.Meta) error {
	return func(obj *copier.Meta) error {
		if !resources.HasCalicoOwners(obj) {
			return nil
		}
		if err := resources.DetachOwners(obj, migration); err != nil {
			return fsm.Terminal("OwnersNoted", "%v", err)
		}
		return nil
	}
}

func detachedBy(migration types.UID) func(*copier.Meta) bool {
	return func(obj *copier.Meta) bool { return resources.IsDetached(obj, migration) }
}

// tryDetach asks by dry runs whether admission lets one object of each kind be detached, and another one where the owner is
// in hidden metadata: a right to patch is not enough where a plugin asks for the right to delete, too. What fails for any
// other reason is left to the step.
func (s *owners) tryDetach(ctx context.Context, objs []*copier.Meta) (findings []check.Finding) {
	type sort struct {
		schema.GroupVersionKind
		plain bool
	}
	tried := map[sort]bool{}
	for _, obj := range objs {
		changed := obj.DeepCopy()
		err := resources.DetachOwners(changed, "dry-run")
		one := sort{obj.GroupVersionKind(), len(changed.OwnerReferences) != len(obj.OwnerReferences)}
		if err != nil || tried[one] {
			continue
		}
		tried[one] = true
		err = s.client.Patch(ctx, changed, client.MergeFromWithOptions(obj, client.MergeFromWithOptimisticLock{}), client.DryRunAll)
		if !apierrors.Refused(err) || strings.Contains(err.Error(), "does not support dry run") {
			continue
		}
		findings = append(findings, check.Finding{Level: check.Failure,
			Message: fmt.Sprintf("%s cannot be detached from its owner in Calico, a dry run was refused: %v", nameOf(obj), err),
			Remedy:  "if this account may not delete it, grant delete on its kind (Helm: controllers.datastoremigration.extraRules); else exempt the account in what refuses it"})
	}
	return findings
}

// attachV1Owners restores to v1 objects what detachV1Owners took.
func (s *owners) attachV1Owners(ctx context.Context, sc *scope) (outputs, error) {
	if err := s.fence.letUsPass(ctx, sc); err != nil {
		return nil, err
	}
	c := s.copier(sc.Object)
	detached, err := c.FindV1(ctx, detachedBy(sc.Object.UID))
	if err != nil || len(detached) == 0 {
		return nil, err
	}
	if err := s.awaitOwners(ctx, sc); err != nil {
		return nil, err
	}
	return nil, c.EditAll(ctx, detached, attachTo(sc.Object.UID, nil))
}

func attachTo(migration types.UID, rewrite func([]metav1.OwnerReference) []metav1.OwnerReference) func(*copier.Meta) error {
	return func(obj *copier.Meta) error {
		if !resources.IsDetached(obj, migration) {
			return nil
		}
		return resources.AttachOwners(obj, rewrite)
	}
}

// awaitOwners waits until references to the old owners may come back: until these are
// there again, and the garbage collector has looked at everything that it had to look
// at for having missed them. It deletes what it finds in its queue with an owner of
// which it remembers that it was gone, even if it is back.
func (s *owners) awaitOwners(ctx context.Context, sc *scope) error {
	svc, err := s.apiService(ctx)
	if err != nil {
		return err
	}
	if isAggregated(svc) {
		if err := within(ctx, sc.Clock, func() bool {
			back, err := s.answersFromV1(ctx, s.client)
			return err == nil && back
		}); err != nil {
			return err
		}
	}
	return s.awaitCollector(ctx, sc)
}

// awaitOwnersRights: a create cannot be bound to a name.
func (s *owners) awaitOwnersRights() []rbacv1.PolicyRule {
	return grants(onAPIService("get"), s.onV1Lock("get"), s.onV3Lock("get"),
		rule("create", corev1.GroupName, "configmaps"), rule("get delete", corev1.GroupName, "configmaps", canaryName))
}

// awaitCollector gives the garbage collector something to delete, which comes last
// in its queue. Where it cannot be put, nothing is asked. What keeps it from being put or
// deleted may itself wait for an address, which v1 gives once it is open: after us.
func (s *owners) awaitCollector(ctx context.Context, sc *scope) error {
	canary := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: canaryName,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: canaryName + "-owner", UID: uuid.NewUUID()}},
	}}
	switch err := tryFor(ctx, sc.Clock, func() error { return s.client.Create(ctx, canary) }); {
	case apierrs.IsAlreadyExists(err): // we died while we waited
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("ask the garbage collector whether it has caught up: %w", err)
	case err != nil:
		sc.Warn("CollectorNotAsked", "owner references come back without asking the garbage collector whether it has caught up: %v", err)
		return nil
	}
	eaten := false
	err := within(ctx, sc.Clock, func() bool {
		eaten = apierrs.IsNotFound(s.client.Get(ctx, client.ObjectKeyFromObject(canary), canary))
		return eaten
	})
	if err != nil || eaten {
		return err
	}
	switch err := client.IgnoreNotFound(tryFor(ctx, sc.Clock, func() error { return s.client.Delete(ctx, canary) })); {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("delete ConfigMap %s/%s, which the garbage collector has left: %w", canary.Namespace, canary.Name, err)
	case err != nil:
		sc.Warn("CanaryLeft", "ConfigMap %s/%s, which the garbage collector was to delete, is left: %v", canary.Namespace, canary.Name, err)
	}
	return nil
}

// tryFor repeats a call that may succeed later, for as long as catchUp.
func tryFor(ctx context.Context, c clock.Clock, call func() error) (err error) {
	stopped := within(ctx, c, func() bool {
		err = call()
		return !apierrors.Retryable(apierrors.Classify(err))
	})
	return cmp.Or(stopped, err)
}

// within asks until it is met, for as long as catchUp. The error is that of the
// context.
func within(ctx context.Context, c clock.Clock, met func() bool) error {
	for end := c.Now().Add(catchUp); !met() && c.Now().Before(end); {
		if err := sleep(ctx, c, catchUpPoll); err != nil {
			return err
		}
	}
	return nil
}
