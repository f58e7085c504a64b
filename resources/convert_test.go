package resources

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// convertCase is one rule: a v1 object's body and the body of the v3 object that it must become.
type convertCase struct {
	kind   string
	name   string
	v1     string
	schema string
	want   string
	why    string
}

func TestConvertNames(t *testing.T) {
	runConvert(t, map[string]convertCase{
		"policy without annotation keeps its name": {
			kind: "GlobalNetworkPolicy", name: "default.foo", v1: "spec: {tier: default}",
			want: "metadata: {name: default.foo, labels: {projectcalico.org/tier: default}}\nspec: {tier: default, types: [Ingress, Egress]}",
			why:  "only Calico's own writers put the tier in front; a raw object may be called default.foo",
		},
		"policy with other annotations only keeps its name": {
			kind: "NetworkPolicy", name: "default.foo", v1: "  annotations: {a: b}\nspec: {}",
			want: "metadata: {name: default.foo, annotations: {a: b}, labels: {projectcalico.org/tier: default}}\nspec: {tier: default, types: [Ingress, Egress]}",
			why:  "what counts is the metadata annotation",
		},
		"name in the annotation wins": {
			kind: "GlobalNetworkPolicy", name: "default.foo", v1: hidden(`{"name":"default.foo"}`) + "spec: {tier: default}",
			want: "metadata: {name: default.foo, labels: {projectcalico.org/tier: default}}\nspec: {tier: default, types: [Ingress, Egress]}",
			why:  "writers since 3.30 say the true name, even one that looks prefixed",
		},
		"name in the annotation that differs": {
			kind: "StagedGlobalNetworkPolicy", name: "default.foo", v1: hidden(`{"name":"bar"}`) + "spec: {}",
			want: "metadata: {name: bar, labels: {projectcalico.org/tier: default}}\nspec: {tier: default, types: [Ingress, Egress]}",
			why:  "the annotation is the truth",
		},
		"one prefix is removed in the default tier": {
			kind: "StagedNetworkPolicy", name: "default.default.foo", v1: hidden(`{"creationTimestamp":null}`) + "spec: {tier: default}",
			want: "metadata: {name: default.foo, labels: {projectcalico.org/tier: default}}\nspec: {tier: default, types: [Ingress, Egress]}",
			why:  "writers up to 3.28 added exactly one",
		},
		"no tier is the default tier": {
			kind: "NetworkPolicy", name: "default.foo", v1: hidden(`{}`) + "spec: {order: 1}",
			want: "metadata: {name: foo, labels: {projectcalico.org/tier: default}}\nspec: {order: 1, tier: default, types: [Ingress, Egress]}",
			why:  "the tier defaults to default",
		},
		"empty tier is the default tier": {
			kind: "NetworkPolicy", name: "default.foo", v1: hidden(`{}`) + "spec: {tier: \"\"}",
			want: "metadata: {name: foo, labels: {projectcalico.org/tier: default}}\nspec: {tier: default, types: [Ingress, Egress]}",
			why:  "an empty tier is no tier",
		},
		"other tiers keep their prefix": {
			kind: "GlobalNetworkPolicy", name: "security.foo", v1: hidden(`{}`) + "spec: {tier: security}",
			want: "metadata: {name: security.foo, labels: {projectcalico.org/tier: security}}\nspec: {tier: security, types: [Ingress, Egress]}",
			why:  "only default was ever a prefix that is not part of the name",
		},
		"default prefix in another tier stays": {
			kind: "GlobalNetworkPolicy", name: "default.foo", v1: hidden(`{}`) + "spec: {tier: security}",
			want: "metadata: {name: default.foo, labels: {projectcalico.org/tier: security}}\nspec: {tier: security, types: [Ingress, Egress]}",
			why:  "the rule asks for the tier first",
		},
		"staged kubernetes policies have no tier": {
			kind: "StagedKubernetesNetworkPolicy", name: "default.foo", v1: hidden(`{"name":"bar"}`) + "spec: {}",
			want: "metadata: {name: default.foo}\nspec: {policyTypes: [Ingress]}",
			why:  "the policy rule is not theirs",
		},
		"other kinds ignore the annotation's name": {
			kind: "HostEndpoint", name: "a", v1: hidden(`{"name":"b"}`) + "spec: {}",
			want: "metadata: {name: a}\nspec: {}",
			why:  "old writers left names there that mean nothing",
		},
		"upper-case handle": {
			kind: "IPAMHandle", name: "k8s-pod-network.abc", v1: "spec: {handleID: k8s-pod-network.ABC, block: {10.0.0.0/26: 1}, deleted: false}",
			want: "metadata: {name: k8s-pod-network.abc}\nspec: {handleID: k8s-pod-network.ABC, block: {10.0.0.0/26: 1}, deleted: false}",
			why:  "v3 looks handles up by the lower-case name, and upper case is no name",
		},
		"IPAMConfig is renamed": {
			kind: "IPAMConfiguration", name: "default", v1: "spec: {strictAffinity: false, autoAllocateBlocks: false, maxBlocksPerHost: 20}",
			want: "metadata: {name: default}\nspec: {strictAffinity: false, autoAllocateBlocks: false, maxBlocksPerHost: 20}",
			why:  "v3 defaults autoAllocateBlocks to true: the explicit false must arrive",
		},
	})
}

