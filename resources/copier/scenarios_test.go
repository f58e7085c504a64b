package copier

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fixture"
)

func TestCopyAllKindsTwice(t *testing.T) {
	w, c := newLive(t, interceptor.Funcs{})
	objs := slices.DeleteFunc(fixture.Demo(1, 120), func(obj *unstructured.Unstructured) bool {
		return obj.GetKind() == resources.Default().Lock().V1Kind()
	})
	w.must(fixture.Create(t.Context(), w.config, objs, 16))
	total := int64(len(objs))

	var last Progress
	first, err := c.Copy(t.Context(), func(p Progress) {
		if p.Total != total || p.Done < last.Done {
			t.Errorf("progress went from %d/%d to %d/%d", last.Done, last.Total, p.Done, p.Total)
		}
		last = p
	})
	w.must(err)
	// Protected tiers may be left over from another test; they are equal.
	w.wantCounts("first copy", first, Counts{Created: total - first.AlreadyEqual, AlreadyEqual: min(first.AlreadyEqual, int64(len(builtin)))})
	if diff := cmp.Diff(first.Progress, last); diff != "" {
		t.Errorf("the last report is not the result (-result +report):\n%s", diff)
	}
	w.wantCounts("second copy", w.mustCopy(c), Counts{Kept: first.Created, AlreadyEqual: first.AlreadyEqual})
	w.wantVerified(c)
	deletion := w.mustDelete(c)
	if deletion.Deleted+int64(len(deletion.Kept)) != first.Created {
		t.Errorf("%+v, want %d deleted or kept", deletion, first.Created)
	}
	if n := w.count(v3("IPAMHandle")); n != 0 {
		t.Errorf("%d handles are left", n)
	}
}

// neverStale fails the test when a create is sent that names a Calico owner other than a live v3 object.
func neverStale(t *testing.T) interceptor.Funcs {
	return interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		for _, ref := range obj.GetOwnerReferences() {
			target := named(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind), ref.Name)
			if err := c.Get(ctx, client.ObjectKeyFromObject(target), target); err != nil || target.GetUID() != ref.UID {
				t.Errorf("%s is created with the stale owner %+v (%v)", obj.GetName(), ref, err)
			}
		}
		return c.Create(ctx, obj, opts...)
	}}
}

func TestOwners(t *testing.T) {
	w, c := newLive(t, neverStale(t))
	tier := w.v1("Tier", "metadata: {name: security}\nspec: {order: 5, defaultAction: Deny}").GetUID()
	reversed, err := resources.ReverseUID(tier)
	w.must(err)
	const policySpec = "spec: {tier: security, selector: all()}"
	for i := range 20 {
		w.v1("GlobalNetworkPolicy", owned(fmt.Sprintf("security.p%d", i), "crd.projectcalico.org/v1", "Tier", "security", tier)+policySpec)
	}
	policy := w.v1("GlobalNetworkPolicy", owned("security.view", "projectcalico.org/v3", "Tier", "security", reversed)+policySpec)
	// Tiers are written before policies: this owner cannot be known yet.
	w.v1("Tier", owned("early", "projectcalico.org/v3", "GlobalNetworkPolicy", "security.view", policy.GetUID())+"spec: {order: 6, defaultAction: Deny}")
	w.v1("GlobalNetworkSet", owned("orphan", "projectcalico.org/v3", "Tier", "nobody", "00000000-0000-4000-8000-000000000001")+"spec: {nets: [10.0.0.0/8]}")

	for _, when := range []string{"first copy", "second copy, as after a crash"} {
		if n := w.mustCopy(c).Deferred; n != 2 {
			t.Errorf("%s: %d objects without their owners, want early and orphan", when, n)
		}
	}
	w.wantSaid("owners that come later", w.mustVerify(c).Different, map[string]string{"early": "Stale metadata.ownerReferences"})
	w.wantRemap(c, 1, "orphan")
	w.wantRemap(c, 0, "orphan")
	newPolicy := w.get(v3("GlobalNetworkPolicy"), "security.view")
	w.wantOwner(newPolicy, w.get(v3("Tier"), "security"))
	w.wantOwner(w.get(v3("Tier"), "early"), newPolicy)
	if n := w.count(v3("GlobalNetworkPolicy")); n != 21 {
		t.Errorf("%d policies in v3, want 21", n)
	}
	w.wantVerified(c)
}

