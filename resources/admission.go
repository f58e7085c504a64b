package resources

// admissionDefaults are what Calico's mutating admission policies add to an object on a write. They
// apply to what is converted, since a cluster may not have the policies, nor even serve their kind; and
// to both sides of a comparison, since what is in v3 already may have been written without them.
var admissionDefaults = map[string]func(obj, spec map[string]any){
	"policyTypes":     policyTypes,
	"kubePolicyTypes": kubePolicyTypes,
	"tierLabel":       tierLabel,
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

func policyTypes(_, spec map[string]any) {
	if hasTypes(spec) {
		return
	}
	spec["types"] = typesOf(spec, false)
}

// kubePolicyTypes differs in the field, and in that egress always brings ingress with it.
func kubePolicyTypes(_, spec map[string]any) {
	if hasTypes(spec) {
		return
	}
	spec["policyTypes"] = typesOf(spec, true)
}

func hasTypes(spec map[string]any) bool { return spec["types"] != nil || spec["policyTypes"] != nil }

func typesOf(spec map[string]any, egressBringsIngress bool) []any {
	ingress, egress := spec["ingress"] != nil, spec["egress"] != nil
	switch {
	case egress && (ingress || egressBringsIngress):
		return []any{"Ingress", "Egress"}
	case egress:
		return []any{"Egress"}
	}
	return []any{"Ingress"}
}

// tierLabel also fills in the tier, as the CRD's default does where there is a schema.
func tierLabel(obj, spec map[string]any) {
	if tier, _ := spec["tier"].(string); tier == "" {
		spec["tier"] = defaultTier
	}
	labels := childMap(childMap(obj, "metadata"), "labels")
	labels[TierLabel] = spec["tier"]
}

// childMap returns the map in a field and makes it if it is not there.
func childMap(of map[string]any, field string) map[string]any {
	child, ok := of[field].(map[string]any)
	if !ok {
		child = map[string]any{}
		of[field] = child
	}
	return child
}