func TestConvertMetadata(t *testing.T) {
	runConvert(t, map[string]convertCase{
		"server-set fields go": {
			kind: "NetworkSet", name: "a",
			v1:   "  namespace: ns\n  selfLink: /x\n  generateName: a-\n  managedFields: [{manager: m}]\n  labels: {l: v}\nspec: {nets: [10.0.0.0/8]}",
			want: "metadata: {name: a, namespace: ns, labels: {l: v}}\nspec: {nets: [10.0.0.0/8]}",
			why:  "a create with a resourceVersion is refused",
		},
		"labels and annotations are merged": {
			kind: "HostEndpoint", name: "a",
			v1: "  labels: {real: r, both: real}\n  annotations:\n    x: real\n    both: real\n    projectcalico.org/metadata: |\n" +
				`      {"labels":{"both":"hidden","hid":"h"},"annotations":{"both":"hidden","z":"h"},"uid":"u","creationTimestamp":"2020-01-01T00:00:00Z"}` + "\nspec: {node: node1}",
			want: "metadata: {name: a, labels: {real: r, both: hidden, hid: h}, annotations: {x: real, both: hidden, z: h}}\nspec: {node: node1}",
			why:  "the annotation wins where both say something",
		},
		"hidden notes": {
			kind: "IPPool", name: "a", v1: hidden(`{"annotations":{"keep":"me","migration.projectcalico.org/barrier":"1/1/1","migration.projectcalico.org/detached-owners":"x"}}`) + "spec: {cidr: 10.0.0.0/8}",
			want: "metadata: {name: a, annotations: {keep: me}}\nspec: {cidr: 10.0.0.0/8}",
			why:  "our notes on a v1 object are none of its copy's",
		},
		"hidden finalizers": {
			kind: "IPPool", name: "a", v1: "  finalizers: [real/f]\n" + hidden(`{"finalizers":["hidden/f"]}`) + "spec: {cidr: 10.0.0.0/8}",
			want: "metadata: {name: a, finalizers: [hidden/f]}\nspec: {cidr: 10.0.0.0/8}",
			why:  "with an annotation, only its finalizers are the object's",
		},
		"no hidden finalizers": {
			kind: "IPPool", name: "a", v1: "  finalizers: [real/f]\n" + hidden(`{}`) + "spec: {cidr: 10.0.0.0/8}",
			want: "metadata: {name: a}\nspec: {cidr: 10.0.0.0/8}",
			why:  "with an annotation, only its finalizers are the object's",
		},
		"real finalizers": {
			kind: "IPPool", name: "a", v1: "  finalizers: [real/f]\nspec: {cidr: 10.0.0.0/8}",
			want: "metadata: {name: a, finalizers: [real/f]}\nspec: {cidr: 10.0.0.0/8}",
			why:  "a raw object's own finalizers count",
		},
		"foreign owners stay": {
			kind: "IPPool", name: "a",
			v1:   hidden(`{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u1","controller":true}]}`) + "spec: {}",
			want: "metadata: {name: a, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u1, controller: true}]}\nspec: {}",
			why:  "an owner outside Calico keeps its UID",
		},
		"real owners are discarded beside an annotation": {
			kind: "IPPool", name: "a",
			v1:   "  ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u1}]\n" + hidden(`{}`) + "spec: {}",
			want: "metadata: {name: a}\nspec: {}",
			why:  "Calico's read path discards them too",
		},
		"real owners of a raw object": {
			kind: "IPPool", name: "a",
			v1:   "  ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u1}]\nspec: {}",
			want: "metadata: {name: a, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u1}]}\nspec: {}",
			why:  "without an annotation they are all there is",
		},
	})
}