// What somebody has changed after it was copied is his; what v1 has changed is copied again.
func TestAnEditedCopyIsAConflict(t *testing.T) {
	const nets = "spec: {nets: [10.0.0.0/8, 11.0.0.0/8]}"
	cases := map[string]struct {
		why      string
		v3, v1   string // merge patches, "" for none
		want     string // what Verify says; "" for nothing
		repaired bool   // a Copy makes both sides equal again
	}{
		"spec":               {why: "another writer owns the field", v3: `{"spec":{"nets":["10.0.0.0/8","12.0.0.0/8"]}}`, want: "Edited spec.nets[1]"},
		"label added":        {why: "labels select policy", v3: `{"metadata":{"labels":{"new":"label"}}}`, want: "Edited metadata.labels.new"},
		"label changed":      {why: "labels select policy", v3: `{"metadata":{"labels":{"team":"red"}}}`, want: "Edited metadata.labels.team"},
		"label removed":      {why: "nobody owns what is gone; v1 had it when it was copied", v3: `{"metadata":{"labels":{"team":null}}}`, want: "Edited metadata.labels.team"},
		"annotation removed": {why: "the same", v3: `{"metadata":{"annotations":{"note":null}}}`, want: "Edited metadata.annotations.note"},
		"finalizer added":    {why: "a finalizer is a promise", v3: `{"metadata":{"finalizers":["test/a","test/b"]}}`, want: "Edited metadata.finalizers"},
		"finalizer removed":  {why: "the copy still owns the list", v3: `{"metadata":{"finalizers":null}}`, want: "Edited metadata.finalizers"},
		"v1 changed":         {why: "an old copy is nobody's", v1: `{"spec":{"nets":["12.0.0.0/8"]},"metadata":{"labels":{"more":"labels","team":null}}}`, want: "Stale metadata.labels.more metadata.labels.team spec.nets", repaired: true},
		"both, same field": {why: "whose change is right, a person must say", v1: `{"metadata":{"labels":{"team":"green"}}}`,
			v3: `{"metadata":{"labels":{"team":"red"}}}`, want: "Edited metadata.labels.team"},
		"both, and the edit agrees": {why: "what he wrote is what v1 says by now; the rest is copied", v1: `{"metadata":{"labels":{"team":"green"}},"spec":{"nets":["12.0.0.0/8"]}}`,
			v3: `{"metadata":{"labels":{"team":"green"}}}`, want: "Stale spec.nets", repaired: true},
		"edited into equality": {why: "equal is equal, whoever wrote it", v1: `{"metadata":{"labels":{"team":"green"}}}`, v3: `{"metadata":{"labels":{"team":"green"}}}`, repaired: true},
	}
	w, c := newLive(t, interceptor.Funcs{})
	name := func(text string) string { return strings.NewReplacer(" ", "-", ",", "").Replace(text) }
	for text := range cases {
		w.v1("GlobalNetworkSet", "metadata: {name: "+name(text)+", labels: {team: blue}, annotations: {note: old}, finalizers: [test/a]}\n"+nets)
	}
	w.v1("GlobalNetworkSet", "metadata: {name: untouched}\n"+nets)
	w.mustCopy(c)
	found, conflicts := map[string]string{}, map[string]string{}
	for text, tc := range cases {
		for gvk, change := range map[schema.GroupVersionKind]string{v1("GlobalNetworkSet"): tc.v1, v3("GlobalNetworkSet"): tc.v3} {
			if change != "" {
				w.patch(named(gvk, name(text)), change)
			}
		}
		if tc.want != "" {
			found[name(text)] = tc.want
		}
		if !tc.repaired {
			conflicts[name(text)] = tc.want
		}
	}
	w.wantSaid("before", w.mustVerify(c).Different, found)
	for _, when := range []string{"a copy", "another copy"} {
		w.wantSaid(when, w.mustCopy(c).Conflicts, conflicts)
		w.wantSaid("verified after "+when, w.mustVerify(c).Different, conflicts)
	}
	w.wantSaid("for people", w.mustCompare(c).Conflicts, conflicts)
	for name := range conflicts { // the person lets v1 be right
		w.patch(named(v3("GlobalNetworkSet"), name), `{"metadata":{"finalizers":null}}`)
		w.remove(named(v3("GlobalNetworkSet"), name))
	}
	w.mustCopy(c)
	w.wantVerified(c)
}

