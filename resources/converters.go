package resources

import (
	"maps"
	"slices"
	"strings"
)

// converter is a rule that holds for some kinds only; kinds.yaml names it.
type converter func(*conversion) error

var converters = map[string]converter{
	"policyName":           policyName,
	"tierDefaults":         tierDefaults,
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

// tierDefaults fills in what Calico assumes for a tier that says nothing.
func tierDefaults(c *conversion) error {
	spec, err := c.ownSpec()
	if err != nil {
		return err
	}
	if spec["order"] == nil {
		spec["order"] = defaultTierOrder
	}
	if spec["defaultAction"] == nil {
		spec["defaultAction"] = "Deny"
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
			c.out[field], _ = withoutEmpty(value, &schema)
		}
	}
	return nil
}
