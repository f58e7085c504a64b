package datastoremigration

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/resources/inflight"
)

// dryRuns tries what is to be written in v3 later.
type dryRuns struct {
	copiers

	door   *door
	owners *owners
}

// webhooksCheck is the id of the check about webhooks that are asked about writes of v3.
const webhooksCheck = "v3-webhooks"

// tryV3Writes finds what admission would refuse when it is too late: a refusal to open v3 would keep it closed, and one
// to delete copies would keep a retreat from its end; and what it would refuse of v1 under the lock. What can be reached is asked by dry runs; they change nothing.
func (s *dryRuns) tryV3Writes(ctx context.Context, sc *scope) (outputs, error) {
	refused := []string{} // nil is no list to the machine
	blocked, err := s.door.overV3(ctx, sc, func(version string) error {
		lock, err := s.tryLockV3(ctx, sc.Object, s.registry.Through(version).Lock())
		if err != nil {
			return err
		}
		copies, err := s.copierOver(sc.Object, version).TryWrites(inflight.WithLowPriority(ctx))
		refused = examples(append(lock, copies...), showProblem)
		return err
	})
	if err != nil {
		return nil, err
	}
	owned, err := s.copier(sc.Object).OwnedV1(ctx)
	if err != nil {
		return nil, err
	}
	refused = append(refused, examples(s.owners.tryDetach(ctx, owned), check.Finding.String)...)
	if blocked != "" && !isWaived(sc.Object, webhooksCheck) {
		hooks, err := s.webhooksOnV3(ctx)
		if err != nil {
			return nil, err
		}
		refused = append(refused, examples(hooks, func(hook string) string {
			f := untried(hook, blocked)
			return fmt.Sprintf("%s, or waive it with the annotation %s", f, waiverFor(sc.Object, webhooksCheck))
		})...)
	}
	return outputs{"refused": refused}, nil
}

// tryLockV3 tries what closes v3; or, where it is there already, what opens it again, and takes the lock away.
func (s *dryRuns) tryLockV3(ctx context.Context, dm *migration, kind *resources.Kind) (refused []resources.Problem, err error) {
	info, err := s.clusterInformation(ctx, kind.V3GVK())
	if err != nil {
		return nil, err
	}
	try := func(verb string, err error) error {
		switch class := apierrors.Classify(err); {
		case apierrors.Refused(err):
			refused = append(refused, copier.Refusal(verb, kind, types.NamespacedName{Name: clusterInformationName}, err))
		case err != nil && class != apierrors.Conflict && class != apierrors.NotFound: // it has come, or gone, meanwhile
			return fmt.Errorf("try to %s the v3 ClusterInformation: %w", verb, err)
		}
		return nil
	}
	if info == nil {
		v1, err := s.clusterInformation(ctx, kind.V1GVK())
		if err != nil {
			return nil, err
		}
		err = try("create", s.client.Create(ctx, lockedCopy(v1, kind.V3GVK(), dm.UID), client.DryRunAll))
		return refused, err
	}
	opens := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"datastoreReady":true}}`))
	if err := try("patch", s.client.Patch(ctx, info.DeepCopy(), opens, client.DryRunAll)); err != nil || createdBy(info) != dm.UID {
		return refused, err
	}
	err = try("delete", s.client.Delete(ctx, info.DeepCopy(), client.DryRunAll))
	return refused, err
}

// webhooksOnV3 are the webhooks that may be asked about a write of v3.
func (s *dryRuns) webhooksOnV3(ctx context.Context) ([]string, error) {
	configs, err := s.validatingWebhooks(ctx)
	return webhooksOn(configs, namesOf(s.registry.All(), (*resources.Kind).V3Plural)), err
}

// webhooksOn names those that have a rule about a resource of v3, whatever the rest of their conditions.
func webhooksOn(configs []admissionregistrationv1.ValidatingWebhookConfiguration, plurals []string) (names []string) {
	ofV3 := func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.ContainsFunc(r.Operations, isWrite) && (slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIGroups, resources.V3Group)) &&
			slices.ContainsFunc(r.Resources, func(r string) bool { return r == "*" || r == "*/*" || slices.Contains(plurals, r) })
	}
	for i := range configs {
		config := &configs[i]
		for _, hook := range config.Webhooks {
			if slices.ContainsFunc(hook.Rules, ofV3) {
				names = append(names, webhookName(config, hook.Name))
			}
		}
	}
	slices.Sort(names)
	return names
}

// untried is what is found where nobody can ask a webhook before v1 is locked.
func untried(hook, why string) check.Finding {
	return check.Finding{Level: check.Failure,
		Message: fmt.Sprintf("the webhook %s may refuse what this migration has to write in v3, and cannot be tried before v1 is locked: %s", hook, why),
		Remedy:  "let objects be copied ahead (check copy-ahead), or remove the webhook until the migration is Complete"}
}

// v3Webhooks says which webhooks are going to be tried, or that they cannot be.
func (s *dryRuns) v3Webhooks(copyAhead check.Check) check.Check {
	return check.Check{ID: webhooksCheck, Waivable: true, Title: "webhooks on writes of v3 can be tried before v1 is locked", Run: func(ctx context.Context) ([]check.Finding, error) {
		hooks, err := s.webhooksOnV3(ctx)
		if err != nil || len(hooks) == 0 {
			return nil, err
		}
		svc, err := s.apiService(ctx)
		if err != nil {
			return nil, err
		}
		var noDoor []check.Finding
		if isAggregated(svc) {
			if noDoor, err = copyAhead.Run(ctx); err != nil {
				return nil, err
			}
		}
		var findings []check.Finding
		for _, hook := range hooks {
			if len(noDoor) > 0 {
				findings = append(findings, untried(hook, noDoor[0].Message))
				continue
			}
			findings = append(findings, check.Finding{Level: check.Info, Message: fmt.Sprintf("the webhook %s is asked about writes of v3: a migration asks it by dry runs before it locks v1", hook)})
		}
		return findings, nil
	}}
}