// What admission makes of a copy is nobody's decision: it is named field by field, and never taken for proved. What it
// adds to the metadata is its own.
func TestWhatAdmissionReplacesIsNamed(t *testing.T) {
	w, c := newLive(t, interceptor.Funcs{})
	w.labelling("CREATE, UPDATE", `Object{metadata: Object.metadata{labels: {"team": "red", "audited": "yes"}}, spec: Object.spec{nets: ["1.1.1.1/32"]}}`,
		map[string]string{"team": "red", "audited": "yes"})
	w.v1("GlobalNetworkSet", "metadata: {name: altered, labels: {team: blue}}\nspec: {nets: [10.0.0.0/8]}")
	w.v1("GlobalNetworkSet", "metadata: {name: added, labels: {team: red}}\nspec: {nets: [1.1.1.1/32]}")
	nets := "spec.nets[0]"
	if os.Getenv(crds.EnvDir) != "" {
		nets = "spec.nets" // in Calico's CRDs it is a set, to which an apply configuration adds
	}
	want := map[string]string{"altered": "Altered metadata.labels.team " + nets}
	for _, when := range []string{"created", "looked at again"} {
		w.wantSaid(when, w.mustCopy(c).Altered, want)
	}
	v := w.mustVerify(c)
	w.wantSaid("verified", v.Altered, want)
	if v.OK() || !v.Accepted(true) || v.Same() != 1 {
		t.Errorf("equal %t, accepted by a waiver %t, the same %d; want false, true, 1", v.OK(), v.Accepted(true), v.Same())
	}
	digests := migrationv1.JoinDigests(v.Verified())
	if !strings.HasPrefix(digests, "GlobalNetworkSet=1+1:") {
		t.Errorf("verified: %q, want one object, and one that is not", digests)
	}
}

const poolSpec = "spec: {cidr: 10.0.0.0/8, blockSize: 26, nodeSelector: all(), vxlanMode: Never, ipipMode: Never}"

// setStatus writes one condition, as Calico does for a pool.
func (w *world) setStatus(obj *unstructured.Unstructured, status string) {
	w.Helper()
	const conditions = `{"status":{"conditions":[{"type":"Allocatable","status":"%s","reason":"r","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	w.patchStatus(obj, "calico", fmt.Sprintf(conditions, status))
}

// A status goes with the object; one that a controller has written in v3 by then stays.
func TestStatusIsCopiedOnce(t *testing.T) {
	var lost sync.Once
	down := map[string]bool{"crash": true}
	w, c := newLive(t, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
		if down[obj.GetName()] {
			return syscall.ECONNREFUSED
		}
		err := c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		lost.Do(func() { err = syscall.ECONNRESET }) // it has landed, and nobody learns of it
		return err
	}})
	for _, name := range []string{"with", "moved", "crash"} {
		w.v1("IPPool", "metadata: {name: "+name+"}\n"+poolSpec)
		w.setStatus(named(v1("IPPool"), name), "True")
	}
	w.v1("IPPool", "metadata: {name: without}\n"+poolSpec)
	if _, err := c.Copy(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "IPPool /crash") {
		t.Fatalf("a status that is not written is no success: %v", err)
	}
	down = nil
	w.mustCopy(c)
	w.setStatus(named(v3("IPPool"), "moved"), "False")
	w.mustCopy(c)
	w.wantVerified(c)
	got := map[string]string{}
	for _, name := range []string{"with", "moved", "crash", "without"} {
		conditions, _, _ := unstructured.NestedSlice(w.get(v3("IPPool"), name).Object, "status", "conditions")
		for _, condition := range conditions {
			got[name] = condition.(map[string]any)["status"].(string)
		}
	}
	if diff := cmp.Diff(map[string]string{"with": "True", "moved": "False", "crash": "True"}, got); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	w.patchStatus(named(v3("IPPool"), "with"), "calico", `{"status":null}`)
	w.wantSaid("a status is missing", w.mustVerify(c).Different, map[string]string{"with": "Stale status"})
	w.mustCopy(c)
	w.wantVerified(c)
}
