package datastoremigration

import (
	"cmp"
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

func (s *steps) awaitV3ServedRights() []rbacv1.PolicyRule {
	return grants(apiServersRights(), onAPIService("get patch"), s.onV1Lock("get"), s.onV3Lock("get"),
		allOf("list", resources.V3Group, s.Registry.All(), (*resources.Kind).V3Plural))
}

// awaitV3Served waits until every API server answers every v3 kind, and answers it from its
// CRD: an aggregated server that still answers would make every copy look as if
// it were there already.
func (s *steps) awaitV3Served(ctx context.Context, sc *scope) (outputs, error) {
	ctx, done, err := untilDeadline(ctx, sc)
	if err != nil {
		return nil, err
	}
	defer done()
	svc, err := s.apiService(ctx)
	if err != nil {
		return nil, err
	}
	if svc == nil || isAggregated(svc) {
		return nil, cmp.Or(s.staysParked(ctx, sc), fsm.Wait("APIService %s does not point to the CRDs yet", apiServiceName))
	}
	_, err = s.eachServer(ctx, sc, newest, s.serverServesV3)
	return nil, err
}

func (s *steps) serverServesV3(ctx context.Context, server apiServer) error {
	group, listing := errgroup.WithContext(ctx)
	for _, kind := range s.Registry.All() {
		group.Go(func() error { return served(listing, server.client, kind) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	aggregated, err := s.answersFromV1(ctx, server.client)
	if err == nil && aggregated {
		return fsm.Wait("%s is still answered by the aggregated API server, at %s", apiServiceName, server.name())
	}
	return err
}

func served(ctx context.Context, c client.Client, kind *resources.Kind) error {
	list := &metav1.PartialObjectMetadataList{}
	gvk := kind.V3GVK()
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	err := c.List(ctx, list, client.Limit(1))
	switch {
	case apierrs.IsNotFound(err), meta.IsNoMatchError(err), apierrs.IsServiceUnavailable(err):
		return fsm.Wait("%s is not served yet", kind.V3CRDName())
	case err != nil:
		return fmt.Errorf("list %s: %w", kind.V3CRDName(), err)
	}
	return nil
}

// answersFromV1 tells whether v3 shows v1's own objects, as the aggregated server
// does. The lock object is asked for, because every cluster has it.
func (s *steps) answersFromV1(ctx context.Context, c client.Client) (bool, error) {
	v1, err := readLock(ctx, c, s.Registry.Lock().V1GVK())
	if err != nil || v1 == nil {
		return false, err
	}
	v3, err := readLock(ctx, c, s.Registry.Lock().V3GVK())
	if err != nil || v3 == nil {
		return false, err
	}
	return resources.IsMirror(v1.GetUID(), v3.GetUID()), nil
}
