// Package datastoremigration is the work behind the DatastoreMigration machine: a
// type and a file for each effect, with what takes it and what releases it. Start
// with newEffects, and Program, which binds names to work. What comes after what is written in
// phases/datastore-migration.yaml, not here; how the status is stored is the
// runner's business, how objects are converted and copied that of resources.
package datastoremigration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/controllers/runner/crdgate"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

type (
	migration = migrationv1.DatastoreMigration
	scope     = runner.Scope[*migration]
	outputs   = map[string]any
)

// effects are all that a migration takes, does and releases, each of a type of its own, which has the client and the
// settings that it needs and the effects that it rests on. What one keeps between calls saves time and no more: all
// state is in the cluster.
type effects struct {
	cluster

	copiers    *copiers
	servers    *servers
	takeover   *apiServiceTakeover
	door       *door
	quota      *etcdQuota
	watchSync  *watchSync
	fence      *fence
	v1Lock     *v1Lock
	v3Lock     *v3Lock
	owners     *owners
	dependents *dependents
	copying    *copying
	dryRuns    *dryRuns
	backups    *backups
	cleanUp    *cleanUp
	lateWrites *lateWrites
	components *components
	guards     *guards
	preflight  *preflight
}

// newEffects gives each effect what it needs. The client reads from and writes to the API server, without a cache and
// without a rate limit of its own.
func newEffects(c client.Client, settings Settings) *effects {
	if settings.Metrics == nil {
		settings.Metrics = NewMetrics(prometheus.NewRegistry(), time.Now)
	}
	if settings.Copies == nil {
		settings.Copies = c
	}
	e := &effects{cluster: cluster{client: c, discovery: settings.Discovery, registry: settings.Registry}}
	on, namespace := e.cluster, settings.CalicoNamespace
	e.copiers = &copiers{cluster: on, copies: settings.Copies, metadata: settings.Metadata, ending: settings.Ending, metrics: settings.Metrics, caches: &caches{}}
	over := *e.copiers
	e.servers = &servers{cluster: on, config: settings.Config, elsewhere: settings.Elsewhere}
	e.takeover = &apiServiceTakeover{cluster: on, servers: e.servers}
	e.quota = &etcdQuota{copiers: over, quota: settings.StoreQuota}
	e.door = &door{copiers: over, takeover: e.takeover, quota: e.quota}
	e.watchSync = &watchSync{copiers: over, door: e.door}
	e.fence = &fence{cluster: on, servers: e.servers, caches: over.caches, watchSync: e.watchSync}
	e.v1Lock = &v1Lock{copiers: over, fence: e.fence, takeover: e.takeover}
	e.v3Lock = &v3Lock{cluster: on, door: e.door, fence: e.fence}
	e.owners = &owners{copiers: over, namespace: namespace, fence: e.fence}
	e.dependents = &dependents{copiers: over, owners: e.owners}
	e.copying = &copying{copiers: over, door: e.door, lock: e.v1Lock, quota: e.quota}
	e.dryRuns = &dryRuns{copiers: over, door: e.door, owners: e.owners}
	e.backups = &backups{cluster: on, namespace: namespace}
	e.cleanUp = &cleanUp{copiers: over, backups: e.backups}
	e.lateWrites = &lateWrites{copiers: over, door: e.door, timeout: cmp.Or(settings.RequestTimeout, DefaultRequestTimeout)}
	e.components = &components{cluster: on, namespace: namespace}
	e.guards = &guards{cluster: on, fence: e.fence, door: e.door, components: e.components}
	e.preflight = &preflight{settings: settings, copiers: over, servers: e.servers, fence: e.fence, door: e.door, quota: e.quota,
		dependents: e.dependents, dryRuns: e.dryRuns, components: e.components}
	return e
}

// Program binds the names of the machine file to the work; the built-in actions
// are there for edited files. The client must not read from a cache.
func Program(c client.Client, settings Settings) *runner.Program[*migration] {
	e := newEffects(c, settings)
	actions := builtin.Actions[*migration](builtin.Options{Client: c, HTTP: settings.HTTP})
	maps.Copy(actions, e.looking())
	maps.Copy(actions, e.switching())
	maps.Copy(actions, e.moving())
	return &runner.Program[*migration]{
		New:      func() *migration { return &migration{} },
		Actions:  actions,
		Guards:   e.guardsByName(),
		Roles:    roles,
		Rights:   crdgate.Rights(migrationv1.CRDName),
		Decorate: decorate,
		Spread:   spreadConflicts,
		Abridge:  (*migration).Abridge,
		Stored: func(m *fsm.Machine, dm *migration) {
			e.copiers.metrics.Stored(m, dm)
			switch p := m.PhaseInfo(dm.Status.Machine.Phase); {
			case p.Terminal != "":
				e.copiers.caches.drop(dm.Name) // it may stay for months
			case p.NoReturn && !p.Deletion:
				e.copiers.caches.of(dm).Unwatch()
			}
		},
		Gone: func(key types.NamespacedName) {
			e.copiers.metrics.Gone(key)
			e.copiers.caches.drop(key.Name)
		},
	}
}

