package crds

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// inert are policies and bindings with the names of Calico's, which do nothing: a
// cluster has them, and generated definitions are permissive in everything.
func inert() []*unstructured.Unstructured {
	const tiers = "protect-builtin-tiers.projectcalico.org"
	return []*unstructured.Unstructured{
		policy("ValidatingAdmissionPolicy", tiers, map[string]any{
			"validations": []any{map[string]any{"expression": "true"}},
		}),
		binding("ValidatingAdmissionPolicyBinding", tiers, map[string]any{"policyName": tiers, "validationActions": []any{"Deny"}}),
		policy("MutatingAdmissionPolicy", "policytypes.policy.projectcalico.org", noMutation()),
		binding("MutatingAdmissionPolicyBinding", "set-policytypes-binding", map[string]any{"policyName": "policytypes.policy.projectcalico.org"}),
		policy("MutatingAdmissionPolicy", "tierlabel.policy.projectcalico.org", noMutation()),
		binding("MutatingAdmissionPolicyBinding", "set-tier-label-binding", map[string]any{"policyName": "tierlabel.policy.projectcalico.org"}),
	}
}

func noMutation() map[string]any {
	return map[string]any{
		"reinvocationPolicy": "Never",
		"mutations": []any{map[string]any{
			"patchType": "ApplyConfiguration", "applyConfiguration": map[string]any{"expression": "Object{}"},
		}},
	}
}

// policy matches no object: its one resource is served by nobody.
func policy(kind, name string, spec map[string]any) *unstructured.Unstructured {
	spec["failurePolicy"] = "Ignore"
	spec["matchConstraints"] = map[string]any{"resourceRules": []any{map[string]any{
		"apiGroups": []any{"inert.phasegate.dev"}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"nothings"},
	}}}
	return binding(kind, name, spec)
}

func binding(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}
