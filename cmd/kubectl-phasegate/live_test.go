package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

var gateKind = schema.GroupVersionKind{Group: "live.phasegate.dev", Version: "v1", Kind: "Gate"}

// gate makes an object in a phase of the machine gates.
func gate(t *testing.T, c client.Client, name, status string) {
	t.Helper()
	u := made(t, c, "{apiVersion: live.phasegate.dev/v1, kind: Gate, metadata: {namespace: default, name: "+name+"}}")
	body := `{"status":{"machine":` + status + `}}`
	if err := c.Status().Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		t.Fatal(err)
	}
}

// TestLive runs the commands in order against one API server: the later ones see
// what the earlier ones did.
func TestLive(t *testing.T) {
	t.Parallel() // it mostly waits for its API server, as TestVerify does
	c := harness.ForTest(t, harness.Options{Own: true, Without: []string{"fakenodes", "scheduler", "controller-manager"}})
	all, err := crds.ReadDir("../../cmd/kubectl-phasegate/internal/live/testdata/crds")
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), c.Config, crds.Set{CRDs: all}); err != nil {
		t.Fatal(err)
	}
	gate(t, c.Client, "north", `{"name":"gate","phase":"Closed","blocked":[{"to":"Open","guard":"request.approve.pending || request.never.pending","value":"request.approve.pending = false"}]}`)
	gate(t, c.Client, "south", `{"name":"gate","phase":"Broken","held":["key"]}`)
	bare := changedGate(t)
	typo := changedGate(t, "self.spec.go", "self.spec.og")
	foreign := changedGate(t, "kind: Gate}", "kind: Door}")

	for _, tc := range []invocation{
		{why: "what is missing, and where to read on", args: []string{"check"}, code: exitFindings, out: "docs/operate/troubleshooting.md#check-crds-installed"},
		{why: "who may install, before there is anything", args: []string{"check", "--pre", "--controllers=mcpserver"}, out: "5 checks: 0 failed, 0 with warnings"},
		{why: "for programs", args: []string{"check", "--pre", "--controllers=mcpserver", "-o=json"}, out: `"group": "installation"`},
		{why: "asked as somebody else", args: []string{"check", "--pre", "--controllers=mcpserver", "--as=nobody"}, code: exitFindings,
			out: "this account may not create, delete, get, patch configmaps (needed by "},
		{why: "in the namespace of the release", args: []string{"check", "--pre", "--controllers=mcpserver", "--as=nobody", "-n=there"}, code: exitFindings, out: "secrets in namespace there"},
		{why: "a misspelt controller would not be asked about", args: []string{"check", "--controllers=mcp"}, code: exitUsage, err: "known controllers"},
		{why: "a misspelt program would not be asked about", args: []string{"check", "--proxy=tool"}, code: exitUsage, err: "write one of [phasegate toolhive]"},
		{why: "what is not asked about is told", args: []string{"check", "--pre", "--controllers=mcpserver"}, err: "which proxies the manager runs cannot be seen (no Deployment of the chart is there)", out: "5 checks"},
		{why: "said", args: []string{"check", "--pre", "--controllers=mcpserver", "--proxy=toolhive"}, out: "5 checks"},
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
		{why: "no machine of ours drives it", args: []string{"approve", "pod/x"}, code: exitUsage, err: "no machine drives Pod: no manager has published one: give its file with -f"},
		{why: "the cluster's CRD says what an object looks like", args: []string{"lint", typo, "--live"}, code: exitFindings, out: `PG006: self.spec has no field "og"`},
		{why: "and what is right", args: []string{"lint", bare, "--live"}, out: "1 file, 0 errors"},
		{why: "a kind that no CRD describes would go unchecked", args: []string{"lint", foreign, "--live"}, code: exitUsage, err: "no CRD describes live.phasegate.dev/v1 Door"},
		{why: "the cluster does not know it", args: []string{"approve", "thing/x"}, code: exitUsage, err: `the cluster has no kind "thing"`},
	} {
		tc.check(t, append(tc.args, "--kubeconfig", c.Kubeconfig)...)
	}
	testPeersCRD(t, c)
	testPublished(t, c)
	testNewerManager(t, c)
}

