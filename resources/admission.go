package resources

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// admissionDefaults are what Calico's mutating admission policies add to an object on a write. They
// apply to what is converted, since a cluster may not have the policies, nor even serve their kind; and
// to both sides of a comparison, since what is in v3 already may have been written without them.
var admissionDefaults = map[string]func(obj, spec map[string]any){
	"policyTypes":     func(_, spec map[string]any) { setTypes(spec, "types", false) },
	"kubePolicyTypes": func(_, spec map[string]any) { setTypes(spec, "policyTypes", true) },
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

// setTypes says which directions a policy is about, if it does not. Those of Kubernetes have another field for it, and
// in them egress always brings ingress with it.
func setTypes(spec map[string]any, field string, egressBringsIngress bool) {
	if spec["types"] == nil && spec["policyTypes"] == nil {
		spec[field] = typesOf(spec, egressBringsIngress)
	}
}

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
	_ = unstructured.SetNestedField(obj, spec["tier"], "metadata", "labels", TierLabel) // metadata is of our own making
}
