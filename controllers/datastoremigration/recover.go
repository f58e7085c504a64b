package datastoremigration

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// A migration whose state is lost is recognized by what bears its UID in the cluster: the
// lock of v1, that of v3, the fence and the side door. The first of them is taken before
// anything else, and the last released after everything else.

// wasLost tells whether the state of the migration was lost, and with it what was saved.
func wasLost(dm *migration) bool {
	return slices.ContainsFunc(dm.Status.Machine.History, func(t v1alpha1.Transition) bool { return t.From == "" && t.Reason != program.ReasonCreated })
}

// traces is what bears the UID of a migration.
type traces struct {
	// v1Locked: v1 is closed by it. v3Ours: v3's lock was created by it; v3Open: v3 is open.
	v1Locked, v3Ours, v3Open bool
	// left names what is in place.
	left []string
}

func (g *guards) traces(ctx context.Context, dm *migration) (traces, error) {
	t := traces{}
	for _, look := range []func(context.Context, *migration, *traces) error{g.notThePeers, g.lockTraces, g.fence.fenceTraces, g.door.doorTraces} {
		if err := look(ctx, dm, &t); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (g *guards) lockTraces(ctx context.Context, dm *migration, t *traces) error {
	v1, err := g.v1Info(ctx)
	if err != nil {
		return err
	}
	if t.v1Locked = v1 != nil && !isReady(v1) && lockedBy(v1) == dm.UID; t.v1Locked {
		t.left = append(t.left, "the lock of v1")
	}
	v3, err := g.v3InReach(ctx)
	if err != nil || v3 == nil {
		return err
	}
	t.v3Ours, t.v3Open = createdBy(v3) == dm.UID, isReady(v3)
	if t.v3Ours || lockedBy(v3) == dm.UID {
		t.left = append(t.left, "the lock of v3")
	}
	return nil
}

// notThePeers is an error where Calico's own controller may be at work on the object: its
// finalizer has the same name, and what it has left is not ours to release.
func (g *guards) notThePeers(ctx context.Context, dm *migration, _ *traces) error {
	if dm.Name != peerName {
		return nil
	}
	acts, err := g.components.peerMayAct(ctx)
	if err != nil || !acts {
		return err
	}
	return fmt.Errorf("Calico's own controller (%s) acts on a DatastoreMigration with the name %s, and this one has no state of ours: let that controller finish, or take its rights away first", g.components.peerUser(), peerName) //nolint:staticcheck // a name begins with a capital
}

// v3OpenedByMigration tells whether the migration has passed the point of no return.
func (g *guards) v3OpenedByMigration(ctx context.Context, _ *fsm.Machine, dm *migration) (bool, string, error) {
	t, err := g.traces(ctx, dm)
	if err != nil {
		return false, "", err
	}
	svc, err := g.apiService(ctx)
	if err != nil {
		return false, "", err
	}
	served := !isAggregated(svc)
	if t.v1Locked && served && t.v3Open && !t.v3Ours {
		return false, "", fmt.Errorf("v1 is closed by this migration and v3 is open, but its ClusterInformation %s was not made by it: it is unknown whether v3 is in use already; "+
			"restore MachineState %s.%s from a backup; or, if Calico's components use v3, annotate that object with %s=%s", clusterInformationName, MachineName, dm.UID, migrationv1.AnnotationMigratedBy, dm.UID)
	}
	return served && t.v3Open && t.v3Ours, fmt.Sprintf("v3 is served from its CRDs: %t, open: %t, its lock made by this migration: %t", served, t.v3Open, t.v3Ours), nil
}

// leftByMigration tells whether anything is in place that the migration has to release.
func (g *guards) leftByMigration(ctx context.Context, _ *fsm.Machine, dm *migration) (bool, string, error) {
	t, err := g.traces(ctx, dm)
	if err != nil {
		return false, "", err
	}
	return len(t.left) > 0, fmt.Sprintf("in place in its name: %v", t.left), nil
}

func (g *guards) tracesRights() []rbacv1.PolicyRule {
	return grants(peerRights(), onAPIService("get"), onFence("get"), g.onV1Lock("get"), g.onV3Lock("get"), g.onV3CRDs("get"))
}
