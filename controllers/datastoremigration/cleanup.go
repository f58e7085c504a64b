package datastoremigration

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CleanUpAction is the name of the one action whose rights may be granted later.
const CleanUpAction = "DeleteV1CRDs"

// crdGonePoll is how often a CRD that is being deleted is looked at.
const crdGonePoll = 100 * time.Millisecond

// deleteV1CRDs deletes the v1 CRDs of the registry's kinds, one after the other,
// and waits until each is gone. CRDs of kinds that were not migrated stay. The
// lock goes last: while anything of v1 is left, it stays locked.
func (s *steps) deleteV1CRDs(ctx context.Context, sc *scope) (outputs, error) {
	for _, kind := range s.Registry.All() {
		if err := s.deleteCRD(ctx, sc, kind.V1CRDName()); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (s *steps) deleteCRD(ctx context.Context, sc *scope, name string) error {
	for {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		err := s.client.Get(ctx, types.NamespacedName{Name: name}, crd)
		if apierrs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read CRD %s: %w", name, err)
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