// The file of a newer manager says what this program does not know: each command goes on with the compiled-in machine,
// and says so in one line.
func testNewerManager(t *testing.T, c *harness.Cluster) {
	publish(t, c.Client, shipped, migrationKind, "calico-system/phasegate", "sha256:newer", ofNextVersion(t))
	for _, tc := range []invocation{
		{args: []string{"status", "datastoremigration", "to-v3"}, out: "DatastoreMigration to-v3: Converged for"},
		{args: []string{"explain", shipped}, out: "drives DatastoreMigration"},
		{args: []string{"explain", shipped, "--live", "to-v3"}, out: "to-v3 is in Converged"},
		{args: []string{"diff", shipped, shipped, "--live"}, out: "old (deleted, its state is still there)"},
		{args: []string{"graph", shipped, "--live"}, out: "  |  1 object here"},
		{args: []string{"retry", "datastoremigration", "to-v3", "--force"}, out: "datastoremigration/to-v3: request retry is "},
		{args: []string{"approve", "datastoremigration", "to-v3", "--request", "retry", "--force"}, out: "datastoremigration/to-v3: request retry is "},
	} {
		got := tc.check(t, append(tc.args, "--kubeconfig", c.Kubeconfig)...)
		var said []string
		for line := range strings.Lines(got.err) {
			if strings.Contains(line, "cannot be read by this program") && strings.Contains(line, "ofTheNextVersion") && strings.Contains(line, "of the version of the manager") && strings.Contains(line, "compiled into this program") {
				said = append(said, line)
			}
		}
		if len(said) != 1 {
			t.Errorf("%q: said in %d lines, want 1:\n%s", tc.args, len(said), got.err)
		}
	}
}

// A manager has published the machine of a kind that this program has never heard of: every
// command knows it, without -f.
func testPublished(t *testing.T, c *harness.Cluster) {
	text, err := os.ReadFile(gates)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, c.Client, "gate", gateKind, "shop/phasegate-custom", "sha256:in-force", string(text))
	publish(t, c.Client, "gate", gateKind, "other/phasegate-custom", "sha256:older", strings.ReplaceAll(string(text), "Closed", "Shut"))
	gate(t, c.Client, "east", `{"name":"gate","phase":"Closed","revision":"sha256:in-force","history":["2026-03-04T12:00:00.000000Z → Closed: Created"]}`)
	gate(t, c.Client, "west", `{"name":"gate","phase":"Closed","step":"NotOfThisFile","revision":"sha256:before"}`)
	gate(t, c.Client, "down", `{"name":"gate","phase":"Broken","revision":"sha256:in-force"}`)
	for _, tc := range []invocation{
		{why: "KIND NAME", args: []string{"status", "gate", "east"}, out: "Gate default/east: Closed\n\n  ● [Closed] → ○ Open\n"},
		{why: "a short name, as kubectl has it", args: []string{"status", "gt/east"}, out: "Gate default/east: Closed"},
		{why: "a name alone", args: []string{"status", "east"}, out: "Gate default/east: Closed"},
		{why: "the same shape for all", args: []string{"status", "east", "-o=jsonpath={.objectKind} {.namespace} {.phase} {.outcome} {.machine}"}, out: "Gate default Closed Running gate"},
		{why: "how kubectl names it", args: []string{"status", "east", "-o=name"}, out: "gate.live.phasegate.dev/east\n"},
		{why: "another file drove it", args: []string{"status", "west"}, out: "Revision    ‼ sha256:before drove it last; this output is from sha256:older"},
		{why: "of a step that this file does not have nothing is told", args: []string{"status", "west"}, out: "Step        NotOfThisFile\n"},
		{why: "which one?", args: []string{"status", "gate"}, code: exitUsage, err: "which one? give one of: gate/down, gate/east"},
		{why: "a name comes before a kind", args: []string{"status", "gates"}, code: exitUsage, err: "which one? give one of: gate/down, gate/east"},
		{why: "in another namespace", args: []string{"status", "east", "-n", "kube-system"}, code: exitUsage, err: "there is no object east of "},
		{why: "a mistyped kind", args: []string{"status", "gat", "east"}, code: exitUsage, err: `the cluster has no kind "gat"`},
		{why: "by the published file", args: []string{"approve", "gate", "east"}, out: "gate/east: request approve is "},
		{why: "the machine that has the request", args: []string{"retry", "down"}, out: "gate/down: request retry is "},
		{why: "what is asked must be named", args: []string{"approve", "-n", "kube-system"}, code: exitUsage, err: "there is no object of Gate"},
		{why: "a whole machine, by its name", args: []string{"explain", "gate"}, out: "drives Gate (live.phasegate.dev/v1)\n"},
		{why: "a phase of it", args: []string{"explain", "Broken"}, out: "Broken [terminal: failure], a phase of machine gate"},
		{why: "the phase of an object", args: []string{"explain", "--live", "gate/east"}, out: "default/east is in Closed"},
		{why: "drawn", args: []string{"graph", "gate", "--live", "east"}, out: "  |  default/east is here"},
		{why: "kinds are offered", args: []string{"__complete", "status", ""}, out: "gate\n"},
		{why: "and names", args: []string{"__complete", "status", ""}, out: "east\n"},
		{why: "names of a kind", args: []string{"__complete", "approve", "gate", ""}, out: "down\neast\n"},
		{why: "after a slash", args: []string{"__complete", "status", "gate/"}, out: "gate/east\n"},
		{why: "requests", args: []string{"__complete", "approve", "--request", ""}, out: "bySpec\n"},
		{why: "phases", args: []string{"__complete", "explain", ""}, out: "Broken\n"},
	} {
		args := append(slices.Clone(tc.args), "--kubeconfig", c.Kubeconfig)
		if tc.args[0] == "__complete" { // flags come before what is completed
			args = slices.Insert(slices.Clone(tc.args), 2, "--kubeconfig", c.Kubeconfig)
		}
		got := tc.check(t, args...)
		if strings.Contains(got.err, "compiled into this program") {
			t.Errorf("%q: it is published: %s", tc.args, got.err)
		}
	}
	for name, want := range map[string]int{"gate/east": 1, "gate/down": 2} {
		if n := tryCommands(t, c, name); n != want {
			t.Errorf("%s: %d commands were printed, want %d", name, n, want)
		}
	}
}

