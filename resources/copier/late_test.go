package copier

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
)

// verified is what a migration has on record.
func (w *world) verified(c *Copier) *migrationv1.Verified {
	w.Helper()
	revision, err := c.Revision(w.Context())
	w.must(err)
	v := w.mustVerify(c)
	if !v.OK() {
		w.Fatalf("not equal: %+v", v)
	}
	return &migrationv1.Verified{At: metav1.Now(), Revision: int64(revision), Digests: migrationv1.JoinDigests(v.Verified())}
}

func (w *world) bringLate(c *Copier, since *migrationv1.Verified) Late {
	w.Helper()
	late, err := c.BringLate(w.Context(), since)
	w.must(err)
	return late
}

// What is written in v1 after the comparison is brought to v3 where that is as it was, and else both sides are named. A
// second call does nothing more, and what is brought is verified.
func TestBringLate(t *testing.T) {
	const (
		kind                         = "GlobalNetworkSet"
		one, two                     = `{"spec":{"nets":["10.1.0.0/16"]}}`, `{"spec":{"nets":["10.2.0.0/16"]}}`
		created, deleted             = "created", "deleted"
		netsBefore, netsOne, netsTwo = "[10.0.0.0/16]", "[10.1.0.0/16]", "[10.2.0.0/16]"
	)
	type late struct {
		why      string
		v3, v1   string // what is done there: a merge patch, or created, or deleted
		brought  string
		conflict string // the first field that differs
		nets     string // what v3 has in the end; empty: no object
	}
	cases := map[string]late{
		"nothing":             {why: "what v3 is given is v3's", v3: two, nets: netsTwo},
		"new":                 {why: "v3 never had it", v1: created, brought: "created", nets: netsBefore},
		"updated":             {why: "the copy is as it was", v1: one, brought: "updated", nets: netsOne},
		"a-label-alone":       {why: "it has no generation", v1: `{"metadata":{"labels":{"x":"y"}}}`, brought: "updated", nets: netsBefore},
		"gone":                {why: "so it was accepted", v1: deleted, brought: "deleted"},
		"updated-in-both":     {why: "nobody knows who is right", v3: two, v1: one, conflict: "spec.nets[0]", nets: netsTwo},
		"a-field-less-in-v3":  {why: "no manager owns what is not there", v3: `{"spec":{"nets":null}}`, v1: one, conflict: "spec.nets", nets: "[]"},
		"the-same-in-both":    {why: "v3 has it already", v3: one, v1: one, nets: netsOne},
		"deleted-and-updated": {why: "v3 was written since", v3: two, v1: deleted, conflict: "spec", nets: netsTwo},
		"updated-and-deleted": {why: "v3 was written since", v3: deleted, v1: one, conflict: "spec"},
	}
	mine := func(settled bool) map[string]late {
		some := maps.Clone(cases)
		maps.DeleteFunc(some, func(_ string, tc late) bool { return (tc.conflict == "") != settled })
		return some
	}
	for _, settled := range []bool{true, false} {
		t.Run(fmt.Sprintf("settled %t", settled), func(t *testing.T) {
			w, c := newLive(t, interceptor.Funcs{})
			set := func(name string) { w.v1(kind, "metadata: {name: "+name+"}\nspec: {nets: [10.0.0.0/16]}") }
			do := func(what string, obj *unstructured.Unstructured) {
				switch what {
				case "":
				case created:
					set(obj.GetName())
				case deleted:
					w.remove(obj)
				default:
					w.patch(obj, what)
				}
			}
			brought, conflicts, nets := []string(nil), map[string]string{}, map[string]string{}
			for name, tc := range mine(settled) {
				if tc.v1 != created {
					set(name)
				}
				if tc.brought != "" {
					brought = append(brought, kind+" "+name+": "+tc.brought)
				}
				if tc.conflict != "" {
					conflicts[name] = tc.conflict
				}
				if tc.nets != "" {
					nets[name] = tc.nets
				}
			}
			w.mustCopy(c)
			since := w.verified(c)
			for name, tc := range mine(settled) {
				do(tc.v3, named(v3(kind), name))
				do(tc.v1, named(v1(kind), name))
			}
			for _, when := range []string{"first", "second"} {
				late := w.bringLate(c, since)
				slices.Sort(brought)
				slices.Sort(late.Brought)
				got := map[string]string{}
				for _, found := range late.Conflicts {
					got[found.Name] = found.Fields[0].Path
				}
				if diff := cmp.Diff(brought, late.Brought) + cmp.Diff(conflicts, got); diff != "" || late.Changing || len(late.Problems) > 0 {
					t.Errorf("%s call: moving %t, problems %v (-want +got):\n%s", when, late.Changing, late.Problems, diff)
				}
				brought = nil
				w.wantNets(nets)
				w.wantSettled(c, since, late, settled)
			}
		})
	}
}

// wantNets: v3 has these sets.
func (w *world) wantNets(want map[string]string) {
	w.Helper()
	got, list := map[string]string{}, &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v3("GlobalNetworkSet"))
	w.must(w.client.List(w.Context(), list))
	for _, obj := range list.Items {
		nets, _, _ := unstructured.NestedStringSlice(obj.Object, "spec", "nets")
		got[obj.GetName()] = fmt.Sprint(nets)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("sets of v3 (-want +got):\n%s", diff)
	}
}

// wantSettled: what is verified by now is what v1 has, unless a person has to decide.
func (w *world) wantSettled(c *Copier, since *migrationv1.Verified, late Late, settled bool) {
	w.Helper()
	const kind = "GlobalNetworkSet"
	known, err := since.ByKind()
	w.must(err)
	for _, kind := range late.Kinds {
		known[kind.Kind] = kind
	}
	held, err := c.V1Digests(w.Context(), since)
	w.must(err)
	if now := held[kind].VerifiedKind; (now == known[kind]) != settled {
		w.Errorf("v1 has %+v, verified is %+v, want the same: %t", now, known[kind], settled)
	}
}

// A write of v3 that comes between look and write is not written over.
func TestBringLateRaces(t *testing.T) {
	const kind = "GlobalNetworkSet"
	raced := false
	var race func()
	w, c := newLive(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if race != nil && !raced {
			raced = true
			race()
		}
		return c.Patch(ctx, obj, patch, opts...)
	}})
	w.v1(kind, "metadata: {name: a}\nspec: {nets: [10.0.0.0/16]}")
	w.mustCopy(c)
	since := w.verified(c)
	w.patch(named(v1(kind), "a"), `{"spec":{"nets":["10.1.0.0/16"]}}`)
	race = func() { w.patch(named(v3(kind), "a"), `{"spec":{"nets":["10.2.0.0/16"]}}`) }
	if late := w.bringLate(c, since); !late.Changing || len(late.Brought) > 0 {
		t.Errorf("a write came between, and it says %+v", late)
	}
	if late := w.bringLate(c, since); len(late.Conflicts) != 1 {
		t.Errorf("the second look finds %+v", late)
	}
	w.wantNets(map[string]string{"a": "[10.2.0.0/16]"})
}
