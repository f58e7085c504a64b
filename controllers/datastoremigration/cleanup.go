package datastoremigration

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/rights"
	"github.com/phasegate/phasegate/fsm"
)

// CleanUpAction is the name of the one action whose rights may be granted later.
const CleanUpAction = "DeleteV1CRDs"

// crdGonePoll is how often a CRD that is being deleted is looked at.
const crdGonePoll = 100 * time.Millisecond

// deleteV1CRDs deletes the v1 CRDs of the registry's kinds, one after the other,
// and waits until each is gone. CRDs of kinds that were not migrated stay. The
// lock goes last: while anything of v1 is left, it stays locked.
func (s *steps) deleteV1CRDs(ctx context.Context, sc *scope) (outputs, error) {
	var left []string
	for _, kind := range s.Registry.All() {
		crd, err := s.v1CRD(ctx, kind.V1CRDName())
		if err != nil {
			return nil, err
		}
		if crd != nil {
			left = append(left, crd.Name)
		}
	}
	if err := s.mayDelete(ctx, left); err != nil {
		return nil, err
	}
	for _, name := range left {
		if err := s.deleteCRD(ctx, sc, name); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// mayDelete waits for the right to delete CRDs, which may be granted as late as
// this. Without the right to all of them, none is deleted.
func (s *steps) mayDelete(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	missing, err := rights.Missing(ctx, s.client, rights.Flatten(CleanUpAction, rights.Rule("delete", crdGroup, crdResource, names...)))
	if err != nil || len(missing) == 0 {
		return err
	}
	return fsm.Wait("%d of %d v1 CRDs may not be deleted by this account, so none is: it may not %s. Grant it (Helm: controllers.datastoremigration.cleanup.enabled=true), or delete the CRDs yourself",
		len(missing), len(names), missing[0])
}

// v1CRD is nil where there is none.
func (s *steps) v1CRD(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	err := s.client.Get(ctx, types.NamespacedName{Name: name}, crd)
	if apierrs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CRD %s: %w", name, err)
	}
	return crd, nil
}

func (s *steps) deleteCRD(ctx context.Context, sc *scope, name string) error {
	for {
		crd, err := s.v1CRD(ctx, name)
		if crd == nil || err != nil {
			return err
		}
		if crd.DeletionTimestamp.IsZero() {
			sc.Report(func(dm *migration) { dm.Status.Message = "Deleting CRD " + name })
			err := s.client.Delete(ctx, crd, client.Preconditions{UID: &crd.UID})
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete CRD %s: %w", name, err)
			}
		}
		if err := sleep(ctx, sc.Clock, crdGonePoll); err != nil {
			return err
		}
	}
}
