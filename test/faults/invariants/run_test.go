package invariants_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/equality"
)

// side reads objects, one for each document.
func side(t *testing.T, text string) equality.Side {
	t.Helper()
	out := equality.Side{}
	for _, doc := range strings.Split(text, "---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
			t.Fatal(err)
		}
		out[equality.Key{Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName()}] = obj
	}
	return out
}

const (
	tier   = "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: t, uid: seen}\nspec: {order: 1}\n"
	copied = "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: t, uid: new, annotations: {migration.projectcalico.org/migrated-by: us}}\nspec: {order: 1}\n"
	v1Tier = "apiVersion: crd.projectcalico.org/v1\nkind: Tier\nmetadata: {name: t, uid: raw, resourceVersion: '1'}\nspec: {order: 1}\n"
	guard  = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s, namespace: shop, labels: {faults.phasegate.dev/sentinel: x}, ownerReferences: [{apiVersion: projectcalico.org/v3, kind: Tier, name: t, uid: OWNER}]}\ndata: {a: b}\n"
)

func owned(owner string) string { return strings.ReplaceAll(guard, "OWNER", owner) }

func machine(t *testing.T) *fsm.Machine {
	t.Helper()
	text, err := phases.Files.ReadFile("datastore-migration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	definition, findings := fsm.Load("datastore-migration.yaml", text)
	if findings.Err() != nil {
		t.Fatal(findings.Err())
	}
	m, findings := fsm.Bind(definition, datastoremigration.Bindings())
	if findings.Err() != nil {
		t.Fatal(findings.Err())
	}
	return m
}

func status(phase string, migrated int32) *migrationv1.DatastoreMigration {
	dm := &migrationv1.DatastoreMigration{}
	dm.UID = "us"
	dm.Status.Machine.Phase = phase
	if migrated > 0 {
		dm.Status.Progress = &migrationv1.Progress{Migrated: migrated}
	}
	return dm
}

// stored are the states behind what was shown.
func stored(shown []*migrationv1.DatastoreMigration) (states []*v1alpha1.MachineState) {
	for _, dm := range shown {
		state := &v1alpha1.MachineState{}
		state.Spec.Object.UID, state.Status.MachineStatus = dm.UID, dm.Status.Machine
		states = append(states, state)
	}
	return states
}

// good is a migration that has gone well, to an end.
func good(t *testing.T, end invariants.End) *invariants.Run {
	t.Helper()
	before := &invariants.State{V1: side(t, v1Tier), V3: side(t, tier), Stored: []string{}, Others: side(t, owned("seen"))}
	r := &invariants.Run{End: end, Machine: machine(t), Before: before, Limit: time.Minute,
		After: &invariants.State{V1: side(t, v1Tier), V3: side(t, copied), Stored: []string{"tiers/t"}, Others: side(t, owned("new"))}}
	r.Record.V1Ready = []bool{true, false}
	r.Record.Statuses = []*migrationv1.DatastoreMigration{status("", 0), status("Pending", 0), status("Migrating", 1), status("Migrating", 2)}
	switch end {
	case invariants.GivenBack:
		r.After = &invariants.State{V1: side(t, v1Tier), V3: side(t, tier), Stored: []string{}, Others: side(t, owned("seen"))}
		r.Record.V1Ready = append(r.Record.V1Ready, true)
		r.Record.Statuses, r.Record.Gone = append(r.Record.Statuses, status("Aborting", 0)), true
	case invariants.Open:
		r.Record.Statuses = append(r.Record.Statuses, status("Converged", 2))
	}
	return r
}

// Each invariant can fail, and says what is wrong.
func TestViolations(t *testing.T) {
	at := func(text string) func(equality.Side, *testing.T) {
		return func(s equality.Side, t *testing.T) { maps.Copy(s, side(t, text)) }
	}
	cases := map[string]struct {
		why  string
		end  invariants.End
		harm func(t *testing.T, r *invariants.Run)
		want string
	}{
		"all well, at the gate": {why: "nothing is wrong", end: invariants.AtGate, harm: func(*testing.T, *invariants.Run) {}},
		"all well, detached": {why: "the note goes when the owners come back", end: invariants.AtGate, harm: func(_ *testing.T, r *invariants.Run) {
			obj := r.After.Others[equality.Key{Kind: "ConfigMap", Namespace: "shop", Name: "s"}]
			obj.SetOwnerReferences(nil)
			obj.SetAnnotations(map[string]string{migrationv1.AnnotationDetachedOwners: "[]"})
		}},
		"all well, open":     {why: "nothing is wrong", end: invariants.Open, harm: func(*testing.T, *invariants.Run) {}},
		"all well, released": {why: "nothing is wrong", end: invariants.GivenBack, harm: func(*testing.T, *invariants.Run) {}},
		"a copy is missing": {why: "loss", end: invariants.AtGate, want: "I1",
			harm: func(_ *testing.T, r *invariants.Run) { clear(r.After.V3) }},
		"v1 is emptied": {why: "loss on the other side", end: invariants.AtGate, want: "I1",
			harm: func(_ *testing.T, r *invariants.Run) { clear(r.After.V1) }},
		"one too many": {why: "a stray", end: invariants.AtGate, want: "I2",
			harm: func(t *testing.T, r *invariants.Run) {
				at(strings.Replace(copied, "name: t", "name: other", 1))(r.After.V3, t)
			}},
		"another migration's copy": {why: "an abort would not take it back", end: invariants.Open, want: "I2",
			harm: func(t *testing.T, r *invariants.Run) {
				at(strings.Replace(copied, "migrated-by: us", "migrated-by: them", 1))(r.After.V3, t)
			}},
		"copies stay after an abort": {why: "they would be in the way of the next one", end: invariants.GivenBack, want: "I2",
			harm: func(_ *testing.T, r *invariants.Run) { r.After.Stored = []string{"tiers/t"} }},
		"another value": {why: "content", end: invariants.Open, want: "I3",
			harm: func(t *testing.T, r *invariants.Run) {
				at(strings.Replace(copied, "order: 1", "order: 2", 1))(r.After.V3, t)
			}},
		"a status is lost": {why: "a tier has one", end: invariants.Open, want: "I3",
			harm: func(t *testing.T, r *invariants.Run) { at(tier+"status: {conditions: []}\n")(r.Before.V3, t) }},
		"v1 has a note": {why: "byte for byte", end: invariants.GivenBack, want: "I3",
			harm: func(t *testing.T, r *invariants.Run) {
				at(strings.Replace(v1Tier, "uid: raw", "uid: raw, annotations: {migration.projectcalico.org/detached-owners: x}", 1))(r.After.V1, t)
			}},
		"a write was accepted": {why: "it is in neither copy", end: invariants.Open, want: "I4",
			harm: func(_ *testing.T, r *invariants.Run) { r.Accepted = []string{"a write"} }},
		"an object of others changed": {why: "it is theirs", end: invariants.AtGate, want: "I5",
			harm: func(t *testing.T, r *invariants.Run) {
				at(strings.Replace(owned("new"), "a: b", "a: c", 1))(r.After.Others, t)
			}},
		"an object of others is gone": {why: "the garbage collector took it", end: invariants.GivenBack, want: "I5",
			harm: func(_ *testing.T, r *invariants.Run) { clear(r.After.Others) }},
		"a fence stays": {why: "nobody could write v1", end: invariants.GivenBack, want: "I5",
			harm: func(t *testing.T, r *invariants.Run) {
				at("apiVersion: v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: f}\n")(r.After.Others, t)
			}},
		"progress goes back": {why: "people look at it", end: invariants.AtGate, want: "I6",
			harm: func(_ *testing.T, r *invariants.Run) {
				r.Record.Statuses = append(r.Record.Statuses, status("Migrating", 1))
			}},
		"a jump": {why: "the machine has no such way", end: invariants.Open, want: "I6",
			harm: func(_ *testing.T, r *invariants.Run) {
				r.Record.Statuses = append(r.Record.Statuses[:2:2], status("Aborting", 2), status("Converged", 2))
			}},
		"another end": {why: "it went on", end: invariants.AtGate, want: "I7",
			harm: func(_ *testing.T, r *invariants.Run) {
				r.Record.Statuses = append(r.Record.Statuses, status("Converged", 2))
			}},
		"late": {why: "somebody waits", end: invariants.Open, want: "I7",
			harm: func(_ *testing.T, r *invariants.Run) { r.Took = time.Hour }},
		"an owner with the old uid": {why: "the garbage collector would delete it", end: invariants.Open, want: "I8",
			harm: func(t *testing.T, r *invariants.Run) { at(owned("seen"))(r.After.Others, t) }},
		"unlocked twice": {why: "somebody wrote in between", end: invariants.GivenBack, want: "I9",
			harm: func(_ *testing.T, r *invariants.Run) { r.Record.V1Ready = []bool{true, false, true, false, true} }},
		"unlocked after all": {why: "past the gate it stays locked", end: invariants.Open, want: "I9",
			harm: func(_ *testing.T, r *invariants.Run) { r.Record.V1Ready = []bool{true, false, true} }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := good(t, tc.end)
			tc.harm(t, r)
			r.Record.States = stored(r.Record.Statuses)
			got := r.Check()
			if tc.want == "" {
				if len(got) > 0 {
					t.Errorf("%s, but it says %q", tc.why, got)
				}
				return
			}
			if len(got) != 1 || !strings.HasPrefix(got[0], tc.want+":") {
				t.Errorf("%s: got %q, want one violation of %s", tc.why, got, tc.want)
			}
		})
	}
}