// roleLock is that of the effect which is the lock of v1.
const roleLock = "lock"

var roles = map[string]fsm.Role{
	roleLock: {Doc: "v1 cannot be written while it is held: status.lock, the metrics and the alerts show it.", Of: fsm.RoleOfEffect, Required: true, Unique: true},
}

// isLocked tells whether v1 is locked, or is about to be, and can still be released.
func isLocked(m *fsm.Machine, dm *migration) bool {
	return m.HoldsRole(&dm.Status.Machine, roleLock)
}

// looking are the actions that change nothing.
func (e *effects) looking() map[string]runner.Action[*migration] {
	return map[string]runner.Action[*migration]{
		PreflightAction: {ActionSpec: fsm.ActionSpec{Doc: "Names every reason not to start; changes nothing.",
			Outputs: map[string]fsm.Type{"blockers": fsm.TypeStrings}}, Do: e.preflight.preflight, Rights: e.preflight.preflightRights()},
		PlanAction: {ActionSpec: fsm.ActionSpec{Doc: "Counts, converts and validates every object; changes nothing.",
			Params:  map[string]fsm.Param{"validate": {Type: fsm.TypeBool, Doc: "false: only counts and converts, because the API server validates what is copied ahead; true is the default"}},
			Outputs: map[string]fsm.Type{"problems": fsm.TypeStrings, "objects": fsm.TypeInt}}, Do: e.copying.plan,
			Rights: grants(e.onV1("list"), e.onV1CRDs("get"), e.onV3CRDs("get"))},
		DetectAction: {ActionSpec: fsm.ActionSpec{Doc: "Compares both sides; changes neither. While the aggregated API server owns v3, it sees something through the side door only.",
			Outputs: map[string]fsm.Type{"conflicts": fsm.TypeInt, "examples": fsm.TypeStrings}}, Do: e.copying.detectConflicts,
			Rights: grants(onAPIService("get patch"), e.lists(), e.onV3("get patch"), e.onV3Status("patch"))},
		"Drain": {ActionSpec: fsm.ActionSpec{Doc: "Waits until all admitted writes of v1 have landed.",
			Params: map[string]fsm.Param{
				"quiet":  {Type: fsm.TypeDuration, Doc: "how long v1 must not have been written, after the longest timeout of a validating webhook that is asked about writes of v1"},
				"atMost": {Type: fsm.TypeDuration, Doc: "when to continue nevertheless, if the lock is cooperative only"}},
			Outputs: map[string]fsm.Type{"quiet": fsm.TypeBool}}, Do: untilDeadline(e.v1Lock.drain),
			Rights: grants(webhookRights(), apiServersRights(), e.onV1Lock("patch"), allOf("list", resources.V1Group, e.registry.All(), (*resources.Kind).V1Plural))}, // the lock is v1's, too
		"AwaitV3Served": {ActionSpec: fsm.ActionSpec{Doc: "Waits until every v3 kind is served from its CRD."}, Do: untilDeadline(e.takeover.awaitV3Served),
			Rights: grants(apiServersRights(), onAPIService("get patch"), e.onV1Lock("get"), e.onV3Lock("get"),
				allOf("list", resources.V3Group, e.registry.All(), (*resources.Kind).V3Plural))},
		"Verify": {ActionSpec: fsm.ActionSpec{Doc: "Reads both sides again and compares every object.",
			Outputs: map[string]fsm.Type{"conflicts": fsm.TypeInt, "different": fsm.TypeInt, "examples": fsm.TypeStrings, "verified": fsm.TypeInt}}, Do: e.v1Lock.whileLocked(e.copying.verify),
			Rights: grants(onAPIService("get patch"), e.fence.lockStandsRights(), e.lists(), e.onV3("get patch"), e.onV3Status("patch"))}, // a dry run tells what admission makes of a copy
		"TryV3Writes": {ActionSpec: fsm.ActionSpec{Doc: "Asks by dry runs whether v3 takes what is to be written there later: its lock, and changes and deletions of copies; and whether owners may be taken off v1 objects. Changes nothing.",
			Outputs: map[string]fsm.Type{"refused": fsm.TypeStrings}}, Do: e.dryRuns.tryV3Writes,
			Rights: grants(webhookRights(), onAPIService("get"), e.onV1Lock("get"), e.onV3Lock("get patch delete"), rule("create", resources.V3Group, e.registry.Lock().V3Plural()),
				e.onV3("list patch delete"), e.onV3CRDs("get"), e.onV1("list patch"), e.onV1CRDs("get"))},
		RolloutAction: {ActionSpec: fsm.ActionSpec{Doc: "Looks which components do not run with projectcalico.org/v3 yet, in Calico's namespace, and whether the CNI plugin will.",
			Outputs: map[string]fsm.Type{"namespace": fsm.TypeString, "pending": fsm.TypeStrings, "unset": fsm.TypeStrings, "rolling": fsm.TypeStrings, "restart": fsm.TypeStrings,
				"configMap": fsm.TypeString, "configMapHasGroup": fsm.TypeBool}}, Do: e.components.observeRollout, Rights: grants(observeRolloutRights(), e.datastoreRights())},
	}
}

