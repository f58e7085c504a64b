package resources

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// converter is a rule that holds for some kinds only; kinds.yaml names it.
type converter func(*conversion) error

var converters = map[string]converter{
	"policyName":           policyName,
	"policyTypes":          policyTypes,
	"kubePolicyTypes":      kubePolicyTypes,
	"tierDefaults":         whereAbsent(map[string]any{"order": defaultTierOrder, "defaultAction": "Deny"}),
	"ipamConfigDefaults":   whereAbsent(map[string]any{"autoAllocateBlocks": false}),
	"emptyAggregation":     whereEmpty("serviceLoadBalancerAggregation", "Disabled"),
	"emptyAssignmentMode":  whereEmpty("assignmentMode", "Manual"),
	"emptyNextHop":         emptyNextHop,
	"emptyAssignIPs":       emptyAssignIPs,
	"blockAffinityDeleted": blockAffinityDeleted,
	"dropEmptyEnums":       dropEmptyEnums,
}

func knownNames[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

const (
	defaultTier       = "default"
	defaultTierPrefix = "default."
	defaultTierOrder  = int64(1000000)
)

// policyName finds the v3 name of a tiered policy. Writers up to 3.28 put the tier in front of the name
// of every policy of the default tier, writers since 3.30 keep the true name in the annotation, and an
// object written by hand has neither.
func policyName(c *conversion) error {
	if c.hidden == nil {
		return nil
	}
	if c.hidden.Name != "" {
		c.meta["name"] = c.hidden.Name
		return nil
	}
	spec, err := c.ownSpec()
	if err != nil {
		return err
	}
	if tier, _ := spec["tier"].(string); tier == "" || tier == defaultTier {
		c.meta["name"] = strings.TrimPrefix(c.v1.GetName(), defaultTierPrefix)
	}
	return nil
}

// blockAffinityDeleted turns the string of v1 into the bool of v3. Only the values that Calico writes
// are understood: a wrong guess would revive a deleted affinity or hide a live one.
func blockAffinityDeleted(c *conversion) error {
	spec, err := c.ownSpec()
	if err != nil {
		return err
	}
	switch deleted := spec["deleted"]; deleted {
	case true, false:
	case "true":
		spec["deleted"] = true
	case "false", "", nil:
		spec["deleted"] = false
	default:
		return c.problem(ReasonUnreadableField, `set it to "true" or "false" on the v1 object`,
			"spec.deleted is %#v, neither \"true\" nor \"false\"", deleted)
	}
	return nil
}

// dropEmptyEnums leaves out empty optional values that the v3 schema refuses. Calico's typed clients
// drop them too; raw v1 objects may hold them.
func dropEmptyEnums(c *conversion) error {
	if c.schema == nil {
		return nil
	}
	for _, field := range []string{"spec", "status"} {
		schema, known := c.schema.structural.Properties[field]
		if value, there := c.out[field]; there && known {
			c.out[field] = withoutEmpty(value, &schema)
		}
	}
	return nil
}

// admissionDefaults are what Calico's mutating admission policies add to an object on a write, and what means the same
// as its absence. They apply to what is converted, since a cluster may not have the policies, nor even serve their kind;
// and to both sides of a comparison, since what is in v3 already may have been written without them. The types of a
// policy are not among them: absent, they are both directions, and admission writes what may be one.
var admissionDefaults = map[string]func(obj, spec map[string]any){
	"tierLabel": tierLabel,
}

// admission fills in what a policy would.
func (c *conversion) admission() error {
	names := c.kind.entry.Compare.AdmissionDefaults
	if len(names) == 0 {
		return nil
	}
	spec, err := c.ownSpec()
	if err != nil {
		return err
	}
	for _, name := range names {
		admissionDefaults[name](c.out, spec)
	}
	return nil
}

// TierLabel is the label of a policy of v3 that names its tier.
const TierLabel = "projectcalico.org/tier"

// tierLabel also fills in the tier, as the CRD's default does where there is a schema.
func tierLabel(obj, spec map[string]any) {
	if tier, _ := spec["tier"].(string); tier == "" {
		spec["tier"] = defaultTier
	}
	_ = unstructured.SetNestedField(obj, spec["tier"], "metadata", "labels", TierLabel) // metadata is of our own making
}

// need is a rule by which an object keeps another one, which is being deleted, from going.
type need struct {
	kind   string // of the other one, as v3 calls it
	object func(obj, other *unstructured.Unstructured) bool
}

// needsTier is the rule of policies.
const needsTier = "tier"

// needs are the rules that kinds.yaml names. Calico's controllers keep them with finalizers.
var needs = map[string]need{
	needsTier: {"Tier", func(policy, tier *unstructured.Unstructured) bool {
		name := specString(policy, "tier")
		return name == tier.GetName() || name == "" && tier.GetName() == defaultTier
	}},
	"pool": {"IPPool", func(block, pool *unstructured.Unstructured) bool {
		if deleted, _, _ := unstructured.NestedBool(block.Object, "spec", "deleted"); deleted {
			return false
		}
		in, badPool := netip.ParsePrefix(specString(pool, "cidr"))
		part, badBlock := netip.ParsePrefix(specString(block, "cidr"))
		return badPool == nil && badBlock == nil && in.Contains(part.Addr())
	}},
}

func specString(obj *unstructured.Unstructured, field string) string {
	value, _, _ := unstructured.NestedString(obj.Object, "spec", field)
	return value
}

// Needs is the v3 kind of which an object of this kind keeps one from going; empty for none.
func (k *Kind) Needs() string { return needs[k.entry.Needs].kind }

// Tiered tells that objects of the kind are in tiers, by which Calico grants rights.
func (k *Kind) Tiered() bool { return k.entry.Needs == needsTier }

// NeedsObject tells whether an object of this kind keeps other, of the kind Needs, from going. Both are as v1 has them.
func (k *Kind) NeedsObject(obj, other *unstructured.Unstructured) bool {
	return needs[k.entry.Needs].object(obj, other)
}
