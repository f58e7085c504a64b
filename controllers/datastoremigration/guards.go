package datastoremigration

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

func (s *steps) v1CRDsInstalled(ctx context.Context, _ *migration) (bool, string, error) {
	for _, kind := range s.Registry.All() {
		if crd, err := s.crd(ctx, kind.V1CRDName()); crd != nil || err != nil {
			return err == nil, "", err
		}
	}
	return false, "no CRD of group crd.projectcalico.org is installed: there is nothing to migrate", nil
}

// datastore is what the locks of both sides say.
type datastore struct {
	// v1 and v3 are the ClusterInformation of either side; nil where there is none. v3's is nil, too, while v3 is
	// answered by a server, which would show v1's.
	v1, v3 *unstructured.Unstructured
}

func (s *steps) datastore(ctx context.Context) (d datastore, err error) {
	svc, err := s.apiService(ctx)
	if err != nil {
		return d, err
	}
	if d.v1, err = s.clusterInformation(ctx, s.Registry.Lock().V1GVK()); err != nil && !gone(err) {
		return d, err
	}
	if isAggregated(svc) {
		return d, nil
	}
	d.v3, err = s.clusterInformation(ctx, s.Registry.Lock().V3GVK())
	if gone(err) {
		err = nil
	}
	return d, err
}

// v3InUse: v3 is served from its CRDs, and open.
func (d datastore) v3InUse() bool { return d.v3 != nil && isReady(d.v3) }

// migratedBy is the UID of the migration that has moved the cluster to v3: v1 is closed in its name, and v3 is
// in use and was made by it. It is empty where that is not so, or cannot be told.
func (d datastore) migratedBy() types.UID {
	if d.v1 == nil || isReady(d.v1) || !d.v3InUse() || createdBy(d.v3) != lockedBy(d.v1) {
		return ""
	}
	return lockedBy(d.v1)
}

// notMigratedYet is false in a cluster that was migrated, but not by this migration: a backup has brought it back
// with another UID, or somebody has removed the finalizer of the one that did it.
func (s *steps) notMigratedYet(ctx context.Context, dm *migration) (bool, string, error) {
	d, err := s.datastore(ctx)
	if err != nil {
		return false, "", err
	}
	by := d.migratedBy()
	return by == "" || by == dm.UID, fmt.Sprintf("the cluster was migrated by a DatastoreMigration with the UID %q, as its ClusterInformations say", by), nil
}

// anythingLeft is false where there is no v1, and v3 is in use.
func (s *steps) anythingLeft(ctx context.Context, dm *migration) (bool, string, error) {
	installed, _, err := s.v1CRDsInstalled(ctx, dm)
	if err != nil || installed {
		return installed, "", err
	}
	d, err := s.datastore(ctx)
	return err == nil && !d.v3InUse(), "no CRD of group crd.projectcalico.org is installed, and v3 is in use: there is nothing left to migrate", err
}

func (s *steps) datastoreRights() []rbacv1.PolicyRule {
	return grants(onAPIService("get"), s.onV1Lock("get"), s.onV3Lock("get"))
}

// onlyMigration keeps two migrations apart. Of two that are new, the older one
// goes first; the UID decides between twins.
func (s *steps) onlyMigration(ctx context.Context, m *fsm.Machine, dm *migration) (bool, string, error) {
	all, err := s.migrations(ctx)
	if err != nil {
		return false, "", err
	}
	for i := range all {
		other := &all[i]
		if other.UID != dm.UID && goesBefore(m, other, dm) {
			return false, fmt.Sprintf("DatastoreMigration %s is active (%s): delete this one, or the other one first", other.Name, displayPhase(other)), nil
		}
	}
	return true, "", nil
}

func displayPhase(dm *migration) string {
	if dm.Status.Phase == "" {
		return "new"
	}
	return dm.Status.Phase
}

// goesBefore tells whether other has begun, or will begin before dm.
func goesBefore(m *fsm.Machine, other, dm *migration) bool {
	switch phase := other.Status.Machine.Phase; {
	case len(other.Status.Machine.HeldNames()) > 0:
		return true
	case m.PhaseInfo(phase).Terminal == v1alpha1.PhaseFailure:
		return false
	case phase != "" && len(other.Finalizers) > 0:
		return true
	}
	a, b := other.CreationTimestamp.Time, dm.CreationTimestamp.Time
	return a.Before(b) || a.Equal(b) && other.UID < dm.UID
}
