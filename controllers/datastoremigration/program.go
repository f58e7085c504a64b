// Package datastoremigration is the work behind the DatastoreMigration machine:
// one file per step. What comes after what is written in
// phases/datastore-migration.yaml, not here; how the status is stored is the
// runner's business, how objects are converted and copied that of resources.
package datastoremigration

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/crdgate"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

type (
	migration = migrationv1.DatastoreMigration
	scope     = runner.Scope[*migration]
	outputs   = map[string]any
)

// Settings are what the steps need to know of the cluster.
type Settings struct {
	// Registry lists the kinds to migrate.
	Registry *resources.Registry
	// CalicoNamespace is where calico-node, calico-typha and
	// calico-kube-controllers run.
	CalicoNamespace string
	// Config is what the client was made of, to ask each API server by itself; nil: all that is asked
	// goes where the client leads.
	Config *rest.Config
	// Elsewhere says that the checks are not asked from where the manager runs.
	Elsewhere bool
	// Discovery tells what the API server serves, for the checks.
	Discovery discovery.DiscoveryInterface
	// Metadata is for watches of the kinds with many objects; nil: they are listed under the lock.
	Metadata metadata.Interface
	// Ending is closed when the controller ends, and its watches with it; nil: never.
	Ending <-chan struct{}
	// HTTP is where the built-in HTTPRequest may go.
	HTTP builtin.HTTP
	// Copying is for the requests of copies, which are many; nil: they go where all others
	// go. Copies is the client made of it, by Gate.
	Copying *rest.Config
	Copies  client.Client
	// Polite is to leave others most of the API server while nothing is locked, through a transport of Copying
	// that knows inflight.Politely.
	Polite bool
	// Pod is the one that this program runs in; empty outside of pods.
	Pod types.NamespacedName
	// MemoryLimit is how many bytes of memory this program may use; 0: as many as there are.
	MemoryLimit int64
	// Manager is that of runner.Busy.
	Manager string
	// Limits are those of the controller.
	Limits runner.Limits
	// StoreQuota is how many bytes etcd may have (its --quota-backend-bytes); 0: DefaultStoreQuota.
	StoreQuota int64
	// Metrics are what is measured; nil: nobody looks.
	Metrics *Metrics
}

// steps is the receiver of every action and guard. What it keeps between calls saves
// time and no more: all state is in the cluster.
type steps struct {
	Settings
	caches caches
	direct directClients
	// client reads from and writes to the API server, without a cache and
	// without a rate limit of its own.
	client client.Client
}

// newSteps fills in what settings leave away.
func newSteps(c client.Client, settings Settings) *steps {
	if settings.Metrics == nil {
		settings.Metrics = NewMetrics(prometheus.NewRegistry(), time.Now)
	}
	if settings.Copies == nil {
		settings.Copies = c
	}
	return &steps{Settings: settings, client: c}
}

// Program binds the names of the machine file to the work; the built-in actions
// are there for edited files. The client must not read from a cache.
func Program(c client.Client, settings Settings) *runner.Program[*migration] {
	s := newSteps(c, settings)
	actions := builtin.Actions[*migration](builtin.Options{Client: c, HTTP: settings.HTTP})
	maps.Copy(actions, s.actions())
	return &runner.Program[*migration]{
		New:      func() *migration { return &migration{} },
		Actions:  actions,
		Guards:   s.guards(),
		Roles:    roles,
		Rights:   []rbacv1.PolicyRule{crdgate.Rights(migrationv1.CRDName)},
		Decorate: decorate,
		Spread:   spreadConflicts,
		Abridge:  (*migration).Abridge,
		Stored: func(m *fsm.Machine, dm *migration) {
			s.Metrics.Stored(m, dm)
			switch p := m.PhaseInfo(dm.Status.Machine.Phase); {
			case p.Terminal != "":
				s.caches.drop(dm.Name) // it may stay for months
			case p.NoReturn && !p.Deletion:
				s.caches.of(dm).Unwatch()
			}
		},
		Gone: func(key types.NamespacedName) {
			s.Metrics.Gone(key)
			s.caches.drop(key.Name)
		},
	}
}