func TestConvertSpecs(t *testing.T) {
	runConvert(t, map[string]convertCase{
		"no spec":    {kind: "IPReservation", name: "a", v1: "", want: "metadata: {name: a}\nspec: {}", why: "v3 requires a spec"},
		"null spec":  {kind: "IPReservation", name: "a", v1: "spec: null", want: "metadata: {name: a}\nspec: {}", why: "v3 requires a spec"},
		"empty tier": {kind: "Tier", name: "a", v1: "", want: "metadata: {name: a}\nspec: {order: 1000000, defaultAction: Deny}", why: "Calico assumes both"},
		"full tier":  {kind: "Tier", name: "a", v1: "spec: {order: 1.5, defaultAction: Pass}", want: "metadata: {name: a}\nspec: {order: 1.5, defaultAction: Pass}", why: "what is said stays"},
		"status with a subresource": {
			kind: "IPPool", name: "a", v1: "spec: {cidr: 10.0.0.0/8}\nstatus: {conditions: []}",
			want: "metadata: {name: a}\nspec: {cidr: 10.0.0.0/8}", why: "a create would drop it; it is a write of its own",
		},
		"status without a subresource": {
			kind: "HostEndpoint", name: "a", v1: "spec: {node: node1}\nstatus: {x: 1}",
			want: "metadata: {name: a}\nspec: {node: node1}\nstatus: {x: 1}", why: "it is a field like any other",
		},
		"block arrives whole": {
			kind: "IPAMBlock", name: "10-0-0-0-30",
			v1: "spec: {cidr: 10.0.0.0/30, allocations: [null, 0, null, 1], unallocated: [2, 0], strictAffinity: true, deleted: false, sequenceNumber: 9007199254740993, " +
				"sequenceNumberForAllocation: {'1': 5}, attributes: [{handle_id: H, secondary: {node: node1}, releasedAt: '2024-01-01T00:00:00Z'}, {handle_id: null}]}",
			want: "metadata: {name: 10-0-0-0-30}\n" +
				"spec: {cidr: 10.0.0.0/30, allocations: [null, 0, null, 1], unallocated: [2, 0], strictAffinity: true, deleted: false, sequenceNumber: 9007199254740993, " +
				"sequenceNumberForAllocation: {'1': 5}, attributes: [{handle_id: H, secondary: {node: node1}, releasedAt: '2024-01-01T00:00:00Z'}, {handle_id: null}]}",
			why: "null is a free address, unallocated is a queue, releasedAt a cooldown, and a float would round the number",
		},
		"unknown fields": {
			kind: "FelixConfiguration", name: "default", v1: "spec: {brandNew: {deep: [{er: 1.25}]}}\nextra: {a: b}",
			want: "metadata: {name: default}\nspec: {brandNew: {deep: [{er: 1.25}]}}\nextra: {a: b}", why: "newer Calico versions have fields that nobody here knows",
		},
		"affinity deleted":           {kind: "BlockAffinity", name: "a", v1: `spec: {deleted: "true"}`, want: "metadata: {name: a}\nspec: {deleted: true}", why: "v3 has a bool"},
		"affinity not deleted":       {kind: "BlockAffinity", name: "a", v1: `spec: {deleted: "false"}`, want: "metadata: {name: a}\nspec: {deleted: false}", why: "v3 has a bool"},
		"affinity empty":             {kind: "BlockAffinity", name: "a", v1: `spec: {deleted: "", state: ""}`, want: "metadata: {name: a}\nspec: {deleted: false, state: \"\"}", why: "empty is not deleted; the empty state is a state"},
		"affinity silent":            {kind: "BlockAffinity", name: "a", v1: `spec: {node: node1}`, want: "metadata: {name: a}\nspec: {node: node1, deleted: false}", why: "v3 requires the field"},
		"affinity with a bool":       {kind: "BlockAffinity", name: "a", v1: `spec: {deleted: true}`, want: "metadata: {name: a}\nspec: {deleted: true}", why: "it is what v3 wants already"},
		"empty strings, no schema":   {kind: "IPPool", name: "a", v1: `spec: {ipipMode: ""}`, want: "metadata: {name: a}\nspec: {ipipMode: \"\"}", why: "without a schema nothing says that it is refused"},
		"empty strings, with schema": emptyStrings,
		"empty tier action falls to the default": {
			kind: "Tier", name: "a", v1: `spec: {order: 1, defaultAction: ""}`,
			schema: "{type: object, properties: {order: {type: number}, defaultAction: {type: string, enum: [Pass, Deny]}}}",
			want:   "metadata: {name: a}\nspec: {order: 1, defaultAction: Deny}",
			why:    "the empty string is refused and so counts as absent",
		},
	})
}

