package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

// TestVerify compares one cluster again and again: the later cases see what the earlier
// ones did.
func TestVerify(t *testing.T) {
	t.Parallel() // see TestLive
	c := withCalico(t)
	dm := made(t, c.Client, "apiVersion: migration.projectcalico.org/v1\nkind: DatastoreMigration\nmetadata: {name: to-v3}\nspec: {type: APIServerToCRDs}")
	v1 := "apiVersion: crd.projectcalico.org/v1\nkind: GlobalNetworkSet\n"
	for _, name := range []string{"a", "b"} {
		made(t, c.Client, v1+"metadata: {name: "+name+"}\nspec: {nets: [198.51.100.0/24]}")
	}
	copyAll := func() {
		if _, err := copier.New(resources.Default(), c.Client, dm.GetUID()).Copy(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	edit := func() {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkSet", "metadata": map[string]any{"name": "b"}}}
		if err := c.Client.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nets":["203.0.113.0/24"]}}`))); err != nil {
			t.Fatal(err)
		}
	}
	leave := func() {
		made(t, c.Client, "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: old}\nspec: {nets: [198.51.100.0/24]}")
	}
	for _, tc := range []struct {
		before func()
		invocation
	}{
		{nil, invocation{why: "nothing is copied", args: []string{"to-v3"}, code: exitFindings, out: "2 objects differ."}},
		{copyAll, invocation{why: "all is copied", out: "GlobalNetworkSet   2    2    2\nBoth sides are the same.\n", err: "Reading v1 and v3 of to-v3..."}},
		{leave, invocation{why: "what v3 alone has is named, with what to do", out: "GlobalNetworkSet   2    3    2\n" +
			"‼ GlobalNetworkSet old: is in v3 only, and in force as soon as v3 is open: no migration has made it; " +
			"delete it, unless v3 is to have it: kubectl delete globalnetworksets.v3.projectcalico.org old\n" +
			"Both sides are the same, except for 1 only in v3.\n"}},
		{nil, invocation{why: "for programs", args: []string{"to-v3", "-o=json"}, out: `"same": true`}},
		{edit, invocation{why: "a copy that somebody changed is named, with what differs", args: []string{"to-v3"}, code: exitFindings, out: "GlobalNetworkSet b"}},
		{nil, invocation{why: "the same for programs", args: []string{"to-v3", "-o", "json"}, code: exitFindings, out: "203.0.113.0/24"}},
		{nil, invocation{why: "no such migration", args: []string{"to-v4"}, code: exitUsage, err: "get DatastoreMigration to-v4"}},
		{nil, invocation{why: "a format", args: []string{"to-v3", "-o=wide"}, code: exitUsage, err: "table or json"}},
	} {
		if tc.before != nil {
			tc.before()
		}
		tc.check(t, append([]string{"verify", "--kubeconfig", c.Kubeconfig}, tc.args...)...)
	}
}

// withCalico is a cluster with the CRDs of both sides and of the migration.
func withCalico(t *testing.T) *harness.Cluster {
	t.Helper()
	c := harness.ForTest(t, harness.Options{Own: true, Without: []string{"fakenodes", "scheduler", "controller-manager"}})
	calico, err := crds.Load(resources.Default())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := crds.ReadDir("../../charts/phasegate/files/crds")
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []crds.Set{calico, {CRDs: ours}} {
		if err := crds.Install(t.Context(), c.Config, set); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func made(t *testing.T, c client.Client, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	return u
}