// roleLock is that of the effect which is the lock of v1.
const roleLock = "lock"

var roles = map[string]fsm.Role{
	roleLock: {Doc: "Nobody can write v1 while it is held: status.lock, the metrics and the alerts tell of it.", Of: fsm.RoleOfEffect, Required: true, Unique: true},
}

// isLocked tells whether v1 is locked, or is about to be, and can still be given back.
func isLocked(m *fsm.Machine, dm *migration) bool {
	return m.HoldsRole(&dm.Status.Machine, roleLock)
}

func (s *steps) actions() map[string]runner.Action[*migration] {
	all := s.looking()
	maps.Copy(all, s.acting())
	return all
}

// looking are the actions that change nothing.
func (s *steps) looking() map[string]runner.Action[*migration] {
	return map[string]runner.Action[*migration]{
		PreflightAction: {ActionSpec: fsm.ActionSpec{Doc: "Names every reason not to start; changes nothing.",
			Outputs: map[string]fsm.Type{"blockers": fsm.TypeStrings}}, Do: s.preflight, Rights: s.preflightRights()},
		PlanAction: {ActionSpec: fsm.ActionSpec{Doc: "Counts, converts and validates every object; changes nothing.",
			Params:  map[string]fsm.Param{"validate": {Type: fsm.TypeBool, Doc: "false: only counts and converts, because the API server validates what is copied ahead; true is the default"}},
			Outputs: map[string]fsm.Type{"problems": fsm.TypeStrings, "objects": fsm.TypeInt}}, Do: s.plan,
			Rights: grants(s.onV1("list"), s.onV1CRDs("get"), s.onV3CRDs("get"))},
		DetectAction: {ActionSpec: fsm.ActionSpec{Doc: "Compares both sides; changes nothing. While the aggregated API server owns v3, it sees something through the side door only.",
			Outputs: map[string]fsm.Type{"conflicts": fsm.TypeInt, "examples": fsm.TypeStrings}}, Do: s.detectConflicts,
			Rights: grants(onAPIService("get"), s.lists(), s.onV3("get patch"), s.onV3Status("patch"))},
		"Drain": {ActionSpec: fsm.ActionSpec{Doc: "Waits until nobody writes v1 any more.",
			Params: map[string]fsm.Param{
				"quiet":  {Type: fsm.TypeDuration, Doc: "how long nobody may have written"},
				"atMost": {Type: fsm.TypeDuration, Doc: "when to go on all the same, where the lock is cooperative only"}},
			Outputs: map[string]fsm.Type{"quiet": fsm.TypeBool}}, Do: s.drain, Rights: s.drainRights()},
		"AwaitV3Served": {ActionSpec: fsm.ActionSpec{Doc: "Waits until every v3 kind is served from its CRD."}, Do: s.awaitV3Served, Rights: s.awaitV3ServedRights()},
		"Verify": {ActionSpec: fsm.ActionSpec{Doc: "Reads both sides again and compares every object.",
			Outputs: map[string]fsm.Type{"conflicts": fsm.TypeInt, "different": fsm.TypeInt, "examples": fsm.TypeStrings, "verified": fsm.TypeInt}}, Do: s.verify,
			Rights: grants(onAPIService("get patch"), s.lockStandsRights(), s.lists(), s.onV3("get patch"), s.onV3Status("patch"))}, // a dry run tells what admission makes of a copy
		"TryV3Writes": {ActionSpec: fsm.ActionSpec{Doc: "Asks by dry runs whether v3 takes what is to be written there later: its lock, and changes and deletions of copies; changes nothing.",
			Outputs: map[string]fsm.Type{"refused": fsm.TypeStrings}}, Do: s.tryV3Writes, Rights: s.tryV3WritesRights()},
		RolloutAction: {ActionSpec: fsm.ActionSpec{Doc: "Looks which components do not run with projectcalico.org/v3 yet, in Calico's namespace, and whether the CNI plugin will.",
			Outputs: map[string]fsm.Type{"namespace": fsm.TypeString, "pending": fsm.TypeStrings, "unset": fsm.TypeStrings, "rolling": fsm.TypeStrings, "restart": fsm.TypeStrings,
				"configMap": fsm.TypeString, "configMapHasGroup": fsm.TypeBool}}, Do: s.observeRollout, Rights: grants(observeRolloutRights(), s.datastoreRights())},
	}
}

