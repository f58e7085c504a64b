package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/crds"
	"github.com/phasegate/phasegate/test/harness"
)

// gate makes an object in a phase of the machine gates.
func gate(t *testing.T, c client.Client, name, status string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "live.phasegate.dev", Version: "v1", Kind: "Gate"})
	u.SetNamespace("default")
	u.SetName(name)
	if err := c.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	body := `{"status":{"machine":` + status + `}}`
	if err := c.Status().Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		t.Fatal(err)
	}
}

// TestLive runs the commands in order against one API server: the later ones see
// what the earlier ones did.
func TestLive(t *testing.T) {
	c := harness.ForTest(t, harness.Options{Own: true, Without: []string{"fakenodes", "scheduler", "controller-manager"}})
	definitions, err := crds.ReadDir("../../controllers/live/testdata/crds")
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), c.Config, crds.Set{CRDs: definitions}); err != nil {
		t.Fatal(err)
	}
	gate(t, c.Client, "north", `{"name":"gate","phase":"Closed","blocked":[{"to":"Open","because":"request.approve.pending || request.never.pending","got":"request.approve.pending = false"}]}`)
	gate(t, c.Client, "south", `{"name":"gate","phase":"Broken","held":["key"]}`)
	bare := changedGate(t)
	typo := changedGate(t, "self.spec.go", "self.spec.og")
	foreign := changedGate(t, "kind: Gate}", "kind: Door}")

	cases := []struct {
		why      string
		args     []string
		code     int
		out, err string
	}{
		{why: "what is missing, and where to read on", args: []string{"check"}, code: exitFindings, out: "docs/operate/troubleshooting.md#check-crds-installed"},
		{why: "who may install, before there is anything", args: []string{"check", "--pre", "--controllers=mcpserver"}, out: "5 checks: 0 failed, 0 with warnings"},
		{why: "for programs", args: []string{"check", "--pre", "--controllers=mcpserver", "-o=json"}, out: `"group": "installation"`},
		{why: "asked as somebody else", args: []string{"check", "--pre", "--controllers=mcpserver", "--as=nobody"}, code: exitFindings,
			out: "this account may not create, delete, get, patch configmaps (needed by "},
		{why: "in the namespace of the release", args: []string{"check", "--pre", "--controllers=mcpserver", "--as=nobody", "-n=there"}, code: exitFindings, out: "secrets in namespace there"},
		{why: "a misspelt controller would not be asked about", args: []string{"check", "--controllers=mcp"}, code: exitUsage, err: "known controllers"},
		{why: "a format", args: []string{"check", "-o=wide"}, code: exitUsage, err: "table or json"},
		{why: "where one object is, and why it is not moving", args: []string{"graph", gates, "--live", "north"}, out: "* Closed  [initial]\n  |  default/north is here"},
		{why: "what was seen of the closed exit", args: []string{"graph", gates, "--live=north"}, out: "[closed:"},
		{why: "how many are where", args: []string{"graph", gates, "--live"}, out: "  |  1 object here"},
		{why: "none in that namespace", args: []string{"graph", gates, "--live", "-n", "kube-system"}, out: "  Closed  [initial]"},
		{why: "no such object", args: []string{"graph", gates, "--live", "west"}, code: exitUsage, err: "get Gate west"},
		{why: "the phase is that of the object", args: []string{"explain", gates, "--live", "north"}, out: "the exit to Open is closed: request.approve.pending || request.never.pending\n    seen: request.approve.pending = false"},
		{why: "all live objects go on, but one leaks", args: []string{"diff", gates, gates, "--live"}, code: exitFindings, out: "LEAK: it holds key"},
		{why: "one is stranded", args: []string{"diff", gates, bare, "--live"}, code: exitFindings, out: `default/south in "Broken": STRANDED`},
		{why: "nobody is concerned there", args: []string{"diff", gates, bare, "--live", "-n", "kube-system"}, out: "objects: 0"},
		{why: "the compiled-in machines have no such request", args: []string{"approve", "north"}, code: exitUsage, err: `no machine has a request "approve"`},
		{why: "the phase does not wait for it", args: []string{"approve", "south", "-f", gates}, code: exitFindings, err: `default/south is in phase "Broken", where request approve opens nothing`},
		{why: "a short name, as kubectl takes it", args: []string{"approve", "gt/north", "-n", "default", "-f", gates, "--param", "by=me"}, out: "gate/north: request approve is "},
		{why: "nobody acts on it here", args: []string{"approve", "gates.live.phasegate.dev/north", "-f", gates, "--wait", "--timeout", "1s"}, code: exitTimedOut, err: "request approve was not acted on"},
		{why: "another request has a command of its own", args: []string{"retry", "gate/south", "-f", gates}, out: "gate/south: request retry is "},
		{why: "no machine of ours drives it", args: []string{"approve", "pod/x"}, code: exitUsage, err: "no machine drives Pod: give its file with -f"},
		{why: "the cluster's CRD says what an object looks like", args: []string{"lint", typo, "--live"}, code: exitFindings, out: `PG006: self.spec has no field "og"`},
		{why: "and what is right", args: []string{"lint", bare, "--live"}, out: "1 file, 0 errors"},
		{why: "a kind that no CRD describes would go unchecked", args: []string{"lint", foreign, "--live"}, code: exitUsage, err: "no CRD describes live.phasegate.dev/v1 Door"},
		{why: "the cluster does not know it", args: []string{"approve", "thing/x"}, code: exitUsage, err: `the cluster has no kind "thing"`},
	}
	for _, tc := range cases {
		args := append(tc.args, "--kubeconfig", c.Kubeconfig)
		got := perform(t, args...)
		if got.code != tc.code || !strings.Contains(got.out, tc.out) || !strings.Contains(got.err, tc.err) {
			t.Errorf("%q: %s: exit code %d, want %d; out must hold %q:\n%s\nerr must hold %q:\n%s",
				tc.args, tc.why, got.code, tc.code, tc.out, got.out, tc.err, got.err)
		}
	}
}

// changedGate is the machine gates without the phase Broken, after replacements.
func changedGate(t *testing.T, replace ...string) string {
	t.Helper()
	return write(t, "bare.yaml", strings.NewReplacer(replace...).Replace(`apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: gate}
spec:
  for: {apiVersion: live.phasegate.dev/v1, kind: Gate}
  initial: Closed
  phases:
  - {name: Closed, poll: 10s, next: [{to: Open, when: 'self.spec.go'}], onDelete: {none: true}}
  - {name: Open, terminal: success, onDelete: {none: true}}
`))
}