// switching are the actions that say who may write v1 and v3, and who serves v3.
func (e *effects) switching() map[string]runner.Action[*migration] {
	return map[string]runner.Action[*migration]{
		"LockV1": {ActionSpec: fsm.ActionSpec{Doc: "Sets v1 datastoreReady to false.",
			Params: map[string]fsm.Param{
				"deadline": {Type: fsm.TypeDuration, Doc: "how long the lock may be held before the point of no return"},
				"grace":    {Type: fsm.TypeDuration, Doc: "how long Calico's components, which heed the lock, may end what they have begun before all writes are refused"},
			}}, Do: e.v1Lock.lockV1, Rights: grants(e.fence.lockStandsRights(), e.onV1Lock("patch"))},
		fenceAction: {ActionSpec: fsm.ActionSpec{Doc: "Installs what refuses writes of v1 once it is locked, and proves that it works.",
			Params: map[string]fsm.Param{"prove": {Type: fsm.TypeBool, Doc: "false: a later BlockV1Writes, before the lock, waits and proves it; true is the default"},
				"settle":    {Type: fsm.TypeDuration, Doc: "how long it waits, since it was installed, for API servers to hear of it; 2s, which is twice as long as they need, is the default"},
				"watchFrom": {Type: fsm.TypeInt, Doc: "kinds with so many objects are watched from now on, instead of being listed under the lock; 300 is the default"}}},
			Do: e.blockV1Writes, Rights: e.fence.fenceRights()},
		"AllowV1Writes":    {ActionSpec: fsm.ActionSpec{Doc: "Removes what BlockV1Writes installed, if this migration did."}, Do: e.fence.allowV1Writes, Rights: e.fence.unfenceRights()},
		"RemoveWriteBlock": {ActionSpec: fsm.ActionSpec{Doc: "Removes the fence after the point of no return, when v1 is gone."}, Do: e.fence.removeWriteBlock, Rights: grants(e.fence.unfenceRights(), e.earlierRights())},
		"UnlockV1": {ActionSpec: fsm.ActionSpec{Doc: "Sets v1 datastoreReady to true, if this migration locked it."},
			Do: e.v1Lock.unlockV1, Rights: grants(removeFenceRights(), onFencePolicy("patch"), whoAmI(), e.onV1Lock("get patch"))},
		disableAction: {ActionSpec: fsm.ActionSpec{Doc: "Saves the aggregated APIService with the state and lets the CRDs serve v3."},
			Do: e.takeover.disableAPIService, Rights: onAPIService("get patch")},
		"RestoreAPIService": {ActionSpec: fsm.ActionSpec{Doc: "Puts the saved APIService back."}, Do: e.takeover.restoreAPIService,
			// Where somebody has deleted it; a create cannot be bound to a name.
			Rights: grants(onAPIService("get patch"), rule("create", apiServiceGroup, "apiservices"), e.onV1Lock("get"))},
		"DeleteDisabledAPIService": {ActionSpec: fsm.ActionSpec{Doc: "Deletes the disabled APIService and its saved copy. kube-apiserver creates it again; otherwise API servers keep the aggregated API server's kinds in discovery."},
			Do:     e.takeover.forgetSaved,
			Rights: grants(apiServersRights(), onAPIService("get delete"))},
		lockV3Action: {ActionSpec: fsm.ActionSpec{Doc: "Creates or sets the v3 ClusterInformation with datastoreReady false."}, Do: e.v3Lock.lockV3,
			Rights: grants(onAPIService("get"), e.onV1Lock("get"), e.onV3Lock("get patch"), rule("create", resources.V3Group, e.registry.Lock().V3Plural()))},
		"UnlockV3": {ActionSpec: fsm.ActionSpec{Doc: "Releases the v3 lock. created: keep opens the ClusterInformation that LockV3 created instead of deleting it.",
			Params: map[string]fsm.Param{"created": {Type: fsm.TypeString, Doc: "keep, or delete: the default"}}}, Do: e.v3Lock.unlockV3,
			Rights: grants(onAPIService("get patch"), e.onV1Lock("get patch"), e.onV3Lock("get patch delete"), removeFenceRights())},
	}
}