// acting are the actions that write.
func (s *steps) acting() map[string]runner.Action[*migration] {
	return map[string]runner.Action[*migration]{
		"LockV1": {ActionSpec: fsm.ActionSpec{Doc: "Sets v1 datastoreReady to false.",
			Params: map[string]fsm.Param{"deadline": {Type: fsm.TypeDuration, Doc: "how long the lock may be held before the point of no return"}}}, Do: s.lockV1, Rights: grants(s.lockStandsRights(), s.onV1Lock("patch"))},
		fenceAction: {ActionSpec: fsm.ActionSpec{Doc: "Installs what refuses writes of v1 once it is locked, and proves that it works.",
			Params: map[string]fsm.Param{"prove": {Type: fsm.TypeBool, Doc: "false: a later FenceV1, before the lock, waits and proves it; true is the default"},
				"settle":    {Type: fsm.TypeDuration, Doc: "how long it waits, since it was installed, for API servers to hear of it; 2s, which is twice as long as they need, is the default"},
				"watchFrom": {Type: fsm.TypeInt, Doc: "kinds with so many objects are watched from now on, instead of being listed under the lock; 300 is the default"}}},
			Do: s.fenceV1, Rights: s.fenceRights()},
		"UnfenceV1": {ActionSpec: fsm.ActionSpec{Doc: "Removes what FenceV1 installed, if this migration did."}, Do: s.unfenceV1, Rights: s.unfenceRights()},
		"LiftFence": {ActionSpec: fsm.ActionSpec{Doc: "Removes the fence after the point of no return, when v1 is gone."}, Do: s.liftFence, Rights: grants(s.unfenceRights(), s.earlierRights())},
		DetachAction: {ActionSpec: fsm.ActionSpec{Doc: "Takes references to Calico objects off objects outside Calico, and notes them there."},
			Do: s.detachDependents, Rights: append(detachRights(), rbac.Asking)},
		"AttachDependents": {ActionSpec: fsm.ActionSpec{Doc: "Puts the references back. owners: v3 points them to the v3 objects.",
			Params: map[string]fsm.Param{"owners": {Type: fsm.TypeString, Doc: "v1 or v3: whose UIDs; v1 is the default"}}},
			Do: s.attachDependents, Rights: grants([]rbacv1.PolicyRule{rbac.Asking}, s.awaitOwnersRights(), s.lists())},
		"DetachV1Owners": {ActionSpec: fsm.ActionSpec{Doc: "Takes references to Calico objects off v1 objects, and notes them there."},
			Do: s.detachV1Owners, Rights: grants(s.onV1("list patch"), s.onV1CRDs("get"))},
		"AttachV1Owners": {ActionSpec: fsm.ActionSpec{Doc: "Puts the references back on the v1 objects."},
			Do: s.attachV1Owners, Rights: grants(removeFenceRights(), whoAmI(), s.onV1("list patch"), s.onV1CRDs("get"), s.awaitOwnersRights())},
		BackUpAction: {ActionSpec: fsm.ActionSpec{Doc: "Keeps every v1 object and CRD in Secrets, from which they can be restored.",
			Params: map[string]fsm.Param{"to": {Type: fsm.TypeString, Doc: "Secrets, or None for no backup; Secrets is the default"}}},
			Do: s.backUpV1, Rights: s.backUpRights()},
		"ForgetCopies": {ActionSpec: fsm.ActionSpec{Doc: "Removes our notes from the v3 objects."}, Do: s.forgetCopies,
			Rights: grants(s.onV3("list get patch"), s.onV3CRDs("get"), s.onV3Lock("get patch"), s.earlierRights())},
		"UnlockV1": {ActionSpec: fsm.ActionSpec{Doc: "Sets v1 datastoreReady to true, if this migration locked it."},
			Do: s.unlockV1, Rights: grants(removeFenceRights(), onFencePolicy("patch"), whoAmI(), s.onV1Lock("get patch"))},
		parkAction: {ActionSpec: fsm.ActionSpec{Doc: "Saves the aggregated APIService with the state and lets the CRDs serve v3."},
			Do: s.parkAPIService, Rights: onAPIService("get patch")},
		"RestoreAPIService": {ActionSpec: fsm.ActionSpec{Doc: "Puts the saved APIService back."}, Do: s.restoreAPIService,
			// Where somebody has deleted it; a create cannot be bound to a name.
			Rights: grants(onAPIService("get patch"), rule("create", apiServiceGroup, "apiservices"), s.onV1Lock("get"))},
		"ForgetAPIService": {ActionSpec: fsm.ActionSpec{Doc: "Drops the saved APIService, and deletes the parked one, which kube-apiserver makes anew: else API servers go on to tell clients of the kinds of the aggregated API server."},
			Do:     s.forgetParked,
			Rights: grants(apiServersRights(), onAPIService("get delete"))},
		lockV3Action: {ActionSpec: fsm.ActionSpec{Doc: "Creates or sets the v3 ClusterInformation with datastoreReady false."}, Do: s.lockV3,
			Rights: grants(onAPIService("get"), s.onV1Lock("get"), s.onV3Lock("get patch"), rule("create", resources.V3Group, s.Registry.Lock().V3Plural()))},
		"UnlockV3": {ActionSpec: fsm.ActionSpec{Doc: "Gives the v3 lock back. created: keep opens the ClusterInformation that LockV3 created instead of deleting it.",
			Params: map[string]fsm.Param{"created": {Type: fsm.TypeString, Doc: "keep, or delete: the default"}}}, Do: s.unlockV3,
			Rights: s.unlockV3Rights()},
		OpenDoorAction: {ActionSpec: fsm.ActionSpec{Doc: "Adds a served version to the v3 CRDs, through which v3 can be written while the aggregated API server owns it. sideDoor is false where that is refused. Without that server v3 itself is the way, and no CRD is changed.",
			Outputs: map[string]fsm.Type{"sideDoor": fsm.TypeBool}}, Do: s.openSideDoor, Rights: s.openSideDoorRights()},
		CloseDoorAction: {ActionSpec: fsm.ActionSpec{Doc: "Takes that version out of the v3 CRDs again."}, Do: s.closeSideDoor, Rights: grants(s.onV3CRDs("get patch"), s.handOverRights())},
		"HandOverFields": {ActionSpec: fsm.ActionSpec{Doc: "Gives the fields of v3 objects to the field managers that own them in v1, under version v3, for server-side apply."},
			Do: s.handOverFields, Rights: s.handOverRights()},
		CopyAction: {ActionSpec: fsm.ActionSpec{Doc: "Copies every object to v3; what is there already is compared.",
			Params: map[string]fsm.Param{
				"ahead":  {Type: fsm.TypeBool, Doc: "copy through the side door while nothing is locked, again and again; what is refused is an output then"},
				"rounds": {Type: fsm.TypeInt, Doc: "how often at most; 5 is the default"},
				"until":  {Type: fsm.TypeInt, Doc: "a round that changes fewer objects is the last one; 100 is the default"}},
			Outputs: map[string]fsm.Type{"conflicts": fsm.TypeInt, "examples": fsm.TypeStrings, "objects": fsm.TypeInt, "ownersWithheld": fsm.TypeInt, "rejected": fsm.TypeStrings}}, Do: s.copyResources,
			Rights: grants(storeRights(), onAPIService("get patch"), s.lockStandsRights(), s.lists(), s.onV3("get create patch delete"), s.onV3Status("patch"))},
		"DeleteCopies": {ActionSpec: fsm.ActionSpec{Doc: "Deletes the v3 objects that this migration created."}, Do: s.deleteCopies,
			Rights: grants(s.onV3("list get patch delete"), s.onV1CRDs("get"), s.onV3CRDs("get"), onAPIService("get patch"))},
		"RemapOwners": {ActionSpec: fsm.ActionSpec{Doc: "Adds the owner references that were withheld while the owner was not copied yet.",
			Outputs: map[string]fsm.Type{"ownersMissing": fsm.TypeInt}}, Do: s.remapOwners,
			Rights: grants(onAPIService("get patch"), s.lockStandsRights(), s.lists(), s.onV3("get patch"))},
		CleanUpAction: {ActionSpec: fsm.ActionSpec{Doc: "Deletes the v1 CRDs of the migrated kinds, one at a time, if v1 still holds what was verified."},
			Do: s.deleteV1CRDs, Rights: s.cleanUpRights()},
	}
}

