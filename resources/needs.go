package resources

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
