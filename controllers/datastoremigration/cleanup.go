package datastoremigration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
	"github.com/phasegate/phasegate/resources/copier"
)

// cleanUp deletes the CRDs of v1, of which there is no way back but the backup.
type cleanUp struct {
	copiers

	backups *backups
}

// CleanUpAction deletes v1. What it and BackUpAction alone need may be granted later
// than the rest.
const CleanUpAction = "DeleteV1CRDs"

// waiveV1Changed is what a person waives who has looked himself that v3 has what v1 has.
const waiveV1Changed = "v1-changed"

const (
	// crdGonePoll is how often a CRD that is being deleted is looked at.
	crdGonePoll = 100 * time.Millisecond
	// crdGoneSoon is for how long at a time: then the machine looks at its own clock.
	crdGoneSoon = 10 * time.Second
)

// deleteV1CRDs deletes the v1 CRDs of the registry's kinds, one after the other, and
// waits until each is gone: none before it is sure that v3 has every object of each.
// CRDs of kinds that were not migrated stay. The lock goes last: while anything of v1
// is left, it stays locked.
func (s *cleanUp) deleteV1CRDs(ctx context.Context, sc *scope) (outputs, error) {
	svc, err := s.apiService(ctx)
	if err != nil {
		return nil, err
	}
	if isAggregated(svc) {
		return nil, fsm.Wait("APIService %s points to a server, which shows v1, so nothing of v1 is deleted: stop what applies it, and delete it; Kubernetes makes the one for the CRDs", apiServiceName)
	}
	left, err := s.crds(ctx, (*resources.Kind).V1CRDName)
	if err != nil {
		return nil, err
	}
	held, err := s.copier(sc.Object).V1Digests(ctx, sc.Object.Status.Verified)
	if err != nil {
		return nil, err
	}
	if err := s.losesNothing(ctx, sc, left, held); err != nil {
		return nil, err
	}
	goes := slices.DeleteFunc(slices.Clone(left), func(crd kindCRD) bool { return held[crd.kind.Name()].Excluded > 0 })
	if err := s.mayDelete(ctx, goes); err != nil {
		return nil, err
	}
	if len(goes) > 0 {
		if err := s.backups.renewBackup(ctx, sc, goes, held); err != nil {
			return nil, err
		}
	}
	for _, crd := range goes {
		if err := s.deleteCRD(ctx, sc, crd); err != nil {
			return nil, err
		}
	}
	return nil, s.tellKept(ctx, sc, left, held)
}

// losesNothing waits where v1 holds something that was not verified to be in v3, or
// where v3 is not there any more.
func (s *cleanUp) losesNothing(ctx context.Context, sc *scope, left []kindCRD, held map[string]copier.V1Kind) error {
	verified, known := sc.Object.Status.Verified, map[string]migrationv1.VerifiedKind{}
	if verified != nil {
		var err error
		if known, err = verified.ByKind(); err != nil {
			return err
		}
	}
	changed, fewer := unverified(left, held, known, verified != nil && verified.Revision > 0)
	if len(fewer) > 0 {
		sc.Warn("FewerObjects", "v1 has fewer objects than were verified to be in v3, because they were deleted since, with their namespaces say: %s. "+
			"Each of those that are left is older than the verification, so v3 was given it as it is, and nothing is lost", strings.Join(fewer, "; "))
	}
	if len(changed) > 0 {
		list := strings.Join(examples(changed, asIs), "; ")
		if !isWaived(sc.Object, waiveV1Changed) {
			return fsm.Wait("v1 holds what was not verified to be in v3, so nothing is deleted: %s. Bring what is missing to v3, then set the annotation %s on this object, or delete the v1 CRDs yourself",
				list, waiverFor(sc.Object, waiveV1Changed))
		}
		sc.Warn("ChecksWarn", "%s: waived: %s", waiveV1Changed, list)
	}
	for _, crd := range left {
		if held[crd.kind.Name()].Objects == 0 {
			continue
		}
		why, err := s.lostV3(ctx, crd.kind, verified)
		if err != nil {
			return err
		}
		if why != "" {
			return fsm.Wait("the v3 side of %d %s objects is gone, so nothing of v1 is deleted: CRD %s %s. Restore v3 from v1 or from a backup, or delete the v1 CRDs yourself",
				held[crd.kind.Name()].Objects, crd.kind.Name(), crd.kind.V3CRDName(), why)
		}
	}
	return nil
}

// unverified tells which kinds hold other objects than were verified, and which only
// fewer: where it is known of each object whether it was written since, those that have
// gone are no reason to keep the others. A CRD that is being deleted was judged before
// its objects began to go.
func unverified(left []kindCRD, held map[string]copier.V1Kind, verified map[string]migrationv1.VerifiedKind, each bool) (changed, fewer []string) {
	for _, crd := range left {
		name := crd.kind.Name()
		now, then, since := held[name].VerifiedKind, verified[name], held[name].Since
		text := fmt.Sprintf("%s, %d objects of which %d were verified", name, now.Objects, then.Objects)
		switch {
		case !crd.DeletionTimestamp.IsZero() || now.Objects == 0 || now == then:
			continue
		case each && len(since) == 0 && now.Objects < then.Objects && then.Unproved == 0:
			fewer = append(fewer, fmt.Sprintf("%s, %d of %d", name, now.Objects, then.Objects))
			continue
		case now.Objects == then.Objects:
			text = fmt.Sprintf("%s, %d objects, of which some have changed", name, now.Objects)
		}
		if len(since) > 0 {
			text += fmt.Sprintf(" (written since: %s)", strings.Join(examples(since, asIs), ", "))
		}
		changed = append(changed, text)
	}
	return changed, fewer
}

