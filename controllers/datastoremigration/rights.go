package datastoremigration

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// The rights that steps are put together from. By name where RBAC can say a name,
// by plural otherwise. Of v1 the lock is written, metadata of objects that have owners in
// Calico or are barriers, and, in a clean-up, the CRDs of the registry.
const (
	crdGroup        = "apiextensions.k8s.io"
	crdResource     = "customresourcedefinitions"
	apiServiceGroup = "apiregistration.k8s.io"
)

// What these two alone need, a migration can do without: it copies under the lock then.
const (
	OpenDoorAction  = "OpenSideDoor"
	CloseDoorAction = "CloseSideDoor"
)

// Actions that Go asks about: whether what one takes is held, or whether a step that waits does one.
const (
	PreflightAction = "Preflight"
	PlanAction      = "Plan"
	DetectAction    = "DetectConflicts"
	CopyAction      = "CopyResources"
	RolloutAction   = "ObserveRollout"

	fenceAction   = "BlockV1Writes"
	disableAction = "DisableAPIService"
	lockV3Action  = "LockV3"
)

// Needs is what the controller of the machine must be allowed to do. What the actions
// BackUpAction and CleanUpAction alone need may be granted later than the rest.
func Needs(machine *fsm.Machine, settings Settings) []rbac.Need {
	all := Program(nil, settings).Needs(machine, rbac.Guess)
	for i := range all {
		// Calico's components are watched there only, and the backup is written there.
		switch {
		case all[i].Group == appsv1.GroupName || IsBackUp(all[i]) || all[i].Resource == "configmaps" && slices.Contains(cniConfigMaps, all[i].Name):
			all[i].Namespace = settings.CalicoNamespace
		case IsServers(all[i]):
			all[i].Namespace = metav1.NamespaceSystem
		case all[i].Group == discoveryv1.GroupName:
			all[i].Namespace = metav1.NamespaceDefault
		}
	}
	return all
}

// IsBackUp tells whether a right is about the Secrets of a backup: a role of the Calico
// namespace grants it.
func IsBackUp(n rbac.Need) bool {
	only, _ := rbac.Only([]rbac.Need{n}, BackUpAction, CleanUpAction)
	return len(only) > 0 && n.Group == "" && n.Resource == "secrets"
}

// IsServers tells whether a right is about the Leases of API servers: a role of kube-system grants it.
func IsServers(n rbac.Need) bool { return n.Group == coordinationv1.GroupName && n.Verb == "list" }

// grants concatenates rules.
func grants(lists ...[]rbacv1.PolicyRule) []rbacv1.PolicyRule { return slices.Concat(lists...) }

func rule(verbs, group, resource string, names ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{rbac.Rule(verbs, group, resource, names...)}
}

// allOf names many resources of one group.
func allOf(verbs, group string, kinds []*resources.Kind, plural func(*resources.Kind) string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: namesOf(kinds, plural), Verbs: strings.Fields(verbs)}}
}

func namesOf(kinds []*resources.Kind, name func(*resources.Kind) string) []string {
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = name(kind)
	}
	return names
}

// onV1 and onV3 are about the kinds that are copied, which the lock is not one of.
func (c *cluster) onV1(verbs string) []rbacv1.PolicyRule {
	return allOf(verbs, resources.V1Group, c.registry.Kinds(), (*resources.Kind).V1Plural)
}

func (c *cluster) onV3(verbs string) []rbacv1.PolicyRule {
	return append(allOf(verbs, resources.V3Group, c.registry.Kinds(), (*resources.Kind).V3Plural), c.inTiers(verbs)...)
}

