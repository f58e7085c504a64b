package datastoremigration

import (
	"cmp"
	"context"
	"fmt"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// guards are answered by the cluster as it is. Two of them ask what a migration holds whose state is lost (recover.go).
type guards struct {
	cluster

	fence      *fence
	door       *door
	components *components
}

func (g *guards) v1CRDsInstalled(ctx context.Context, _ *fsm.Machine, _ *migration) (bool, string, error) {
	for _, kind := range g.registry.All() {
		if crd, err := g.crd(ctx, kind.V1CRDName()); crd != nil || err != nil {
			return err == nil, "", err
		}
	}
	return false, "no CRD of group crd.projectcalico.org is installed: there is nothing to migrate", nil
}

// notMigratedYet is false in a cluster that was migrated, but not by this migration: a backup has brought it back
// with another UID, or somebody has removed the finalizer of the one that did it.
func (g *guards) notMigratedYet(ctx context.Context, _ *fsm.Machine, dm *migration) (bool, string, error) {
	d, err := g.datastore(ctx)
	if err != nil {
		return false, "", err
	}
	by := d.migratedBy()
	return by == "" || by == dm.UID, fmt.Sprintf("the cluster was migrated by a DatastoreMigration with the UID %q, as its ClusterInformations say", by), nil
}

// anythingLeft is false where there is no v1, and v3 is in use.
func (g *guards) anythingLeft(ctx context.Context, m *fsm.Machine, dm *migration) (bool, string, error) {
	installed, _, err := g.v1CRDsInstalled(ctx, m, dm)
	if err != nil || installed {
		return installed, "", err
	}
	d, err := g.datastore(ctx)
	return err == nil && !d.v3InUse(), "no CRD of group crd.projectcalico.org is installed, and v3 is in use: there is nothing left to migrate", err
}

// onlyMigration keeps two migrations apart. Of two that are new, the older one
// goes first; the UID decides between twins.
func (g *guards) onlyMigration(ctx context.Context, m *fsm.Machine, dm *migration) (bool, string, error) {
	all, err := g.migrations(ctx)
	if err != nil {
		return false, "", err
	}
	for i := range all {
		other := &all[i]
		if other.UID != dm.UID && goesBefore(m, other, dm) {
			return false, fmt.Sprintf("DatastoreMigration %s is active (%s): delete this one, or the other one first", other.Name, cmp.Or(other.Status.Phase, "new")), nil
		}
	}
	return true, "", nil
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