// lostV3 says why the copies of a kind cannot be there any more; empty if they can.
func (s *cleanUp) lostV3(ctx context.Context, kind *resources.Kind, verified *migrationv1.Verified) (string, error) {
	crd, err := s.crd(ctx, kind.V3CRDName())
	switch {
	case err != nil:
		return "", err
	case crd != nil && verified != nil && crd.CreationTimestamp.After(verified.At.Time):
		return "was created anew after the migration", nil
	}
	return unusable(crd, kind), nil
}

// mayDelete waits for the right to delete CRDs, which may be granted as late as
// this. Without the right to all of them, none is deleted.
func (s *cleanUp) mayDelete(ctx context.Context, crds []kindCRD) error {
	if len(crds) == 0 {
		return nil
	}
	var names []string
	for _, crd := range crds {
		names = append(names, crd.Name)
	}
	missing, err := rbac.Missing(ctx, s.client, rbac.Flatten(CleanUpAction, rbac.Rule("delete", crdGroup, crdResource, names...)))
	if err != nil || len(missing) == 0 {
		return err
	}
	return fsm.Wait("%d of %d v1 CRDs may not be deleted by this account, so none is: it may not %s. %s, or delete the CRDs yourself",
		len(missing), len(names), missing[0], grantCleanUp)
}

const grantCleanUp = "Grant it (Helm: controllers.datastoremigration.cleanup.enabled=true)"

// deleteCRD deletes the CRD that was judged. One that somebody creates in its place
// may have objects, and is judged anew.
func (s *cleanUp) deleteCRD(ctx context.Context, sc *scope, judged kindCRD) error {
	if judged.DeletionTimestamp.IsZero() {
		sc.Report(func(dm *migration) { dm.Status.Message = "Deleting CRD " + judged.Name })
		if err := remove(ctx, s.client, judged.CustomResourceDefinition, "CRD "+judged.Name); err != nil {
			return err
		}
	}
	for until := sc.Clock.Now().Add(crdGoneSoon); ; {
		crd, err := s.crd(ctx, judged.Name)
		switch {
		case err != nil || crd == nil:
			return err
		case crd.UID != judged.UID:
			return fsm.Wait("CRD %s was created anew while it was deleted: stop what applies it", judged.Name)
		case sc.Clock.Now().After(until):
			if err := s.nudge(ctx, sc, crd); err != nil {
				return err
			}
			return fsm.Wait("CRD %s is being deleted, and does not go: look which of its objects have finalizers (kubectl get %s --all-namespaces -o yaml). To take one off by hand, delete the ValidatingAdmissionPolicyBinding %s first, which refuses all writes of v1",
				judged.Name, judged.Name, migrationv1.FenceName)
		}
		if err := sleep(ctx, sc.Clock, crdGonePoll); err != nil {
			return err
		}
	}
}

// nudge makes kube-apiserver look at a CRD that it deletes. After a failure it waits, in the end for some minutes, and nothing
// but a change of the CRD besides its condition Terminating wakes it. Without the right it takes its time.
func (s *cleanUp) nudge(ctx context.Context, sc *scope, crd *apiextensionsv1.CustomResourceDefinition) error {
	err := patch.MutateAndPatchSpec(ctx, s.client, crd, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Annotations = labels.Merge(crd.Annotations, labels.Set{migrationv1.AnnotationNudgedAt: sc.Clock.Now().UTC().Format(time.RFC3339)})
	})
	switch apierrors.Classify(err) {
	case apierrors.NotFound, apierrors.Conflict, apierrors.Forbidden: // it goes, or was changed, which does the same
		return nil
	}
	if err != nil {
		return fmt.Errorf("nudge CRD %s, which is being deleted: %w", crd.Name, err)
	}
	return nil
}

// tellKept names the CRDs of v1 that stay for good, and why.
func (s *cleanUp) tellKept(ctx context.Context, sc *scope, left []kindCRD, held map[string]copier.V1Kind) error {
	foreign, err := s.foreignV1(ctx)
	if err != nil {
		return err
	}
	var kept []string
	for plural := range foreign {
		kept = append(kept, plural+"."+resources.V1Group+" (its kind is not in the registry)")
	}
	for _, crd := range left {
		if n := held[crd.kind.Name()].Excluded; n > 0 {
			kept = append(kept, fmt.Sprintf("%s (%d objects are left out by the registry's selector)", crd.Name, n))
		}
	}
	if len(kept) > 0 {
		slices.Sort(kept)
		sc.Warn("CRDsKept", "%d CRDs of v1 stay, with their objects: %s. While there is one, programs of Calico without a configured API group use v1: delete those that are empty", len(kept), strings.Join(examples(kept, asIs), "; "))
	}
	return nil
}
