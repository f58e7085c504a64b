package copier_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources/copier"
)

// verified is what a migration has on record.
func (s *scene) verified() *migrationv1.Verified {
	s.Helper()
	revision, err := s.copier.Revision(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	v := s.mustVerify()
	if !v.OK() {
		s.Fatalf("not equal: %+v", v)
	}
	return &migrationv1.Verified{At: metav1.Now(), Revision: int64(revision), Digests: migrationv1.JoinDigests(v.Verified())}
}

func (s *scene) bringLate(since *migrationv1.Verified) copier.Late {
	s.Helper()
	late, err := s.copier.BringLate(s.Context(), since)
	if err != nil {
		s.Fatal(err)
	}
	return late
}

// What is written in v1 after the comparison is brought to v3 where that is as it was, and else both sides are named. A
// second call does nothing more, and what is brought is verified.
func TestBringLate(t *testing.T) {
	const kind = "GlobalNetworkSet"
	set := func(name, net string) string { return "metadata: {name: " + name + "}\nspec: {nets: [" + net + "]}" }
	at := func(s *scene, version func(string) *unstructured.Unstructured, change string) {
		s.Helper()
		s.patch(version("a"), change)
	}
	on1 := func(name string) *unstructured.Unstructured { return named(v1(kind), name) }
	on3 := func(name string) *unstructured.Unstructured { return named(v3(kind), name) }
	owning := func(s *scene) {
		s.Helper()
		at(s, on1, `{"metadata":{"ownerReferences":[{"apiVersion":"crd.projectcalico.org/v1","kind":"Tier","name":"t","uid":"`+string(s.get(v1("Tier"), "t").GetUID())+`"}]}}`)
	}
	const one, two = `{"spec":{"nets":["10.1.0.0/16"]}}`, `{"spec":{"nets":["10.2.0.0/16"]}}`
	cases := map[string]struct {
		why       string
		do        func(*scene)
		brought   []string
		conflicts []string // objects, with the first field that differs
		nets      string   // what v3 has of a; empty: no object
		added     bool     // v3 has b, too
		owned     bool     // a has an owner from the start
		owners    []string // of a in v3
	}{
		"nothing":              {why: "what v3 is given is v3's", do: func(s *scene) { at(s, on3, two) }, nets: "10.2.0.0/16"},
		"created":              {why: "v3 never had it", do: func(s *scene) { s.v1(kind, set("b", "10.9.0.0/16")) }, brought: []string{kind + " b: created"}, nets: "10.0.0.0/16", added: true},
		"updated":              {why: "the copy is as it was", do: func(s *scene) { at(s, on1, one) }, brought: []string{kind + " a: updated"}, nets: "10.1.0.0/16"},
		"a label alone":        {why: "it has no generation", do: func(s *scene) { at(s, on1, `{"metadata":{"labels":{"x":"y"}}}`) }, brought: []string{kind + " a: updated"}, nets: "10.0.0.0/16"},
		"deleted":              {why: "so it was accepted", do: func(s *scene) { s.remove(on1("a")) }, brought: []string{kind + " a: deleted"}},
		"updated in both":      {why: "nobody knows who is right", do: func(s *scene) { at(s, on3, two); at(s, on1, one) }, conflicts: []string{"a spec.nets[0]"}, nets: "10.2.0.0/16"},
		"a field less in v3":   {why: "no manager owns what is not there", do: func(s *scene) { at(s, on3, `{"spec":{"nets":null}}`); at(s, on1, one) }, conflicts: []string{"a spec.nets"}, nets: "none"},
		"the same in both":     {why: "v3 has it already", do: func(s *scene) { at(s, on3, one); at(s, on1, one) }, nets: "10.1.0.0/16"},
		"deleted, and updated": {why: "v3 was written since", do: func(s *scene) { at(s, on3, two); s.remove(on1("a")) }, conflicts: []string{"a spec"}, nets: "10.2.0.0/16"},
		"an owner alone":       {why: "it is what v1 says, like any other", do: owning, brought: []string{kind + " a: updated"}, nets: "10.0.0.0/16", owners: []string{"Tier/t"}},
		"an owner, and a label": {why: "both are v1's", do: func(s *scene) { owning(s); at(s, on1, `{"metadata":{"labels":{"x":"y"}}}`) },
			brought: []string{kind + " a: updated"}, nets: "10.0.0.0/16", owners: []string{"Tier/t"}},
		"an owner, and the same in both": {why: "v3 was written since, and may have lost it", do: func(s *scene) { at(s, on3, one); at(s, on1, one); owning(s) },
			conflicts: []string{"a metadata.ownerReferences"}, nets: "10.1.0.0/16"},
		"no owner any more": {why: "v1 has let go of it", owned: true, do: func(s *scene) { at(s, on1, `{"metadata":{"ownerReferences":null}}`) },
			brought: []string{kind + " a: updated"}, nets: "10.0.0.0/16"},
		"updated, and deleted": {why: "v3 was written since", do: func(s *scene) { at(s, on1, one); s.remove(on3("a")) }, conflicts: []string{"a spec"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, interceptor.Funcs{})
			s.v1("Tier", "metadata: {name: t}\nspec: {order: 5}")
			s.v1(kind, set("a", "10.0.0.0/16"))
			if c.owned {
				owning(s)
			}
			s.mustCopy()
			s.mustRemapOwners()
			since := s.verified()
			c.do(s)
			late := s.bringLate(since)
			if diff := cmp.Diff(c.brought, late.Brought); diff != "" {
				t.Errorf("%s: brought (-want +got):\n%s", c.why, diff)
			}
			var conflicts []string
			for _, found := range late.Conflicts {
				conflicts = append(conflicts, found.Name+" "+found.Fields[0].Path)
			}
			if diff := cmp.Diff(c.conflicts, conflicts); diff != "" {
				t.Errorf("%s: conflicts (-want +got):\n%s", c.why, diff)
			}
			if late.Changing || len(late.Problems) > 0 {
				t.Errorf("%s: moving %t, problems %v", c.why, late.Changing, late.Problems)
			}
			s.wantNets(c.nets)
			if diff := cmp.Diff(c.owners, s.ownersInV3("a")); diff != "" {
				t.Errorf("%s: owners (-want +got):\n%s", c.why, diff)
			}
			if got := s.count(v3(kind)); (got == 2) != c.added {
				t.Errorf("%s: v3 has %d objects", c.why, got)
			}
			again := s.bringLate(since)
			if len(again.Brought) > 0 || len(again.Conflicts) != len(late.Conflicts) {
				t.Errorf("%s: a second call has brought %v, conflicts %v", c.why, again.Brought, again.Conflicts)
			}
			s.wantSettled(since, again, len(c.conflicts) == 0)
		})
	}
}