// moving are the actions that write Calico's objects and CRDs, and what refers to them.
func (e *effects) moving() map[string]runner.Action[*migration] {
	return map[string]runner.Action[*migration]{
		DetachAction: {ActionSpec: fsm.ActionSpec{Doc: "Takes references to Calico objects off objects outside Calico, and notes them there."},
			Do: e.dependents.detachDependents, Rights: append(detachRights(), rbac.Asking)},
		"AttachDependents": {ActionSpec: fsm.ActionSpec{Doc: "Puts the references back. owners: v3 points them to the v3 objects.",
			Params: map[string]fsm.Param{"owners": {Type: fsm.TypeString, Doc: "v1 or v3: whose UIDs; v1 is the default"}}},
			Do: e.dependents.attachDependents, Rights: grants([]rbacv1.PolicyRule{rbac.Asking}, e.owners.awaitOwnersRights(), e.lists(), e.onV1Finalizers(), e.onV3Finalizers())},
		"DetachV1Owners": {ActionSpec: fsm.ActionSpec{Doc: "Takes references to Calico objects off v1 objects, and notes them there."},
			Do: e.owners.detachV1Owners, Rights: grants(e.onV1("list patch"), e.onV1CRDs("get"))},
		"AttachV1Owners": {ActionSpec: fsm.ActionSpec{Doc: "Puts the references back on the v1 objects."},
			Do: e.owners.attachV1Owners, Rights: grants(removeFenceRights(), whoAmI(), e.onV1("list patch"), e.onV1CRDs("get"), e.owners.awaitOwnersRights(), e.onV1Finalizers(), e.onV3Finalizers())},
		BackUpAction: {ActionSpec: fsm.ActionSpec{Doc: "Keeps every v1 object and CRD in Secrets, from which they can be restored.",
			Params: map[string]fsm.Param{"to": {Type: fsm.TypeString, Doc: "Secrets, or None for no backup; Secrets is the default"}}},
			Do: e.backups.backUpV1, Rights: e.backups.backUpRights()},
		"RemoveMigrationAnnotations": {ActionSpec: fsm.ActionSpec{Doc: "Removes our notes from the v3 objects."}, Do: e.copying.removeMigrationAnnotations,
			Rights: grants(e.onV3("list get patch"), e.onV3CRDs("get"), e.onV3Lock("get patch"), e.earlierRights())},
		OpenDoorAction: {ActionSpec: fsm.ActionSpec{Doc: "Adds a served version to the v3 CRDs, through which v3 can be written while the aggregated API server owns it. sideDoor is false where that is refused. Without that server v3 itself is the way, and no CRD is changed.",
			Outputs: map[string]fsm.Type{"sideDoor": fsm.TypeBool}}, Do: e.door.openSideDoor, Rights: grants(onAPIService("get"), e.onV3CRDs("get patch"),
			allOf("list", resources.V3Group, e.registry.All(), (*resources.Kind).V3Plural))},
		CloseDoorAction: {ActionSpec: fsm.ActionSpec{Doc: "Takes that version out of the v3 CRDs again."}, Do: e.door.closeSideDoor, Rights: grants(e.onV3CRDs("get patch"), e.door.handOverRights())},
		"HandOverFields": {ActionSpec: fsm.ActionSpec{Doc: "Gives the fields of v3 objects to the field managers that own them in v1, under version v3, for server-side apply."},
			Do: e.door.handOverFields, Rights: e.door.handOverRights()},
		CopyAction: {ActionSpec: fsm.ActionSpec{Doc: "Copies every object to v3; what is there already is compared.",
			Params: map[string]fsm.Param{
				"ahead":  {Type: fsm.TypeBool, Doc: "copy through the side door while nothing is locked, again and again; what is refused is an output then"},
				"rounds": {Type: fsm.TypeInt, Doc: "how often at most; 5 is the default"},
				"until":  {Type: fsm.TypeInt, Doc: "a round that changes fewer objects is the last one; 100 is the default"}},
			Outputs: map[string]fsm.Type{"conflicts": fsm.TypeInt, "examples": fsm.TypeStrings, "objects": fsm.TypeInt, "ownersWithheld": fsm.TypeInt, "rejected": fsm.TypeStrings}}, Do: e.copying.copyResources,
			Rights: grants(webhookRights(), storeRights(), e.door.warmRights(), onAPIService("get patch"), e.fence.lockStandsRights(), e.lists(), e.onV3("get create patch delete"), e.onV3Status("patch"), e.onV3Finalizers())},
		"DeleteCopies": {ActionSpec: fsm.ActionSpec{Doc: "Deletes the v3 objects that this migration created."}, Do: e.copying.deleteCopies,
			Rights: grants(e.onV3("list get patch delete"), e.onV1CRDs("get"), e.onV3CRDs("get"), onAPIService("get patch"))},
		"RemapOwners": {ActionSpec: fsm.ActionSpec{Doc: "Adds the owner references that were withheld while the owner was not copied yet.",
			Outputs: map[string]fsm.Type{"ownersMissing": fsm.TypeInt}}, Do: e.v1Lock.whileLocked(e.copying.remapOwners),
			Rights: grants(onAPIService("get patch"), e.fence.lockStandsRights(), e.lists(), e.onV3("get patch"), e.onV3Finalizers())},
		"BringLateWrites": {ActionSpec: fsm.ActionSpec{Doc: "Brings to v3 what was written in v1 after both sides were compared, until no request can be under way any more that was let in before the lock.",
			Outputs: map[string]fsm.Type{"watching": fsm.TypeBool, "conflicts": fsm.TypeInt}}, Do: e.lateWrites.bring, Rights: e.lateWrites.rights()},
		CleanUpAction: {ActionSpec: fsm.ActionSpec{Doc: "Deletes the v1 CRDs of the migrated kinds, one at a time, if v1 still holds what was verified."},
			Do: e.cleanUp.deleteV1CRDs, Rights: grants([]rbacv1.PolicyRule{rbac.Asking}, onAPIService("get"), e.onV1CRDs("get patch delete"), e.onV3CRDs("get"), e.onV1("list"), e.backups.backUpRights())},
	}
}

