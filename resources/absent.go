package resources

import (
	"maps"
	"slices"
)

// A field that v1 leaves out, or has empty, is read by v3's schema, by Calico's admission policies, and by
// Calico's programs: not always as those programs have read v1. These converters write what they made of it, so that
// nothing gets another meaning. docs/reference/absent-fields.md lists every such field, and a test reads it.

// Filled is a field that a conversion has written, since v1 did not say what its readers took it for.
type Filled struct {
	Field string // such as spec.types
	Value string // as JSON
}

// fill writes a field of the spec.
func (c *conversion) fill(spec map[string]any, field string, value any) {
	spec[field] = value
	c.filled = append(c.filled, Filled{Field: "spec." + field, Value: shown(value)})
}

// whereAbsent writes fields of the spec that are absent or null.
func whereAbsent(values map[string]any) converter {
	return func(c *conversion) error {
		spec, err := c.ownSpec()
		if err != nil {
			return err
		}
		for _, field := range slices.Sorted(maps.Keys(values)) {
			if spec[field] == nil {
				c.fill(spec, field, values[field])
			}
		}
		return nil
	}
}

// whereEmpty writes a field of the spec that is an empty string, which v3 refuses. To leave it out would mean
// something else.
func whereEmpty(field string, value any) converter {
	return func(c *conversion) error {
		spec, err := c.ownSpec()
		if err == nil && spec[field] == "" {
			c.fill(spec, field, value)
		}
		return err
	}
}

// stagedDelete is the stagedAction of a policy that stands for a deletion. Calico reads nothing but its name.
const stagedDelete = "Delete"

// policyTypes writes both directions to a policy without types: Felix enforces both. Admission, and Calico's API,
// would go by the rules instead. Of a policy that is enforced before DNAT, Felix enforces no egress.
func policyTypes(c *conversion) error {
	return c.types("types", func(spec map[string]any) []any {
		if spec["preDNAT"] == true && spec["doNotTrack"] != true {
			return []any{"Ingress"}
		}
		return []any{"Ingress", "Egress"}
	})
}

// kubePolicyTypes is policyTypes of Kubernetes' policies, which Calico converts before it enforces them: without types
// to ingress, whatever rules they have.
func kubePolicyTypes(c *conversion) error {
	return c.types("policyTypes", func(map[string]any) []any { return []any{"Ingress"} })
}

func (c *conversion) types(field string, meant func(spec map[string]any) []any) error {
	spec, err := c.ownSpec()
	if err != nil {
		return err
	}
	list, isList := spec[field].([]any)
	switch {
	case spec[field] != nil && (!isList || len(list) > 0):
	case spec["stagedAction"] == stagedDelete: // has none
		delete(spec, field) // v3 refuses an empty list
	default:
		c.fill(spec, field, meant(spec))
	}
	return nil
}

// emptyNextHop: beside an empty nextHopMode, confd has ignored the deprecated field, which would be in force without it.
func emptyNextHop(c *conversion) error {
	spec, err := c.ownSpec()
	if err == nil && spec["nextHopMode"] == "" && spec["keepOriginalNextHop"] == true {
		c.fill(spec, "keepOriginalNextHop", false)
	}
	return err
}

// emptyAssignIPs refuses what v3 cannot say: kube-controllers gave no Service an address.
func emptyAssignIPs(c *conversion) error {
	spec, _ := c.out["spec"].(map[string]any)
	controllers, _ := spec["controllers"].(map[string]any)
	loadBalancer, _ := controllers["loadBalancer"].(map[string]any)
	if loadBalancer["assignIPs"] != "" {
		return nil
	}
	return c.problem(ReasonUnreadableField, "set it to AllServices or RequestedServicesOnly on the v1 object",
		"spec.controllers.loadBalancer.assignIPs is empty: Calico gives no Service an address then, which v3 cannot say")
}