// What Calico's mutating admission policies would add is there also in a cluster that does not have them, where it
// means what its absence does.
func TestConvertFillsInWhatAdmissionWould(t *testing.T) {
	runConvert(t, map[string]convertCase{
		"another label": {kind: "NetworkPolicy", name: "security.a", v1: "  labels: {projectcalico.org/tier: other, a: b}\nspec: {tier: security, types: [Ingress]}",
			want: "metadata: {name: security.a, labels: {projectcalico.org/tier: security, a: b}}\nspec: {tier: security, types: [Ingress]}", why: "the spec is the truth, and lists by tier go by the label"},
		"a Kubernetes policy": {kind: "StagedKubernetesNetworkPolicy", name: "a", v1: "spec: {policyTypes: [Egress]}", want: "metadata: {name: a}\nspec: {policyTypes: [Egress]}", why: "it has no tier"},
		"no policy":           {kind: "Tier", name: "a", v1: "spec: {order: 1, defaultAction: Pass}", want: "metadata: {name: a}\nspec: {order: 1, defaultAction: Pass}", why: "nothing is added to other kinds"},
	})
}

var emptyStrings = convertCase{
	kind: "IPPool", name: "a",
	schema: `
type: object
required: [need]
properties:
  mode: {type: string, enum: [Always, Never]}
  state: {type: string, enum: ["", confirmed]}
  need: {type: string, enum: [x]}
  when: {type: string, format: date-time}
  pattern: {type: string, pattern: '^a+$'}
  loose: {type: string, pattern: '^a*$'}
  long: {type: string, minLength: 1}
  free: {type: string}
  version: {type: integer, enum: [4, 6]}
  number: {type: integer, minimum: 1}
  names: {type: object, additionalProperties: {type: string, enum: [x]}}
  list: {type: array, items: {type: object, properties: {mode: {type: string, enum: [x]}}}}
  byName: {type: object, additionalProperties: {type: object, properties: {mode: {type: string, enum: [x]}}}}
  scalars: {type: array, items: {type: string, enum: [x]}}`,
	v1: `spec: {mode: "", state: "", need: "", when: "", pattern: "", loose: "", long: "", free: "", version: 0, number: 0,
  unknown: "", names: {a: ""}, list: [{mode: "", o: 1}, {}], byName: {a: {mode: ""}}, scalars: [""]}`,
	want: `
metadata: {name: a}
spec: {state: "", need: "", loose: "", free: "", number: 0, unknown: "", names: {a: ""}, list: [{o: 1}, {}], byName: {a: {}}, scalars: [""]}`,
	why: "an optional field whose enum, pattern or format refuses the empty value was never meant to be set; required fields, map keys and list items are data",
}

// hidden is a metadata annotation as the last metadata field.
func hidden(json string) string {
	return "  annotations:\n    projectcalico.org/metadata: '" + json + "'\n"
}