// wantNets: v3 has this in a.
func (s *scene) wantNets(want string) {
	s.Helper()
	live := named(v3("GlobalNetworkSet"), "a")
	got := ""
	if err := live3(s, live); err == nil {
		nets, _, _ := unstructured.NestedStringSlice(live.Object, "spec", "nets")
		if got = strings.Join(nets, ","); got == "" {
			got = "none"
		}
	}
	if got != want {
		s.Errorf("v3 has nets %q, want %q", got, want)
	}
}

func (s *scene) mustRemapOwners() {
	s.Helper()
	if _, err := s.copier.RemapOwners(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// ownersInV3 are those of an object of v3, if it is there.
func (s *scene) ownersInV3(name string) (owners []string) {
	s.Helper()
	live := named(v3("GlobalNetworkSet"), name)
	if err := live3(s, live); err != nil {
		return nil
	}
	for _, ref := range live.GetOwnerReferences() {
		owner := named(v3(ref.Kind), ref.Name)
		if err := live3(s, owner); err != nil || owner.GetUID() != ref.UID {
			s.Errorf("owner %+v is not in v3 (%v)", ref, err)
		}
		owners = append(owners, ref.Kind+"/"+ref.Name)
	}
	return owners
}

func live3(s *scene, obj *unstructured.Unstructured) error {
	return live.Client.Get(s.Context(), client.ObjectKeyFromObject(obj), obj)
}

// wantSettled: what is verified by now is what v1 has, unless a person has to decide.
func (s *scene) wantSettled(since *migrationv1.Verified, late copier.Late, settled bool) {
	s.Helper()
	known, err := since.ByKind()
	if err != nil {
		s.Fatal(err)
	}
	for _, kind := range late.Kinds {
		known[kind.Kind] = kind
	}
	held, err := s.copier.V1Digests(s.Context(), since)
	if err != nil {
		s.Fatal(err)
	}
	const kind = "GlobalNetworkSet"
	if now := held[kind].VerifiedKind; (now.Objects == 0 && known[kind].Objects == 0 || now == known[kind]) != settled {
		s.Errorf("v1 has %+v, verified is %+v, want the same: %t", now, known[kind], settled)
	}
}

// A write of v3 that comes between look and write is not written over.
func TestBringLateRaces(t *testing.T) {
	const kind = "GlobalNetworkSet"
	raced := false
	var race func()
	s := newScene(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if race != nil && !raced {
			raced = true
			race()
		}
		return c.Patch(ctx, obj, patch, opts...)
	}})
	s.v1(kind, "metadata: {name: a}\nspec: {nets: [10.0.0.0/16]}")
	s.mustCopy()
	since := s.verified()
	s.patch(named(v1(kind), "a"), `{"spec":{"nets":["10.1.0.0/16"]}}`)
	race = func() { s.patch(named(v3(kind), "a"), `{"spec":{"nets":["10.2.0.0/16"]}}`) }
	if late := s.bringLate(since); !late.Changing || len(late.Brought) > 0 {
		t.Errorf("a write came between, and it says %+v", late)
	}
	if late := s.bringLate(since); len(late.Conflicts) != 1 {
		t.Errorf("the second look finds %+v", late)
	}
	s.wantNets("10.2.0.0/16")
}