// tryCommands types each command that status prints, as it is printed, and answers how many
// there are. What would delete is tried as a dry run.
func tryCommands(t *testing.T, c *harness.Cluster, name string) int {
	t.Helper()
	got := perform(t, "status", name, "--namespace", "default", "--kubeconfig", c.Kubeconfig, "-o", `jsonpath={range .next[*]}{.command}{"\n"}{end}`)
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	for _, line := range lines {
		words := strings.Fields(line)
		if plugin := len(words) > 2 && words[1] == "phasegate"; plugin {
			// Nobody acts on it here: that it was asked is what --wait says then.
			if got := perform(t, append(words[2:], "--timeout", "1s", "--force")...); got.code != exitTimedOut || !strings.Contains(got.out, "request ") {
				t.Errorf("%s: exit code %d: %s%s", line, got.code, got.out, got.err)
			}
			continue
		}
		words[0] = "../../bin/tools/kubectl"
		if said, err := exec.CommandContext(t.Context(), words[0], append(words[1:], "--dry-run=server")...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", line, err, said)
		}
	}
	return len(lines)
}

// publish makes the MachineDefinition of a manager.
func publish(t *testing.T, c client.Client, machine string, of schema.GroupVersionKind, manager, revision, text string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"machine": machine, "for": map[string]any{"apiVersion": of.GroupVersion().String(), "kind": of.Kind}, "manager": manager, "revision": revision, "text": text,
	}}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("MachineDefinition"))
	u.SetName(v1alpha1.MachineDefinitionName(machine, manager))
	if err := c.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}

