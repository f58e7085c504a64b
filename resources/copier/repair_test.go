package copier

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A repair keeps the owners in Calico that a copy has. It may not say that the copy is complete while they are
// others than in v1: that would look like somebody's deed, and the migration would wait for a person.
func TestARepairLeavesOwnersToRemapOwners(t *testing.T) {
	const owned = `{"metadata":{"ownerReferences":[{"apiVersion":"crd.projectcalico.org/v1","kind":"Tier","name":"security","uid":"%s"}]}}`
	for name, tc := range map[string]struct {
		why    string
		before string // what v1 becomes before the first copy, and after it
		after  string
	}{
		"withheld":      {why: "the copy ahead has no owners, and v1 changes before the lock", before: owned, after: `{"spec":{"order":7}}`},
		"owner removed": {why: "v1 has let go of its owner, and nobody has changed the copy", before: owned, after: `{"metadata":{"ownerReferences":null},"spec":{"order":7}}`},
		"owner added":   {why: "the same", before: `{}`, after: owned},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			policy := kindOf(t, "GlobalNetworkPolicy").V1GVK()
			tier := w.v1("Tier", "metadata: {name: security}\nspec: {order: 5}")
			w.v1("GlobalNetworkPolicy", "metadata: {name: security.p}\nspec: {tier: security, selector: all()}")
			change := func(text string) {
				w.patch(w.get(policy, "security.p"), strings.ReplaceAll(text, "%s", string(tier.GetUID())))
			}
			change(tc.before)
			ahead, locked := w.copier(interceptor.Funcs{}, DeferOwners()), w.copier(interceptor.Funcs{})
			w.mustCopy(ahead)
			if name == "owner removed" {
				_, err := locked.RemapOwners(t.Context())
				w.must(err)
			}
			change(tc.after)
			for range 2 { // again, as after a crash
				w.mustCopy(locked)
			}
			remapped, err := locked.RemapOwners(t.Context())
			w.must(err)
			if diff := cmp.Diff(RemapResult{Patched: 1}, remapped); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			w.wantVerified(locked)
		})
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
