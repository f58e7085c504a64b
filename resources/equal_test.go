package resources

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const policySchema = `
type: object
properties:
  tier: {type: string, default: default}
  order: {type: number}
  types: {type: array, items: {type: string}, x-kubernetes-list-type: set}
  selector: {type: string}
  ingress: {type: array, items: {type: object, properties: {action: {type: string, default: Deny}}}}`

// equalCase says which paths differ between two v3 objects of a kind.
type equalCase struct {
	kind, schema string
	a, b         string
	want         []string
	why          string
}

func TestDiff(t *testing.T) {
	for name, tc := range map[string]equalCase{
		"same":            {kind: "NetworkSet", a: "spec: {nets: [a]}", b: "spec: {nets: [a]}", why: "nothing differs"},
		"spec":            {kind: "NetworkSet", a: "spec: {nets: [a]}", b: "spec: {nets: [b]}", want: []string{"spec.nets[0]"}, why: "the item is named"},
		"length":          {kind: "NetworkSet", a: "spec: {nets: [a]}", b: "spec: {nets: [a, b]}", want: []string{"spec.nets"}, why: "lists of different length differ as a whole"},
		"server metadata": {kind: "NetworkSet", a: "metadata: {uid: a, resourceVersion: '1', generation: 1, creationTimestamp: '2024-01-01T00:00:00Z'}", b: "metadata: {uid: b, resourceVersion: '2'}", why: "the server assigns these"},
		"labels": {
			kind: "HostEndpoint", a: "metadata: {labels: {a: b, c.d/e: f}}", b: "metadata: {labels: {a: x}}",
			want: []string{"metadata.labels.a", `metadata.labels["c.d/e"]`}, why: "labels select policy",
		},
		"annotations":        {kind: "NetworkSet", a: "metadata: {annotations: {a: b}}", b: "spec: {}", want: []string{"metadata.annotations.a", "spec"}, why: "annotations matter, and an empty spec is not no spec"},
		"bookkeeping":        {kind: "NetworkSet", a: "metadata: {annotations: {migration.projectcalico.org/migrated-by: u}}", b: "metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}'}}", why: "who wrote it is not what it is"},
		"finalizers":         {kind: "NetworkSet", a: "metadata: {finalizers: [a/a, b/b]}", b: "metadata: {finalizers: [b/b, a/a]}", why: "their order means nothing"},
		"missing finalizer":  {kind: "NetworkSet", a: "metadata: {finalizers: [a/a]}", b: "metadata: {}", want: []string{"metadata.finalizers"}, why: "a finalizer is a promise"},
		"Calico's finalizer": {kind: "Tier", a: "metadata: {finalizers: [projectcalico.org/tier-controller]}", b: "metadata: {}", why: "its controller adds it when it gets to it"},
		"Calico's finalizer on another kind": {
			kind: "NetworkSet", a: "metadata: {finalizers: [projectcalico.org/tier-controller]}", b: "metadata: {}", want: []string{"metadata.finalizers"},
			why: "no controller adds it there",
		},
		"owners": {
			kind: "NetworkSet", a: "metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u1}]}", b: "metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u2}]}",
			want: []string{"metadata.ownerReferences.u1", "metadata.ownerReferences.u2"}, why: "another UID is another owner",
		},
		"owner defaults": {
			kind: "NetworkSet", a: "metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u1, controller: false}]}", b: "metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u1}]}",
			why: "false is the default",
		},
		"numbers": {kind: "Tier", a: "spec: {order: 1e+06}", b: "spec: {order: 1000000}", why: "numbers compare by value"},
		"number that is a string": {
			kind: "Tier", a: "spec: {order: '1'}", b: "spec: {order: 1}", want: []string{"spec.order"}, why: "a string is no number",
		},
		"big numbers":           {kind: "IPAMBlock", a: "spec: {sequenceNumber: 9007199254740993}", b: "spec: {sequenceNumber: 9007199254740992}", want: []string{"spec.sequenceNumber"}, why: "int64 keeps what a float would lose"},
		"fractions":             {kind: "Tier", a: "spec: {order: 1.5}", b: "spec: {order: 1}", want: []string{"spec.order"}, why: "no rounding"},
		"times":                 {kind: "IPAMBlock", a: "spec: {affinityClaimTime: '2024-01-01T01:00:00+01:00'}", b: "spec: {affinityClaimTime: '2024-01-01T00:00:00.000Z'}", why: "one instant, two spellings"},
		"other times":           {kind: "IPAMBlock", a: "spec: {affinityClaimTime: '2024-01-01T01:00:00Z'}", b: "spec: {affinityClaimTime: '2024-01-01T00:00:00Z'}", want: []string{"spec.affinityClaimTime"}, why: "an hour apart"},
		"no time":               {kind: "NetworkSet", a: "spec: {x: '2024-01-01T'}", b: "spec: {x: '2024-01-01t'}", want: []string{"spec.x"}, why: "what does not parse is text"},
		"null is absent":        {kind: "NetworkSet", a: "spec: {a: null}", b: "spec: {}", why: "the server prunes null"},
		"null item is a value":  {kind: "IPAMBlock", a: "spec: {allocations: [null, 1]}", b: "spec: {allocations: [0, 1]}", want: []string{"spec.allocations[0]"}, why: "a free address is not attribute 0"},
		"unallocated has order": {kind: "IPAMBlock", a: "spec: {unallocated: [1, 2]}", b: "spec: {unallocated: [2, 1]}", want: []string{"spec.unallocated[0]", "spec.unallocated[1]"}, why: "it is a queue"},
		"block zeros": {
			kind: "IPAMBlock", a: "spec: {cidr: c, attributes: [{handle_id: ''}]}",
			b:   "spec: {cidr: c, deleted: false, sequenceNumber: 0, strictAffinity: false, sequenceNumberForAllocation: {}, attributes: [{secondary: {}}]}",
			why: "typed clients write these zeros, raw objects leave them out",
		},
		"block not zero": {kind: "IPAMBlock", a: "spec: {cidr: c}", b: "spec: {cidr: c, deleted: true}", want: []string{"spec.deleted"}, why: "only zero equals absent"},
		"zero elsewhere": {kind: "FelixConfiguration", a: "spec: {a: false}", b: "spec: {}", want: []string{"spec.a"}, why: "for most fields an explicit false is a decision"},
		"status": {
			kind: "IPPool", a: "status: {conditions: [{type: Allocatable}]}", b: "spec: {}", want: []string{"spec"},
			why: "the status subresource is its controller's; only the spec differs",
		},
		"default": {kind: "GlobalNetworkPolicy", schema: policySchema, a: "spec: {types: [Ingress], ingress: [{}]}", b: "spec: {tier: default, types: [Ingress], ingress: [{action: Deny}]}", why: "absent equals the schema's default"},
		"sets":    {kind: "GlobalNetworkPolicy", schema: policySchema, a: "spec: {types: [Ingress, Egress]}", b: "spec: {types: [Egress, Ingress]}", why: "the schema says that it is a set"},
		"lists without schema": {
			kind: "GlobalNetworkPolicy", a: "spec: {types: [Ingress, Egress]}", b: "spec: {types: [Egress, Ingress]}",
			want: []string{"spec.types[0]", "spec.types[1]"}, why: "nothing says that it is a set",
		},
		"types, by admission": {kind: "NetworkPolicy", a: "spec: {ingress: []}", b: "spec: {ingress: [], types: [Ingress]}", want: []string{"spec.types"}, why: "Felix enforces both directions where there are no types"},
		"types, both":         {kind: "StagedNetworkPolicy", a: "spec: {}", b: "spec: {types: [Ingress, Egress]}", want: []string{"spec.types"}, why: "the next write of what has none lets admission write one"},
		"other types":         {kind: "NetworkPolicy", a: "spec: {types: [Egress]}", b: "spec: {types: [Ingress]}", want: []string{"spec.types[0]"}, why: "another direction is open"},
		"staged deletion":     {kind: "StagedGlobalNetworkPolicy", a: "spec: {stagedAction: Delete}", b: "spec: {stagedAction: Delete, types: [Ingress]}", why: "nobody reads its types, and admission writes some"},
		"kubernetes types":    {kind: "StagedKubernetesNetworkPolicy", a: "spec: {policyTypes: [Ingress]}", b: "spec: {policyTypes: [Ingress, Egress]}", want: []string{"spec.policyTypes"}, why: "one direction more"},
		"kubernetes deletion": {kind: "StagedKubernetesNetworkPolicy", a: "spec: {stagedAction: Delete}", b: "spec: {stagedAction: Delete, policyTypes: [Ingress]}", why: "nobody reads its types"},
		"tier label": {
			kind: "NetworkPolicy", a: "metadata: {labels: {projectcalico.org/tier: wrong}}\nspec: {tier: t}", b: "metadata: {labels: {projectcalico.org/tier: t}}\nspec: {tier: t}",
			why: "admission sets it to the tier whatever it says",
		},
		"tier": {
			kind: "NetworkPolicy", a: "spec: {tier: a}", b: "spec: {tier: b}", want: []string{`metadata.labels["projectcalico.org/tier"]`, "spec.tier"},
			why: "another tier is another order",
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := mustKind(t, tc.kind)
			var schema *Schema
			if tc.schema != "" {
				schema = schemaOf(t, tc.schema)
			}
			a, b := v3Object(t, kind, tc.a), v3Object(t, kind, tc.b)
			before := []any{a.DeepCopy().Object, b.DeepCopy().Object}
			var got []string
			for _, d := range Diff(kind, schema, a, b) {
				got = append(got, d.Path)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			if same := Digest(kind, schema, a) == Digest(kind, schema, b); same != (len(tc.want) == 0) {
				t.Errorf("digests are equal: %v; %s", same, tc.why)
			}
			if diff := cmp.Diff(before, []any{a.Object, b.Object}); diff != "" {
				t.Errorf("the arguments were changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestDiffShowsBothValues(t *testing.T) {
	kind := mustKind(t, "NetworkSet")
	long := strings.Repeat("ä", 100)
	got := Diff(kind, nil, v3Object(t, kind, "spec: {a: 1, long: "+long+"}"), v3Object(t, kind, "spec: {b: [x], long: x}"))
	want := []FieldDiff{
		{Path: "spec.a", Want: "1", Have: "(absent)"},
		{Path: "spec.b", Want: "(absent)", Have: `["x"]`},
		{Path: "spec.long", Want: `"` + strings.Repeat("ä", 39) + "...", Have: `"x"`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