// peersCRDs are the CRD of MachineState and that of a peer: ours without what Calico's does
// not have, or Calico's own where the environment says where it is.
func peersCRDs(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	all, err := crds.ReadDir("../../charts/phasegate/files/crds")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
		for _, v := range versions {
			for _, field := range []string{"machine", "lock", "copyAhead", "verified", "conflicts"} {
				if d.GetName() != v1alpha1.MachineStateCRD {
					unstructured.RemoveNestedField(v.(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties", field)
				}
			}
		}
		if err := unstructured.SetNestedSlice(d.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
	}
	if dir := os.Getenv(crds.EnvDir); dir != "" {
		theirs, err := crds.ReadDir(filepath.Join(dir, "migration"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(slices.DeleteFunc(all, func(d *unstructured.Unstructured) bool { return d.GetName() == theirs[0].GetName() }), theirs...)
	}
	return all
}

// A peer's CRD prunes status.machine: what is true is in the MachineStates.
func testPeersCRD(t *testing.T, c *harness.Cluster) {
	all := peersCRDs(t)
	if err := crds.Install(t.Context(), c.Config, crds.Set{CRDs: all}); err != nil {
		t.Fatal(err)
	}
	dm := made(t, c.Client, "{apiVersion: migration.projectcalico.org/v1, kind: DatastoreMigration, metadata: {name: to-v3}, spec: {type: APIServerToCRDs}}")
	// The status lags behind, and lies about what is held.
	status := `{"status":{"phase":"Pending","message":"Nothing of v1 is locked","machine":{"phase":"Pending","held":[],"onDelete":{"mode":"Transition","to":"Aborting"}}}}`
	if err := c.Client.Status().Patch(t.Context(), dm, client.RawPatch(types.MergePatchType, []byte(status))); err != nil {
		t.Fatal(err)
	}
	stateOf(t, c.Client, "to-v3", string(dm.GetUID()), `{"phase":"Converged","enteredAt":"2026-03-04T12:00:00.000000Z","saved":{"status":"{\"startedAt\":\"2026-03-04T12:00:00Z\"}"}}`)
	stateOf(t, c.Client, "old", "0-1", `{"phase":"Migrating","held":["v1Lock → UnlockV1 {\"name\":\"default\"}"]}`)
	const viewer = "--as=system:serviceaccount:default:viewer"
	if err := c.Grant(t.Context(), "viewer", []rbacv1.PolicyRule{{APIGroups: []string{migrationKind.Group}, Resources: []string{"datastoremigrations"}, Verbs: []string{"get"}}}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the viewer to be let in", func() error { // the authorizer learns of roles by a watch
		if got := perform(t, "status", "to-v3", viewer, "--kubeconfig", c.Kubeconfig); got.code != 0 {
			return errors.New(got.err)
		}
		return nil
	})
	for _, tc := range []invocation{
		{why: "the phase is that of the state", args: []string{"status", "to-v3"}, out: "DatastoreMigration to-v3: Converged for"},
		{why: "what a deletion does is the machine's", args: []string{"status"}, out: "Deletion    hold: Converged cannot be rolled back"},
		{why: "what is left of another", args: []string{"status"}, out: "DatastoreMigration old is gone (UID 0-1); it was in Migrating\n              holds v1Lock     Sets v1 datastoreReady to true"},
		{why: "for programs", args: []string{"status", "-o=jsonpath={.orphans[*].object} {.phase} {.note}"}, out: "old Converged"},
		{why: "there is no such migration any more, but its state", args: []string{"status", "old", "-o=jsonpath={.orphans[*].next}"}, out: "is being released by the manager", err: "there is no object old"},
		{why: "there never was one", args: []string{"status", "none", "-o=name"}, code: exitUsage, err: "there is no object none"},
		{why: "an abort would delete v1", args: []string{"abort", "to-v3", "--yes"}, code: exitFindings, err: "past the point of no return"},
		{why: "the request opens nothing in Converged", args: []string{"retry", "to-v3"}, code: exitFindings, err: `to-v3 is in phase "Converged"`},
		{why: "the phase is that of the state", args: []string{"explain", "datastore-migration", "--live", "to-v3"}, out: "to-v3 is in Converged"},
		{why: "an orphan is no object", args: []string{"graph", "datastore-migration", "--live"}, out: "  |  1 object here"},
		{why: "but it must be released", args: []string{"diff", "datastore-migration", "datastore-migration", "--live"}, out: "old (deleted, its state is still there)"},
		{why: "the view is all that this account may read", args: []string{"status", "to-v3", viewer}, out: "Note        ‼ you may not read machinestates.phasegate.dev"},
		{why: "and it says where the migration shows to be", args: []string{"abort", "to-v3", viewer, "--yes"}, code: exitUsage, err: "‼ to-v3: you may not read machinestates.phasegate.dev"},
	} {
		tc.check(t, append(tc.args, "--kubeconfig", c.Kubeconfig)...)
	}
}

// stateOf makes the state of a migration.
func stateOf(t *testing.T, c client.Client, name, uid, status string) {
	t.Helper()
	made(t, c, `{"apiVersion":"phasegate.dev/v1alpha1","kind":"MachineState","metadata":{"name":"datastore-migration.`+uid+`","labels":{"phasegate.dev/machine":"datastore-migration"}},
  "spec":{"machine":"datastore-migration","object":{"apiVersion":"migration.projectcalico.org/v1","kind":"DatastoreMigration","name":"`+name+`","uid":"`+uid+`"}},"status":`+status+`}`)
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
  - {name: Closed, poll: 10s, next: [{to: Open, when: 'self.spec.go'}], onDelete: {immediate: true}}
  - {name: Open, terminal: success, onDelete: {immediate: true}}
`))
}
