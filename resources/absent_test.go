package resources

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What v1 does not say, Calico filled in when it read v1. A copy says it, since v3 would have it filled in by others:
// TestAbsentFields shows that of each field that is absent, null or empty, and this what else counts.
func TestConvertTypes(t *testing.T) {
	const both = "types: [Ingress, Egress]"
	tiered := []string{"GlobalNetworkPolicy", "NetworkPolicy", "StagedGlobalNetworkPolicy", "StagedNetworkPolicy"}
	for name, tc := range map[string]struct {
		kinds      []string
		spec, want string
		why        string
	}{
		"ingress rules":    {kinds: tiered, spec: "ingress: [{action: Allow}]", want: "ingress: [{action: Allow}], " + both, why: "rules say nothing about directions: what leaves is denied"},
		"egress rules":     {kinds: tiered, spec: "egress: [{action: Allow}]", want: "egress: [{action: Allow}], " + both, why: "the same the other way round"},
		"no rules":         {kinds: tiered, spec: "egress: [], ingress: null", want: "egress: [], ingress: null, " + both, why: "a policy without rules closes both directions"},
		"set":              {kinds: tiered, spec: "types: [Egress]", want: "types: [Egress]", why: "what is said stays"},
		"before DNAT":      {kinds: []string{"GlobalNetworkPolicy", "StagedGlobalNetworkPolicy"}, spec: "preDNAT: true, applyOnForward: true", want: "preDNAT: true, applyOnForward: true, types: [Ingress]", why: "Felix enforces no egress of such a policy, and v3 refuses the type"},
		"staged deletion":  {kinds: tiered[2:], spec: "stagedAction: Delete", want: "stagedAction: Delete", why: "nobody reads the types, and Calico's API writes none"},
		"deletion, empty":  {kinds: tiered[2:], spec: "stagedAction: Delete, types: []", want: "stagedAction: Delete", why: "v3 refuses an empty list"},
		"deletion, set":    {kinds: tiered[2:], spec: "stagedAction: Delete, types: [Egress]", want: "stagedAction: Delete, types: [Egress]", why: "what is said stays"},
		"proposal":         {kinds: tiered[2:], spec: "stagedAction: Learn", want: "stagedAction: Learn, " + both, why: "all others are read as policies are"},
		"kubernetes":       {kinds: []string{"StagedKubernetesNetworkPolicy"}, spec: "egress: [{}]", want: "egress: [{}], policyTypes: [Ingress]", why: "Calico converts such a policy without types to ingress, whatever rules it has"},
		"kubernetes, set":  {kinds: []string{"StagedKubernetesNetworkPolicy"}, spec: "policyTypes: [Egress]", want: "policyTypes: [Egress]", why: "what is said stays"},
		"kubernetes, gone": {kinds: []string{"StagedKubernetesNetworkPolicy"}, spec: "stagedAction: Delete, policyTypes: []", want: "stagedAction: Delete", why: "nobody reads the types"},
	} {
		for _, kind := range tc.kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				got, err := Convert(mustKind(t, kind), v1Object(t, mustKind(t, kind), "t.a", "spec: {"+tc.spec+"}"), nil)
				must(t, err)
				spec := got.Object.Object["spec"].(map[string]any)
				delete(spec, "tier")
				want := object(t, "apiVersion: v1\nkind: X\nspec: {"+tc.want+"}").Object["spec"]
				if diff := cmp.Diff(want, any(spec)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.why, diff)
				}
			})
		}
	}
}

// The same for all else that v3 would take for something else than v1's readers did.
func TestConvertAbsent(t *testing.T) {
	for name, tc := range map[string]struct {
		kind, spec, want string
		why              string
	}{
		"said":                {"IPAMConfiguration", "autoAllocateBlocks: true", "autoAllocateBlocks: true", "what is said stays"},
		"next hop":            {"BGPPeer", "nextHopMode: '', keepOriginalNextHop: true", "nextHopMode: '', keepOriginalNextHop: false", "confd looks at the deprecated field only where the other one is absent"},
		"next hop, absent":    {"BGPPeer", "keepOriginalNextHop: true", "keepOriginalNextHop: true", "it is in force"},
		"aggregation, absent": {"BGPConfiguration", "listenPort: 1", "listenPort: 1", "v3's default says the same as confd"},
		"services, absent":    {"KubeControllersConfiguration", "controllers: {loadBalancer: {}}", "controllers: {loadBalancer: {}}", "v1 has the same default"},
	} {
		t.Run(name, func(t *testing.T) {
			kind := mustKind(t, tc.kind)
			got, err := Convert(kind, v1Object(t, kind, "a", "spec: {"+tc.spec+"}"), nil)
			must(t, err)
			if diff := cmp.Diff(object(t, "apiVersion: v1\nkind: X\nspec: {"+tc.want+"}").Object["spec"], got.Object.Object["spec"]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