func runConvert(t *testing.T, cases map[string]convertCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kind := mustKind(t, tc.kind)
			v1 := v1Object(t, kind, tc.name, tc.v1)
			before := v1.DeepCopy()
			var schema *Schema
			if tc.schema != "" {
				schema = schemaOf(t, tc.schema)
			}
			got, err := Convert(kind, v1, schema)
			must(t, err)
			want := object(t, "apiVersion: projectcalico.org/v3\nkind: "+tc.kind+"\n"+tc.want)
			if diff := cmp.Diff(want.Object, got.Object.Object); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			if diff := cmp.Diff(before.Object, v1.Object); diff != "" {
				t.Errorf("the argument was changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestConvertWithholdsCalicoOwners(t *testing.T) {
	kind := mustKind(t, "NetworkSet")
	calico := func(apiVersion string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: "Tier", Name: "t", UID: "u"}
	}
	got, err := Convert(kind, v1Object(t, kind, "a", hidden(`{"ownerReferences":[`+
		`{"apiVersion":"crd.projectcalico.org/v1","kind":"Tier","name":"t","uid":"u"},`+
		`{"apiVersion":"v1","kind":"Pod","name":"p","uid":"p1"},`+
		`{"apiVersion":"projectcalico.org/v3","kind":"Tier","name":"t","uid":"u"}]}`)), nil)
	must(t, err)
	want := []metav1.OwnerReference{calico("crd.projectcalico.org/v1"), calico("projectcalico.org/v3")}
	if diff := cmp.Diff(want, got.Owners); diff != "" {
		t.Errorf("withheld (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p1"}}, got.Object.GetOwnerReferences()); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestConvertTellsTerminating(t *testing.T) {
	kind := mustKind(t, "Tier")
	for name, tc := range map[string]struct {
		v1   string
		want bool
		why  string
	}{
		"alive":  {"", false, "nothing deletes it"},
		"real":   {"  deletionTimestamp: '2024-01-01T00:00:00Z'\n", true, "the v1 object is going"},
		"hidden": {hidden(`{"deletionTimestamp":"2024-01-01T00:00:00Z"}`), true, "the aggregated API keeps a deletion that waits for a finalizer in the annotation"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Convert(kind, v1Object(t, kind, "a", tc.v1), nil)
			must(t, err)
			if got.Terminating != tc.want {
				t.Errorf("terminating is %v, want %v: %s", got.Terminating, tc.want, tc.why)
			}
		})
	}
}

func TestConvertProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		kind string
		v1   string
		want Reason
		why  string
	}{
		"annotation is no JSON":       {"NetworkSet", hidden("{"), ReasonUnreadableMetadata, "skipping the object would lose it"},
		"annotation is empty":         {"NetworkSet", hidden(""), ReasonUnreadableMetadata, "an empty text is no JSON"},
		"annotation is a list":        {"NetworkSet", hidden("[]"), ReasonUnreadableMetadata, "it must be an object"},
		"annotation of a wrong type":  {"NetworkSet", hidden(`{"labels":{"a":1}}`), ReasonUnreadableMetadata, "a label is a string"},
		"labels of a wrong type":      {"NetworkSet", "  labels: {a: 1}\n", ReasonUnreadableMetadata, "the accessor would take all labels for absent"},
		"uid is no UUID":              {"NetworkSet", "  uid: abc\n", ReasonBadUID, "it has no reversed form, so its dependents cannot be found"},
		"deleted is neither":          {"BlockAffinity", "spec: {deleted: 'yes'}", ReasonUnreadableField, "a guess could revive a deleted affinity"},
		"deleted is an object":        {"BlockAffinity", "spec: {deleted: {a: b}}", ReasonUnreadableField, "a guess could revive a deleted affinity"},
		"spec of a tier is no object": {"Tier", "spec: text", ReasonUnreadableField, "there is nowhere to put the defaults"},
	} {
		t.Run(name, func(t *testing.T) {
			kind := mustKind(t, tc.kind)
			v1 := v1Object(t, kind, "a", "  namespace: ns\n")
			for k, v := range object(t, "apiVersion: v1\nkind: X\nmetadata:\n  namespace: ns\n  name: a\n"+tc.v1).Object {
				if k == "metadata" {
					meta := v1.Object[k].(map[string]any)
					for k, v := range v.(map[string]any) {
						meta[k] = v
					}
				} else if k == "spec" {
					v1.Object[k] = v
				}
			}
			_, err := Convert(kind, v1, nil)
			var problem *Problem
			if !errors.As(err, &problem) {
				t.Fatalf("got %v, want a problem: %s", err, tc.why)
			}
			got := Problem{Kind: problem.Kind, Namespace: problem.Namespace, Name: problem.Name, Reason: problem.Reason}
			if diff := cmp.Diff(Problem{Kind: tc.kind, Namespace: "ns", Name: "a", Reason: tc.want}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			if problem.Message == "" || problem.Remedy == "" {
				t.Errorf("no message or no remedy: %+v", problem)
			}
		})
	}
}
