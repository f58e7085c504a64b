package resources

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What admission adds to a new object, it may not add to one that is written again: a copy without it would be made
// what v1 says in the next round, and a proof would wait for a person. What somebody owns is no work of admission.
func TestAddedByAdmission(t *testing.T) {
	kind := mustKind(t, "IPPool")
	const sent = `{"f:metadata":{"f:annotations":{".":{},"f:ours":{}}},"f:spec":{".":{},"f:cidr":{},"f:allowedUses":{}}}`
	for name, c := range map[string]struct {
		want, have string
		owned      []string
		diff       []string // of v1 and v3
		added      []Filled
		kept       string // what a repair writes, if it is not what is wanted
		why        string
	}{
		"a default":       {have: "spec: {cidr: 10.0.0.0/8, blockSize: 26}", owned: []string{sent}, added: []Filled{{"spec.blockSize", "26"}}, kept: "spec: {blockSize: 26, cidr: 10.0.0.0/8}"},
		"below a default": {have: "spec: {cidr: 10.0.0.0/8, a: {b: 1}}", owned: []string{sent}, added: []Filled{{"spec.a", `{"b":1}`}}, kept: "spec: {a: {b: 1}, cidr: 10.0.0.0/8}"},
		"a label":         {have: "metadata: {labels: {team: red}}\nspec: {cidr: 10.0.0.0/8}", owned: []string{sent}, kept: "metadata: {labels: {team: red}}\nspec: {cidr: 10.0.0.0/8}", why: "a map without entries means nothing"},
		"another value": {want: "spec: {cidr: 10.0.0.0/8, blockSize: 28}", have: "spec: {cidr: 10.0.0.0/8, blockSize: 26}", owned: []string{sent},
			diff: []string{"spec.blockSize: 28 in v1, 26 in v3"}, why: "v1 says something"},
		"somebody's": {have: "spec: {cidr: 10.0.0.0/8, blockSize: 26}", owned: []string{sent, `{"f:spec":{"f:blockSize":{}}}`},
			diff: []string{"spec.blockSize: (absent) in v1, 26 in v3"}, why: "a person has written it"},
		"an item": {want: "spec: {allowedUses: [Workload], cidr: 10.0.0.0/8}", have: "spec: {allowedUses: [Workload, Tunnel], cidr: 10.0.0.0/8}", owned: []string{sent},
			diff: []string{`spec.allowedUses: ["Workload"] in v1, ["Workload","Tunnel"] in v3`}, why: "another list is another value"},
		"gone from v1": {want: "spec: {}", have: "spec: {cidr: 10.0.0.0/8, blockSize: 26}", owned: []string{sent},
			diff: []string{`spec.cidr: (absent) in v1, "10.0.0.0/8" in v3`}, added: []Filled{{"spec.blockSize", "26"}}, kept: "spec: {blockSize: 26}", why: "we have written it"},
		"nobody's": {have: "spec: {cidr: 10.0.0.0/8, blockSize: 26}",
			diff: []string{"spec.blockSize: (absent) in v1, 26 in v3"}, why: "somebody has cleared managedFields: nothing is known"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want == "" {
				c.want = "spec: {cidr: 10.0.0.0/8}"
			}
			if c.kept == "" {
				c.kept = c.want
			}
			want, have := v3Object(t, kind, c.want), v3Object(t, kind, c.have)
			var entries []metav1.ManagedFieldsEntry
			for _, fields := range c.owned {
				entries = append(entries, metav1.ManagedFieldsEntry{Manager: "m", FieldsV1: metav1.NewFieldsV1(fields)})
			}
			have.SetManagedFields(entries)
			var diff []string
			for _, d := range Diff(kind, nil, want, have) {
				diff = append(diff, d.String())
			}
			if d := cmp.Diff(c.diff, diff); d != "" {
				t.Errorf("%s: differences (-want +got):\n%s", c.why, d)
			}
			if same := Digest(kind, nil, want) == Digest(kind, nil, have); same != (len(c.diff) == 0) {
				t.Errorf("%s: the digests are the same: %v", c.why, same)
			}
			if d := cmp.Diff(c.added, Added(want, have)); d != "" {
				t.Errorf("%s: added (-want +got):\n%s", c.why, d)
			}
			KeepAdded(want, have)
			if d := cmp.Diff(v3Object(t, kind, c.kept), want); d != "" {
				t.Errorf("%s: what a repair writes (-want +got):\n%s", c.why, d)
			}
		})
	}
}
