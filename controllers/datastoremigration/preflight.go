package datastoremigration

import (
	"context"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

// preflight asks whatever stands in the way of a migration. The checks of an effect are in its file, the others in
// checks_*.go.
type preflight struct {
	copiers

	settings Settings

	servers    *servers
	fence      *fence
	door       *door
	quota      *etcdQuota
	dependents *dependents
	dryRuns    *dryRuns
	components *components
}

func (s *preflight) preflightRights() []rbacv1.PolicyRule {
	return grants([]rbacv1.PolicyRule{rbac.Asking}, apiServersRights(), s.onV1CRDs("get"), s.onV3CRDs("get"), s.onV1Lock("get patch"), onAllOfV1("list"), s.builtInTierRights(), admissionRights(),
		peerRights(), tigeraOperatorRights(), cniRights(), storeRights(), webhookRights(), rule("list", migrationv1.GroupVersion.Group, "datastoremigrations"))
}

// preflight names every reason not to start. It runs before the finalizer has
// any consequence and before anything is locked, and it changes nothing. What is
// worth knowing is told once, when nothing stands in the way.
func (s *preflight) preflight(ctx context.Context, sc *scope) (outputs, error) {
	blockers, warnings, err := check.Split(check.Ask(ctx, append(s.checks(sc.Machine, sc.Object), check.KubernetesVersion(s.discovery))))
	if err != nil && len(blockers) == 0 { // else it may be for a right that is named in them
		return nil, err
	}
	if len(blockers) == 0 && len(warnings) > 0 {
		sc.Warn("ChecksWarn", "%s", strings.Join(examples(warnings, asIs), "; "))
	}
	return outputs{"blockers": examples(blockers, asIs)}, nil
}

// Checks are what Preflight asks, for people who ask before there is a migration:
// `manager check` and `kubectl phasegate check`. They are asked as the client's
// account. What is asked about any cluster, its version, is not among them.
func Checks(c client.Client, settings Settings, machine *fsm.Machine) []check.Check {
	s := newEffects(c, settings).preflight
	return append(s.checks(machine, nil), s.mayCleanUp(machine))
}

// mayCleanUp tells early what a clean-up would wait for.
func (s *preflight) mayCleanUp(machine *fsm.Machine) check.Check {
	return check.Check{ID: "cleanup-rights", Title: "the account may clean up after a completed migration", Run: func(ctx context.Context) ([]check.Finding, error) {
		needs, _ := rbac.Only(Needs(machine, s.settings), BackUpAction, CleanUpAction)
		missing, err := rbac.Missing(ctx, s.client, needs)
		if err != nil || len(missing) == 0 {
			return nil, err
		}
		return []check.Finding{{Level: check.Warning,
			Message: fmt.Sprintf("this account may not %s (needed by %s; %d of %d such rights are missing)", missing[0], strings.Join(missing[0].For, ", "), len(missing), len(needs)),
			Remedy:  "grant it before you delete a completed migration (Helm: controllers.datastoremigration.cleanup.enabled=true)"}}, nil
	}}
}

// checks are those of one migration, which may hold the lock already; nil where there
// is none yet.
func (s *preflight) checks(machine *fsm.Machine, dm *migration) []check.Check {
	// The right to clean up may be granted later: the action asks for it itself.
	all := Needs(machine, s.settings)
	_, needs := rbac.Only(all, BackUpAction, CleanUpAction)
	_, needs = rbac.Only(needs, DetachAction) // asked by a check that may be waived
	_, needs = rbac.Only(needs, OpenDoorAction, CloseDoorAction)
	copyAhead := s.door.canCopyAhead(all)
	checks := []check.Check{
		check.Rights(s.client, needs, check.GrantRights), s.v3CRDs(), s.builtInTiers(), s.lockIsFree(dm), s.fence.canBeFenced(), s.admissionPolicies(),
		s.v1Kinds(), s.selectors(), s.components.peerController(dm), s.tigeraOperator(dm), s.dependents.canBeProtected(), copyAhead, s.door.copiesInSight(), s.components.cniFollows(), s.v1Webhooks(), s.dryRuns.v3Webhooks(copyAhead), s.quota.hasSpace(dm),
	}
	checks = append(checks, s.servers.everyServer()...)
	if s.settings.Pod.Name != "" {
		checks = append(checks, s.managerIsLeft())
	}
	if s.settings.MemoryLimit > 0 {
		checks = append(checks, s.hasMemory(dm))
	}
	return s.heedWaivers(dm, checks)
}
