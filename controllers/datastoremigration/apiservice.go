package datastoremigration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// apiServiceTakeover takes the APIService of v3 from the aggregated API server, and releases it. What it was is saved with the
// state before it is changed, and on itself; a crash in between leaves it as it was, or changed and bearing both. People
// see an APIService without a service, with the UID of the migration.
type apiServiceTakeover struct {
	cluster

	servers *servers
}

const (
	// savedAPIServiceKey is where the state has what the APIService was.
	savedAPIServiceKey = "apiService"
	// automanagedLabel marks an APIService that kube-apiserver keeps for a CRD.
	automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	// What kube-apiserver itself writes for the group of a CRD.
	crdGroupPriority   = 1000
	crdVersionPriority = 100
)

// disableAPIService saves the aggregated APIService with the state first, then
// turns it in place into what kube-apiserver keeps for CRDs. In place, there is
// no moment without an APIService, and nothing that a controller could create
// again before us on the way back. It bears what it was itself, too, for those who have
// neither the state nor this program. Once v3 is open, forgetSaved deletes it.
func (p *apiServiceTakeover) disableAPIService(ctx context.Context, sc *scope) (outputs, error) {
	svc, err := p.apiService(ctx)
	if err != nil || !isAggregated(svc) {
		return nil, err
	}
	saved, err := saveAPIService(svc)
	if err != nil {
		return nil, err
	}
	if err := sc.Save(ctx, savedAPIServiceKey, saved); err != nil {
		return nil, err
	}
	err = patch.MutateAndPatchSpec(ctx, p.client, svc, func(svc *apiregistrationv1.APIService) {
		svc.Labels = map[string]string{automanagedLabel: "true"}
		svc.Annotations = map[string]string{migrationv1.AnnotationSavedAPIService: saved, migrationv1.AnnotationLockedBy: string(sc.Object.UID)}
		svc.Spec = apiregistrationv1.APIServiceSpec{
			Group: resources.V3Group, Version: "v3",
			GroupPriorityMinimum: crdGroupPriority, VersionPriority: crdVersionPriority,
		}
	})
	if err != nil {
		return nil, fmt.Errorf("let the CRDs serve %s: %w", apiServiceName, err)
	}
	return nil, nil
}

// parks is true from before this migration points the APIService to the CRDs until it has
// released it, or keeps it for good.
func parks(sc *scope) bool {
	return sc.Machine.Holds(&sc.Object.Status.Machine, disableAction) || sc.Saved(savedAPIServiceKey) != ""
}

// staysDisabled points the APIService to the CRDs once more where somebody, an operator or
// GitOps, has pointed it to a server meanwhile. The error waits until that is heard of.
func (p *apiServiceTakeover) staysDisabled(ctx context.Context, sc *scope) error {
	if !parks(sc) {
		return nil
	}
	svc, err := p.apiService(ctx)
	if err != nil || !isAggregated(svc) {
		return err
	}
	if _, err := p.disableAPIService(ctx, sc); err != nil {
		return err
	}
	return &fsm.WaitError{After: time.Second, Message: fmt.Sprintf(
		"APIService %s points to a server again; pointing it to the CRDs. Stop what applies it, until Complete", apiServiceName)}
}

// isRestored is false, too, where somebody has pointed the APIService to a server again and
// kept its label: kube-apiserver turns that one back to the CRDs.
func isRestored(svc *apiregistrationv1.APIService) bool {
	return isAggregated(svc) && svc.Labels[automanagedLabel] == ""
}