// blockV1Writes only looks under the lock: a fence that was down for a moment has let somebody in.
func (e *effects) blockV1Writes(ctx context.Context, sc *scope) (outputs, error) {
	if sc.Object.Status.Lock != nil {
		return nil, e.v1Lock.lockStands(ctx, sc)
	}
	return e.fence.blockV1Writes(ctx, sc)
}

func (e *effects) guardsByName() map[string]runner.Guard[*migration] {
	return map[string]runner.Guard[*migration]{
		"v1CRDsInstalled": {Doc: "At least one CRD of crd.projectcalico.org is there.", Open: e.guards.v1CRDsInstalled, Rights: e.onV1CRDs("get")},
		"notMigratedYet":  {Doc: "No other migration has moved this cluster to v3, as the cluster says.", Open: e.guards.notMigratedYet, Rights: e.datastoreRights()},
		"anythingLeft":    {Doc: "A CRD of crd.projectcalico.org is there, or v3 is not in use.", Open: e.guards.anythingLeft, Rights: grants(e.onV1CRDs("get"), e.datastoreRights())},
		"onlyMigration": {Doc: "No other DatastoreMigration is active.", Open: e.guards.onlyMigration,
			Rights: rule("list", migrationv1.GroupVersion.Group, "datastoremigrations")},
		"v3OpenedByMigration": {Doc: "This migration has passed the point of no return, as the cluster says.", Open: e.guards.v3OpenedByMigration, Rights: e.guards.tracesRights()},
		"leftByMigration":     {Doc: "Something is in place that this migration took, as the cluster says.", Open: e.guards.leftByMigration, Rights: e.guards.tracesRights()},
	}
}

// What status.machine.result carries of a list: entries, and characters of each.
const (
	exampleLimit  = 5
	exampleLength = 512
)

// asIs shows a text.
func asIs(text string) string { return text }

// examples shortens a list for outputs.
func examples[E any](items []E, show func(E) string) []string {
	return some(items, exampleLimit, exampleLength, show)
}

// some are the first so many of a list, of each so many characters; the rest is counted.
func some[E any](items []E, most, length int, show func(E) string) []string {
	out := []string{}
	for i, item := range items {
		if i == most {
			return append(out, fmt.Sprintf("and %d more", len(items)-i))
		}
		out = append(out, v1alpha1.Shorten(show(item), length))
	}
	return out
}
