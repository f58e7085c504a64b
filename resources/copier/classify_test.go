package copier

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/resources"
)

const me = "0e5e3214-5bda-429e-8d53-2f1b77363286"

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatalf("test object: %v\n%s", err, text)
	}
	return obj
}

func kindOf(t *testing.T, name string) *resources.Kind {
	t.Helper()
	kind, ok := resources.Default().Kind(name)
	if !ok {
		t.Fatalf("no kind %s", name)
	}
	return kind
}

func TestDecide(t *testing.T) {
	const mine = "annotations: {migration.projectcalico.org/migrated-by: " + me + "}"
	for name, tc := range map[string]struct {
		want, live string
		cause      Cause
		paths      []string
		why        string
	}{
		"equal":            {"spec: {a: x}", "spec: {a: x}", "", nil, "somebody made it already"},
		"ours and equal":   {"spec: {a: x}", "metadata: {" + mine + "}\nspec: {a: x}", "", nil, "we made it already"},
		"ours, different":  {"spec: {a: x}", "metadata: {" + mine + "}\nspec: {a: z}", CauseStale, []string{"spec.a"}, "v1 changed since"},
		"theirs":           {"spec: {a: x}", "spec: {a: z}", CauseUnmanaged, []string{"spec.a"}, "a person must decide"},
		"another run's":    {"spec: {a: x}", "metadata: {annotations: {migration.projectcalico.org/migrated-by: other}}\nspec: {a: z}", CauseUnmanaged, []string{"spec.a"}, "only our own copies are ours"},
		"labels only":      {"metadata: {labels: {l: a}}", "metadata: {labels: {l: b}}", CauseUnmanaged, []string{"metadata.labels.l"}, "labels select policy"},
		"owners in Calico": {"spec: {a: x}", "metadata: {ownerReferences: [{apiVersion: projectcalico.org/v3, kind: Tier, name: t, uid: u}]}\nspec: {a: x}", "", nil, "the owner may not be known yet"},
		"foreign owners":   {"spec: {a: x}", "metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u}]}\nspec: {a: x}", CauseUnmanaged, []string{"metadata.ownerReferences.u"}, "it is part of the object"},
		"going, though equal": {
			"spec: {a: x}", "metadata: {" + mine + ", deletionTimestamp: '2024-01-01T00:00:00Z'}\nspec: {a: x}", CauseTerminating,
			[]string{"metadata.deletionTimestamp"}, "it will be gone in a moment",
		},
	} {
		t.Run(name, func(t *testing.T) {
			live := object(t, tc.live)
			got := rules{me, kindOf(t, "NetworkSet"), nil}.compare(object(t, tc.want), live)
			var paths []string
			for _, d := range got.fields {
				paths = append(paths, d.Path)
			}
			if got.cause != tc.cause {
				t.Errorf("%q, want %q: %s", got.cause, tc.cause, tc.why)
			}
			if diff := cmp.Diff(tc.paths, paths); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

func TestDesiredKeepsWhatIsNotOurs(t *testing.T) {
	live := object(t, `
apiVersion: projectcalico.org/v3
kind: Tier
metadata:
  name: t
  uid: u
  resourceVersion: "5"
  labels: {old: label}
  finalizers: [projectcalico.org/tier-controller, old/one]
  ownerReferences: [{apiVersion: projectcalico.org/v3, kind: Tier, name: o, uid: o}, {apiVersion: v1, kind: Pod, name: p, uid: p}]
spec: {order: 1, gone: true}
extra: old
status: {conditions: []}`)
	want := object(t, `
apiVersion: projectcalico.org/v3
kind: Tier
metadata: {name: t, labels: {new: label}, annotations: {a: b}, finalizers: [new/one]}
spec: {order: 2}`)
	expected := object(t, `
apiVersion: projectcalico.org/v3
kind: Tier
metadata:
  name: t
  uid: u
  resourceVersion: "5"
  labels: {new: label}
  annotations: {a: b}
  finalizers: [new/one, projectcalico.org/tier-controller]
  ownerReferences: [{apiVersion: projectcalico.org/v3, kind: Tier, name: o, uid: o}]
spec: {order: 2}
status: {conditions: []}`)
	before := live.DeepCopy()
	got := rules{me, kindOf(t, "Tier"), nil}.desired(want, live)
	if diff := cmp.Diff(expected.Object, got.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.Object, live.Object); diff != "" {
		t.Errorf("the live object was changed (-before +after):\n%s", diff)
	}
}

func TestOwnerMapKnowsBothUIDs(t *testing.T) {
	const reversed = types.UID("707a4c28-da5b-4279-8dca-f4d8ee6c4c61")
	owners := newOwnerMap()
	if err := owners.record(idOf(me), kindOf(t, "IPAMConfiguration"), "default", &entry{uid: "new"}); err != nil {
		t.Fatal(err)
	}
	yes := true
	ref := func(apiVersion, kind string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "old-name", UID: uid, Controller: &yes}
	}
	mapped := metav1.OwnerReference{APIVersion: "projectcalico.org/v3", Kind: "IPAMConfiguration", Name: "default", UID: "new", Controller: &yes}
	for name, tc := range map[string]struct {
		ref               metav1.OwnerReference
		resolved, unknown []metav1.OwnerReference
		why               string
	}{
		"raw":      {ref: ref("crd.projectcalico.org/v1", "IPAMConfig", me), resolved: []metav1.OwnerReference{mapped}, why: "the annotation holds the raw UID"},
		"reversed": {ref: ref("projectcalico.org/v3", "IPAMConfiguration", reversed), resolved: []metav1.OwnerReference{mapped}, why: "clients of the aggregated API see the reversed one"},
		"unknown": {
			ref: ref("projectcalico.org/v3", "Tier", "00000000-0000-4000-8000-000000000001"), why: "its owner is not in v3",
			unknown: []metav1.OwnerReference{ref("projectcalico.org/v3", "Tier", "00000000-0000-4000-8000-000000000001")},
		},
		"no UUID": {ref: ref("projectcalico.org/v3", "Tier", "x"), unknown: []metav1.OwnerReference{ref("projectcalico.org/v3", "Tier", "x")}, why: "no object has such a UID"},
	} {
		t.Run(name, func(t *testing.T) {
			resolved, unknown := owners.resolve([]metav1.OwnerReference{tc.ref})
			if diff := cmp.Diff([][]metav1.OwnerReference{tc.resolved, tc.unknown}, [][]metav1.OwnerReference{resolved, unknown}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

// Whatever has changed on either side, the proof is worth nothing.
func TestAProofHolds(t *testing.T) {
	const v3 = types.UID("00000000-0000-4000-8000-000000000003")
	proved := newProofs(nil)
	proved.prove(&resources.Converted{V1UID: me, V1Version: "7"}, digest{}, v3, 8)
	for name, tc := range map[string]struct {
		why     string
		version uint64
		live    *entry
		want    bool
	}{
		"both as they were": {why: "nobody has written either", version: 7, live: &entry{id: idOf(v3), version: 8}, want: true},
		"v1 was written":    {why: "the copy is of what v1 was", version: 9, live: &entry{id: idOf(v3), version: 8}},
		"v3 was written":    {why: "it may be anything by now", version: 7, live: &entry{id: idOf(v3), version: 9}},
		"v3 is another":     {why: "somebody has created it anew", version: 7, live: &entry{id: idOf(me), version: 8}},
		"v3 is gone":        {why: "there is nothing to compare with", version: 7},
		"no number":         {why: "then nobody can tell", version: parseVersion("x"), live: &entry{id: idOf(v3), version: 8}},
	} {
		t.Run(name, func(t *testing.T) {
			id, _ := resources.ParseUID(me)
			p, known := proved.of(id)
			if got := known && p.holds(tc.version, tc.live); got != tc.want {
				t.Errorf("holds: %t, want %t: %s", got, tc.want, tc.why)
			}
		})
	}
	for name, conv := range map[string]*resources.Converted{
		"no UID":    {V1Version: "7"},
		"no number": {V1UID: me, V1Version: "x"},
	} {
		nothing := newProofs(nil)
		nothing.prove(conv, digest{}, v3, 8)
		if len(nothing.by) > 0 {
			t.Errorf("%s: %v is proved, which cannot be recognized later", name, nothing.by)
		}
	}
}

func TestOwesOwners(t *testing.T) {
	const mine = "{migration.projectcalico.org/copied-version: '7%s'}"
	tier := func(uid string) string {
		return "[{apiVersion: projectcalico.org/v3, kind: Tier, name: t, uid: " + uid + "}, {apiVersion: v1, kind: Pod, name: p, uid: " + uid + "}]"
	}
	for name, tc := range map[string]struct {
		why              string
		want, live, mark string
		content          string
		owes             bool
	}{
		"withheld":   {why: "RemapOwners sets it", want: tier("a"), live: "[]", mark: deferred, content: "8", owes: true},
		"another":    {why: "v1 has another owner by now", want: tier("a"), live: tier("b"), content: "8", owes: true},
		"none":       {why: "v1 has none by now", want: "[]", live: tier("b"), content: "8", owes: true},
		"the same":   {why: "it is complete", want: tier("a"), live: tier("a"), mark: deferred, content: "8"},
		"taken away": {why: "it had all that this v1 object has: a person did it", want: tier("a"), live: "[]", content: "7"},
		"not yet":    {why: "it never had it", want: tier("a"), live: "[]", mark: deferred, content: "7", owes: true},
	} {
		t.Run(name, func(t *testing.T) {
			want := object(t, "metadata: {ownerReferences: "+tc.want+"}")
			live := object(t, "metadata: {annotations: "+strings.ReplaceAll(mine, "%s", tc.mark)+", ownerReferences: "+tc.live+"}")
			if got := owesOwners(want, live, tc.content); got != tc.owes {
				t.Errorf("owes: %t, want %t: %s", got, tc.owes, tc.why)
			}
		})
	}
}
