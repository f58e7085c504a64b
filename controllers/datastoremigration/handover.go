package datastoremigration

import (
	"context"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/datastoremigration/sidedoor"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/inflight"
)

func (s *door) handOverRights() []rbacv1.PolicyRule {
	return grants(onAPIService("get"), s.lists(), s.onV3("patch"), s.onV3Lock("get patch"), storeRights())
}

// handOverFields gives the fields of v3 objects to the managers that own them in v1, once v3 is open: a server-side
// apply of one of them finds its own fields, and a conflict where it would have found one in v1. That stores each
// object once more: it waits for room where there is none, and nobody else waits for it.
func (s *door) handOverFields(ctx context.Context, sc *scope) (outputs, error) {
	ctx, done := s.quota.whileQuotaLasts(ctx, sc.Clock, true)
	defer done()
	err := ctx.Err()
	if err == nil {
		err = s.mustReachV3(ctx, sc, func(version string) error {
			return s.handOver(ctx, sc, version, func(string) bool { return true })
		})
	}
	if near := nearlyFull(ctx); err != nil && near != nil {
		err = fsm.Wait("v3 is open; its objects are given their field managers when there is room to store them once more: %v: defragment it or raise its quota", near)
	}
	return nil, err
}

// handOver also leaves no entry of the side door's version in managedFields: after it is taken out of the CRDs, the
// API server would refuse every server-side apply of an object that has one.
func (s *door) handOver(ctx context.Context, sc *scope, version string, due func(kind string) bool) error {
	refused, err := s.copierOver(sc.Object, version).HandOver(inflight.WithLowPriority(ctx), due)
	if err != nil {
		return err
	}
	if n := len(refused); n > 0 {
		return fsm.Wait("the managedFields of %d v3 objects cannot be changed: %s. Server-side apply would fail on them without version %s, which stays until they can",
			n, strings.Join(examples(refused, showProblem), "; "), migrationv1.SideDoorVersion)
	}
	lock := s.registry.Through(version).Lock()
	if !due(lock.Name()) {
		return nil
	}
	info, err := s.clusterInformation(ctx, lock.V3GVK())
	if err != nil || info == nil {
		return err
	}
	entries, changes, err := resources.HandedOver(info.GetManagedFields(), nil, "")
	if err == nil && changes {
		err = patch.MutateAndPatchSpec(ctx, s.client, info, func(u *unstructured.Unstructured) { u.SetManagedFields(entries) })
	}
	if err != nil {
		return fmt.Errorf("change the managedFields of the v3 ClusterInformation: %w", err)
	}
	return nil
}

// retireDoor is handOver before the side door is closed, of the kinds whose door is not closed yet: the others have been
// handed over before, and to look again would open theirs, so that a manager that dies after each write would never end.
// Where v3 is out of reach, nothing was written through the door.
func (s *door) retireDoor(ctx context.Context, sc *scope) error {
	crds, err := s.crds(ctx, (*resources.Kind).V3CRDName)
	if err != nil {
		return err
	}
	due := map[string]bool{}
	for _, crd := range crds {
		if sidedoor.Has(crd.CustomResourceDefinition) || crd.Annotations[migrationv1.AnnotationSideDoor] == string(sc.Object.UID) {
			due[crd.kind.Name()] = true
		}
	}
	if len(due) == 0 {
		return nil
	}
	_, err = s.overV3(ctx, sc, func(version string) error {
		return s.handOver(ctx, sc, version, func(kind string) bool { return due[kind] })
	})
	return err
}
