package copier

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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

// lateWrite is something that happens to a set after the comparison, and what is made of it.
type lateWrite struct {
	why      string
	v3, v1   string // what is done there: a merge patch, or toCreate, or toDelete
	brought  string
	conflict string // the first field that differs
	nets     string // what v3 has in the end; empty: no object
}

const (
	setKind                      = "GlobalNetworkSet"
	toCreate, toDelete           = "create", "delete"
	oneNet, twoNet               = `{"spec":{"nets":["10.1.0.0/16"]}}`, `{"spec":{"nets":["10.2.0.0/16"]}}`
	netsBefore, netsOne, netsTwo = "[10.0.0.0/16]", "[10.1.0.0/16]", "[10.2.0.0/16]"
)

func (w *world) set(name string) {
	w.v1(setKind, "metadata: {name: "+name+"}\nspec: {nets: [10.0.0.0/16]}")
}

func (w *world) do(what string, obj *unstructured.Unstructured) {
	w.Helper()
	switch what {
	case "":
	case toCreate:
		w.set(obj.GetName())
	case toDelete:
		w.remove(obj)
	default:
		w.patch(obj, what)
	}
}

// What is written in v1 after the comparison is brought to v3 where that is as it was, and else both sides are named. A
// second call does nothing more, and what is brought is verified.
func TestBringLate(t *testing.T) {
	cases := map[string]lateWrite{
		"nothing":             {why: "what v3 is given is v3's", v3: twoNet, nets: netsTwo},
		"new":                 {why: "v3 never had it", v1: toCreate, brought: "created", nets: netsBefore},
		"updated":             {why: "the copy is as it was", v1: oneNet, brought: "updated", nets: netsOne},
		"a-label-alone":       {why: "it has no generation", v1: `{"metadata":{"labels":{"x":"y"}}}`, brought: "updated", nets: netsBefore},
		"gone":                {why: "so it was accepted", v1: toDelete, brought: "deleted"},
		"the-same-in-both":    {why: "v3 has it already", v3: oneNet, v1: oneNet, nets: netsOne},
		"updated-in-both":     {why: "nobody knows who is right", v3: twoNet, v1: oneNet, conflict: "spec.nets[0]", nets: netsTwo},
		"a-field-less-in-v3":  {why: "no manager owns what is not there", v3: `{"spec":{"nets":null}}`, v1: oneNet, conflict: "spec.nets", nets: "[]"},
		"deleted-and-updated": {why: "v3 was written since", v3: twoNet, v1: toDelete, conflict: "spec", nets: netsTwo},
		"updated-and-deleted": {why: "v3 was written since", v3: toDelete, v1: oneNet, conflict: "spec"},
	}
	for what, settled := range map[string]bool{"brought": true, "a person decides": false} {
		t.Run(what, func(t *testing.T) {
			w, c := newLive(t, interceptor.Funcs{})
			mine := maps.Clone(cases)
			maps.DeleteFunc(mine, func(_ string, tc lateWrite) bool { return (tc.conflict == "") != settled })
			for name, tc := range mine {
				if tc.v1 != toCreate {
					w.set(name)
				}
			}
			w.mustCopy(c)
			since := w.verified(c)
			for name, tc := range mine {
				w.do(tc.v3, named(v3(setKind), name))
				w.do(tc.v1, named(v1(setKind), name))
			}
			brought, conflicts, nets := map[string]string{}, map[string]string{}, map[string]string{}
			for name, tc := range mine {
				brought[setKind+" "+name], conflicts[name], nets[name] = tc.brought, tc.conflict, tc.nets
			}
			for _, call := range []string{"first", "second"} {
				found := w.bringLate(c, since)
				w.wantLate(call+" call: brought", brought, found.Brought)
				w.wantLate(call+" call: conflicts", conflicts, fieldsOf(found.Conflicts))
				if found.Changing || len(found.Problems) > 0 {
					t.Errorf("%s call: moving %t, problems %v", call, found.Changing, found.Problems)
				}
				brought = nil
				w.wantNets(nets)
				if call == "second" {
					w.wantSettled(c, since, found, settled)
				}
			}
		})
	}
}

// wantLate compares lines "name: what" with what is wanted by name; "" is no line.
func (w *world) wantLate(about string, want map[string]string, got []string) {
	w.Helper()
	var lines []string
	for name, what := range want {
		if what != "" {
			lines = append(lines, name+": "+what)
		}
	}
	if diff := cmp.Diff(lines, got, cmpopts.SortSlices(func(a, b string) bool { return a < b }), cmpopts.EquateEmpty()); diff != "" {
		w.Errorf("%s (-want +got):\n%s", about, diff)
	}
}

// fieldsOf are the first fields that differ.
func fieldsOf(conflicts []Conflict) (all []string) {
	for _, c := range conflicts {
		all = append(all, c.Name+": "+c.Fields[0].Path)
	}
	return all
}

// wantNets: v3 has these sets.
func (w *world) wantNets(want map[string]string) {
	w.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v3(setKind))
	w.must(w.client.List(w.Context(), list))
	var got []string
	for _, obj := range list.Items {
		nets, _, _ := unstructured.NestedStringSlice(obj.Object, "spec", "nets")
		got = append(got, fmt.Sprint(obj.GetName(), ": ", nets))
	}
	w.wantLate("sets of v3", want, got)
}

// wantSettled: what is verified by now is what v1 has, unless a person has to decide.
func (w *world) wantSettled(c *Copier, since *migrationv1.Verified, late Late, settled bool) {
	w.Helper()
	known, err := since.ByKind()
	w.must(err)
	for _, kind := range late.Kinds {
		known[kind.Kind] = kind
	}
	held, err := c.V1Digests(w.Context(), since)
	w.must(err)
	if now := held[setKind].VerifiedKind; (now == known[setKind]) != settled {
		w.Errorf("v1 has %+v, verified is %+v, want the same: %t", now, known[setKind], settled)
	}
}

// A write of v3 that comes between look and write is not written over.
func TestBringLateRaces(t *testing.T) {
	raced := false
	var race func()
	w, c := newLive(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if race != nil && !raced {
			raced = true
			race()
		}
		return c.Patch(ctx, obj, patch, opts...)
	}})
	w.set("a")
	w.mustCopy(c)
	since := w.verified(c)
	w.patch(named(v1(setKind), "a"), oneNet)
	race = func() { w.patch(named(v3(setKind), "a"), twoNet) }
	if late := w.bringLate(c, since); !late.Changing || len(late.Brought) > 0 {
		t.Errorf("a write came between, and it says %+v", late)
	}
	if late := w.bringLate(c, since); len(late.Conflicts) != 1 {
		t.Errorf("the second look finds %+v", late)
	}
	w.wantNets(map[string]string{"a": netsTwo})
}