// saveAPIService keeps what is needed to put an APIService back as it was. Our marks are no
// part of that: other writers merge metadata when they point it to a server again.
func saveAPIService(svc *apiregistrationv1.APIService) (string, error) {
	saved := &apiregistrationv1.APIService{TypeMeta: metav1.TypeMeta{APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService"}}
	copyOnto(saved, svc.DeepCopy())
	delete(saved.Labels, automanagedLabel)
	delete(saved.Annotations, migrationv1.AnnotationSavedAPIService)
	delete(saved.Annotations, migrationv1.AnnotationLockedBy)
	raw, err := json.Marshal(saved)
	if err != nil {
		return "", fmt.Errorf("save APIService %s: %w", svc.Name, err)
	}
	return string(raw), nil
}

// copyOnto leaves out what is the server's.
func copyOnto(svc, from *apiregistrationv1.APIService) {
	svc.Name, svc.Labels, svc.Annotations = from.Name, from.Labels, from.Annotations
	svc.OwnerReferences, svc.Finalizers, svc.Spec = from.OwnerReferences, from.Finalizers, from.Spec
}

// restoreAPIService puts the saved APIService back, with every label,
// annotation and field it had. An aggregated one that somebody else made in the
// meantime is left alone, unless it bears our label.
func (p *apiServiceTakeover) restoreAPIService(ctx context.Context, sc *scope) (outputs, error) {
	svc, err := p.apiService(ctx)
	if err != nil {
		return nil, err
	}
	disabled, err := p.disabledHere(ctx, sc, svc)
	if err != nil {
		return nil, err
	}
	if !disabled {
		return nil, sc.Save(ctx, savedAPIServiceKey, "")
	}
	if !isRestored(svc) {
		saved, err := savedOf(sc.Saved(savedAPIServiceKey), svc, sc.Object.UID)
		if err != nil || saved == nil {
			return nil, err // nothing was disabled
		}
		if err := p.putBack(ctx, svc, saved); err != nil {
			return nil, err
		}
	}
	return p.deleteDisabledAPIService(ctx, sc)
}

// disabledHere tells whether it was this migration that disabled the APIService, in this cluster. Of an object that
// is there the state is believed. A state alone may have come out of a backup, of another cluster or of another time:
// then the mark on the APIService decides, or v1, which is locked for as long as it is disabled.
func (p *apiServiceTakeover) disabledHere(ctx context.Context, sc *scope, svc *apiregistrationv1.APIService) (bool, error) {
	if !sc.Gone() || svc != nil && svc.Annotations[migrationv1.AnnotationLockedBy] == string(sc.Object.UID) {
		return true, nil
	}
	v1, err := p.v1Info(ctx)
	if err != nil {
		return false, err
	}
	return v1 != nil && lockedBy(v1) == sc.Object.UID, nil
}

// savedOf is what was saved with the state, or else what the disabled APIService bears
// itself, in the name of this migration: a state may be lost. Nil when neither has anything.
func savedOf(text string, svc *apiregistrationv1.APIService, by types.UID) (*apiregistrationv1.APIService, error) {
	saved, err := readSaved("saved."+savedAPIServiceKey+" of the MachineState", text)
	if saved != nil || svc == nil || svc.Annotations[migrationv1.AnnotationLockedBy] != string(by) { // a note without our mark came with a manifest
		return saved, err
	}
	borne, borneErr := readSaved("annotation "+migrationv1.AnnotationSavedAPIService+" of APIService "+svc.Name, svc.Annotations[migrationv1.AnnotationSavedAPIService])
	if borne != nil {
		return borne, nil
	}
	return nil, cmp.Or(err, borneErr)
}

// readSaved reads one of both; it must be about the very APIService.
func readSaved(where, text string) (*apiregistrationv1.APIService, error) {
	if text == "" {
		return nil, nil
	}
	saved := &apiregistrationv1.APIService{}
	err := json.Unmarshal([]byte(text), saved)
	if err == nil && (saved.Name != apiServiceName || saved.Spec.Group != resources.V3Group || saved.Spec.Version != resources.V3Version) {
		err = fmt.Errorf("it is about %s, group %q, version %q", saved.Name, saved.Spec.Group, saved.Spec.Version)
	}
	if err != nil {
		return nil, fsm.Terminal("SavedAPIServiceUnreadable", "%s cannot be used (%w): create APIService %s by hand, then remove what was saved", where, err, apiServiceName)
	}
	return saved, nil
}

// deleteDisabledAPIService drops what was saved, where the APIService is what it was before.
func (p *apiServiceTakeover) deleteDisabledAPIService(ctx context.Context, sc *scope) (outputs, error) {
	svc, err := p.apiService(ctx)
	if err != nil {
		return nil, err
	}
	if svc != nil && svc.Annotations[migrationv1.AnnotationSavedAPIService] != "" {
		err := patch.MutateAndPatchSpec(ctx, p.client, svc, func(svc *apiregistrationv1.APIService) {
			delete(svc.Annotations, migrationv1.AnnotationSavedAPIService)
			delete(svc.Annotations, migrationv1.AnnotationLockedBy)
		})
		if err != nil {
			return nil, fmt.Errorf("remove the note from APIService %s: %w", apiServiceName, err)
		}
	}
	return nil, sc.Save(ctx, savedAPIServiceKey, "")
}

// putBack writes over the one that is there, or makes it anew.
func (p *apiServiceTakeover) putBack(ctx context.Context, svc, saved *apiregistrationv1.APIService) error {
	var err error
	if svc == nil {
		svc = &apiregistrationv1.APIService{}
		copyOnto(svc, saved)
		err = p.client.Create(ctx, svc)
	} else {
		err = patch.MutateAndPatchSpec(ctx, p.client, svc, func(svc *apiregistrationv1.APIService) { copyOnto(svc, saved) })
	}
	if err != nil {
		return fmt.Errorf("restore APIService %s: %w", apiServiceName, err)
	}
	return nil
}

// forgetSaved deletes the disabled APIService and what was saved of it, for good. kube-apiserver makes one for
// the CRDs at once, and v3 is served without a pause.
//
// Turning it in place is not enough. An API server that has seen an APIService of a server goes on to ask that
// server for its kinds when it is turned into one of CRDs, and tells clients of those. Once that server is removed,
// discovery of v3 is stale, and no namespace of the cluster ends any more. Only a deletion makes it forget. One that
// has not heard of the deletion, since the new one came too soon, hears of another.
func (p *apiServiceTakeover) forgetSaved(ctx context.Context, sc *scope) (outputs, error) {
	svc, err := p.apiService(ctx)
	if err != nil {
		return nil, err
	}
	if svc != nil && !isAggregated(svc) && (svc.Annotations[migrationv1.AnnotationSavedAPIService] != "" || p.staleServer(ctx, sc) != "") {
		err := p.client.Delete(ctx, svc, client.Preconditions{UID: &svc.UID, ResourceVersion: &svc.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("delete APIService %s, which kube-apiserver makes anew: %w", apiServiceName, err)
		}
	}
	if stale := p.staleServer(ctx, sc); stale != "" {
		return nil, &fsm.WaitError{After: serverPoll, Message: stale}
	}
	return nil, sc.Save(ctx, savedAPIServiceKey, "")
}