// inTiers are the rights for which Calico's admission webhook asks besides, in the name of whoever writes a policy: to
// do so in its tier, and to read the tier. To the webhook a patch is an update.
func (c *cluster) inTiers(verbs string) []rbacv1.PolicyRule {
	var writes []string
	for verb, asked := range map[string]string{"create": "create", "patch": "update", "delete": "delete"} {
		if slices.Contains(strings.Fields(verbs), verb) {
			writes = append(writes, asked)
		}
	}
	tier, known := c.registry.Kind(tierKind)
	tiered := slices.DeleteFunc(c.registry.Kinds(), func(kind *resources.Kind) bool { return !kind.Tiered() })
	if len(writes) == 0 || len(tiered) == 0 || !known {
		return nil
	}
	return append(allOf(strings.Join(writes, " "), resources.V3Group, tiered, func(kind *resources.Kind) string { return "tier." + kind.V3Plural() }),
		rule("get", resources.V3Group, tier.V3Plural())...)
}

// onV3Status is about the kinds whose status takes a write of its own.
func (c *cluster) onV3Status(verbs string) []rbacv1.PolicyRule {
	var kinds []*resources.Kind
	for _, kind := range c.registry.Kinds() {
		if kind.HasStatus(nil) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	return allOf(verbs, resources.V3Group, kinds, func(kind *resources.Kind) string { return kind.V3Plural() + "/status" })
}

// onV1Finalizers and onV3Finalizers are the rights without which the admission plugin OwnerReferencesPermissionEnforcement
// refuses a new reference with blockOwnerDeletion to a Calico object. No request uses them.
func (c *cluster) onV1Finalizers() []rbacv1.PolicyRule {
	return allOf("update", resources.V1Group, c.registry.Kinds(), func(kind *resources.Kind) string { return kind.V1Plural() + "/finalizers" })
}

func (c *cluster) onV3Finalizers() []rbacv1.PolicyRule {
	return allOf("update", resources.V3Group, c.registry.Kinds(), func(kind *resources.Kind) string { return kind.V3Plural() + "/finalizers" })
}

// onV1Lock and onV3Lock are about the one object that holds the lock.
func (c *cluster) onV1Lock(verbs string) []rbacv1.PolicyRule {
	return withCRD(rule(verbs, resources.V1Group, c.registry.Lock().V1Plural(), clusterInformationName), c.registry.Lock().V1CRDName())
}

func (c *cluster) onV3Lock(verbs string) []rbacv1.PolicyRule {
	return withCRD(rule(verbs, resources.V3Group, c.registry.Lock().V3Plural(), clusterInformationName), c.registry.Lock().V3CRDName())
}

// withCRD adds to a right to read that to ask for the CRD, where the kind is not served.
func withCRD(rules []rbacv1.PolicyRule, crd string) []rbacv1.PolicyRule {
	if slices.Contains(rules[0].Verbs, "get") {
		rules = append(rules, rule("get", crdGroup, crdResource, crd)...)
	}
	return rules
}

func (c *cluster) onV1CRDs(verbs string) []rbacv1.PolicyRule {
	return rule(verbs, crdGroup, crdResource, namesOf(c.registry.All(), (*resources.Kind).V1CRDName)...)
}

func (c *cluster) onV3CRDs(verbs string) []rbacv1.PolicyRule {
	return rule(verbs, crdGroup, crdResource, namesOf(c.registry.All(), (*resources.Kind).V3CRDName)...)
}

// lists is to read both sides. A list that is not found is believed only if its CRD
// is not there either.
func (c *cluster) lists() []rbacv1.PolicyRule {
	return grants(c.onV1("list"), c.onV3("list"), c.onV1CRDs("get"), c.onV3CRDs("get"))
}

func onAPIService(verbs string) []rbacv1.PolicyRule {
	return rule(verbs, apiServiceGroup, "apiservices", apiServiceName)
}

func (c *cluster) earlierRights() []rbacv1.PolicyRule {
	return grants(onAPIService("get"), c.onV3Lock("get"), rule("list", migrationv1.GroupVersion.Group, "datastoremigrations"))
}

func (c *cluster) datastoreRights() []rbacv1.PolicyRule {
	return grants(onAPIService("get"), c.onV1Lock("get"), c.onV3Lock("get"))
}