// ofCluster is a guard that asks the cluster, whatever the machine is.
func ofCluster(open func(context.Context, *migration) (bool, string, error)) func(context.Context, *fsm.Machine, *migration) (bool, string, error) {
	return func(ctx context.Context, _ *fsm.Machine, dm *migration) (bool, string, error) { return open(ctx, dm) }
}

func (s *steps) guards() map[string]runner.Guard[*migration] {
	return map[string]runner.Guard[*migration]{
		"v1CRDsInstalled": {Doc: "At least one CRD of crd.projectcalico.org is there.", Open: ofCluster(s.v1CRDsInstalled), Rights: s.onV1CRDs("get")},
		"notMigratedYet":  {Doc: "No other migration has moved this cluster to v3, as the cluster says.", Open: ofCluster(s.notMigratedYet), Rights: s.datastoreRights()},
		"anythingLeft":    {Doc: "A CRD of crd.projectcalico.org is there, or v3 is not in use.", Open: ofCluster(s.anythingLeft), Rights: grants(s.onV1CRDs("get"), s.datastoreRights())},
		"onlyMigration": {Doc: "No other DatastoreMigration is active.", Open: s.onlyMigration,
			Rights: rule("list", migrationv1.GroupVersion.Group, "datastoremigrations")},
		"v3OpenedByMigration": {Doc: "This migration has passed the point of no return, as the cluster says.", Open: ofCluster(s.v3OpenedByMigration), Rights: s.tracesRights()},
		"leftByMigration":     {Doc: "Something is in place that this migration took, as the cluster says.", Open: ofCluster(s.leftByMigration), Rights: s.tracesRights()},
	}
}

func (s *steps) copier(dm *migration) *copier.Copier {
	return s.copierOver(dm, resources.V3Version)
}

// copierOver reaches v3 by a version that its CRDs serve.
func (s *steps) copierOver(dm *migration, version string, more ...copier.Option) *copier.Copier {
	options := []copier.Option{copier.WithRetried(s.Metrics.retried), copier.WithEqualityCache(s.caches.of(dm)), copier.WithWatches(s.Metadata, s.Ending)}
	if version == migrationv1.SideDoorVersion {
		options = append(options, copier.DeferOwners())
	}
	if isEnforced(dm) {
		options = append(options, copier.UseSnapshot())
	}
	return copier.New(s.Registry.Through(version), s.Copies, copier.Owner{Name: dm.Name, UID: dm.UID}, append(options, more...)...)
}

// What status.machine.result carries of a list: entries, and characters of each.
const (
	exampleLimit  = 5
	exampleLength = 512
)

// examples shortens a list for outputs; the rest is counted.
func examples[E any](items []E, show func(E) string) []string {
	out := []string{}
	for i, item := range items {
		if i == exampleLimit {
			return append(out, fmt.Sprintf("and %d more", len(items)-i))
		}
		out = append(out, clip(show(item), exampleLength))
	}
	return out
}
