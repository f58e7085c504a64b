package install

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// envToolHive names the directory of ToolHive's real CRDs.
const envToolHive = "TOOLHIVE_CRDS"

// bare is a world in which nothing runs: what the API server itself does with the chart is looked at.
func bare(t *testing.T) *world {
	t.Helper()
	cluster := harness.ForTest(t, harness.Options{Own: true, Without: []string{"controller-manager", "scheduler", "fakenodes"}})
	w := &world{Setup: &setup.Setup{Cluster: cluster}, helmHome: t.TempDir()}
	var err error
	if w.root, err = harness.Root(); err != nil {
		t.Fatal(err)
	}
	return w
}

// foreign are the CRDs of Calico and ToolHive: the real ones where the environment names them, else such as know
// their kind, and nothing of a machine.
func foreign(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	out := []*unstructured.Unstructured{
		foreignCRD(t, filepath.Join(os.Getenv(crds.EnvDir), "migration", "migration.projectcalico.org_datastoremigrations.yaml"), os.Getenv(crds.EnvDir) != "",
			migrationv1.CRDName, "DatastoreMigration", "Cluster", "v1", "v1beta1"),
		foreignCRD(t, filepath.Join(os.Getenv(envToolHive), "toolhive.stacklok.dev_mcpservers.yaml"), os.Getenv(envToolHive) != "",
			v1beta1.CRDName, "MCPServer", "Namespaced", "v1beta1", "v1alpha1"),
	}
	return out
}

func foreignCRD(t *testing.T, file string, is bool, name, kind, scope string, versions ...string) *unstructured.Unstructured {
	t.Helper()
	crd := &unstructured.Unstructured{}
	if is {
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, &crd.Object)
		}
		if err != nil {
			t.Fatal(err)
		}
		return crd
	}
	plural, group, _ := strings.Cut(name, ".")
	var served []any
	for i, version := range versions {
		text := map[string]any{"type": "string"}
		served = append(served, map[string]any{
			"name": version, "served": true, "storage": i == 0, "subresources": map[string]any{"status": map[string]any{}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"spec":   map[string]any{"type": "object", "properties": map[string]any{"type": text}},
				"status": map[string]any{"type": "object", "properties": map[string]any{"phase": text, "message": text}},
			}}},
		})
	}
	crd.Object = map[string]any{
		"apiVersion": crdKind.GroupVersion().String(), "kind": crdKind.Kind, "metadata": map[string]any{"name": name},
		"spec": map[string]any{"group": group, "scope": scope, "versions": served, "names": map[string]any{
			"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)}},
	}
	return crd
}

// apply is what a GitOps tool does with them.
func (w *world) apply(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		if err := w.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner("gitops"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
		// kubectl wait ends in an error where the API server has not written a condition yet.
		w.eventuallyDoes(t, "the CRD to be established", "wait", "--for=condition=Established", "--timeout=10s", "crd", o.GetName())
	}
}

// definitions are the CRDs as they are stored, with everything that a write of anybody would change.
func (w *world) definitions(t *testing.T, names ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range names {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := w.Client.Get(t.Context(), types.NamespacedName{Name: name}, crd); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		found[name] = string(text)
	}
	return found
}

func (w *world) assertUntouched(t *testing.T, when string, before map[string]string) {
	t.Helper()
	for name, was := range before {
		if now := w.definitions(t, name)[name]; now != was {
			t.Errorf("%s: CRD %s of another project is not as it was:\n%s\n%s", when, name, was, now)
		}
	}
}

// TestForeignCRDs: what another project has installed is the same, to the byte, after each command of helm; also
// where it comes later, over ours.
func TestForeignCRDs(t *testing.T) {
	w := bare(t)
	chart := filepath.Join(w.root, "charts", "phasegate")
	theirs := []string{migrationv1.CRDName, v1beta1.CRDName}

	w.apply(t, foreign(t))
	before := w.definitions(t, theirs...)
	said := w.helm(t, "install", release, chart, "--create-namespace")
	if !strings.Contains(said, "Not installed by this release: CRD "+migrationv1.CRDName+": it was there before") {
		t.Errorf("helm does not say whose CRDs there are:\n%s", said)
	}
	w.kubectl(t, "get", "crd", v1alpha1.MachineStateCRD)
	w.assertUntouched(t, "installed", before)
	w.helm(t, "upgrade", release, chart, "--set", "logging.level=debug")
	w.assertUntouched(t, "upgraded", before)
	w.guardHolds(t)
	w.helm(t, "uninstall", release)
	w.assertUntouched(t, "uninstalled", before)
	w.kubectl(t, "get", "crd", v1alpha1.MachineStateCRD)

	w.kubectl(t, append([]string{"delete", "crd"}, theirs...)...)
	w.helm(t, "install", release, chart)
	w.apply(t, foreign(t)) // over ours
	before = w.definitions(t, theirs...)
	said = w.helm(t, "upgrade", release, chart)
	if !strings.Contains(said, v1beta1.CRDName+": it was installed by this chart, but another program") {
		t.Errorf("helm does not say that ours are replaced:\n%s", said)
	}
	w.assertUntouched(t, "applied over ours, upgraded", before)
	w.helm(t, "upgrade", release, chart, "--set", "crds.install=own")
	w.assertUntouched(t, "left to others", before)
	w.helm(t, "uninstall", release)
	w.assertUntouched(t, "applied over ours, uninstalled", before)
}

// guardHolds: the CRD of a migration cannot be deleted, whoever's it is.
func (w *world) guardHolds(t *testing.T) {
	t.Helper()
	w.create(t, "{apiVersion: migration.projectcalico.org/v1, kind: DatastoreMigration, metadata: {name: to-v3}, spec: {type: APIServerToCRDs}}")
	harness.Eventually(t, "the deletion of the CRD to be refused", func() error {
		return refused("DatastoreMigration to-v3 exists and would be deleted with its CRD")(w.kubectlSays(t, "delete", "crd", migrationv1.CRDName, "--dry-run=server"))
	})
	w.kubectl(t, "delete", "datastoremigration", "to-v3")
	w.eventuallyDoes(t, "the CRD to be deletable", "delete", "crd", migrationv1.CRDName, "--dry-run=server")
}

func (w *world) create(t *testing.T, text string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	if err := w.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// kubectlSays is for what may be refused.
func (w *world) kubectlSays(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return w.try(t, filepath.Join("tools", "kubectl"), args...)
}

// refused is an error where a command was not refused with these words.
func refused(words string) func(string, error) error {
	return func(said string, err error) error {
		if err == nil || !strings.Contains(said, words) {
			return fmt.Errorf("it is not refused with %q (%w): %s", words, err, said)
		}
		return nil
	}
}

// state is a MachineState that holds something, or nothing.
const state = `{apiVersion: phasegate.dev/v1alpha1, kind: MachineState, metadata: {name: %[1]s.%[2]s, finalizers: [%[3]s]},
spec: {machine: %[1]s, object: {apiVersion: x/v1, kind: Door, namespace: shop, name: front, uid: '%[2]s'}}, status: {phase: Open, held: [%[4]s]}}`

// definition is a MachineDefinition.
const definition = `{apiVersion: phasegate.dev/v1alpha1, kind: MachineDefinition, metadata: {name: %[1]s.x},
spec: {machine: %[1]s, for: {apiVersion: x/v1, kind: Door}, revision: 'sha256:1', text: x}}`

// TestGuardsOfStates: who may write a MachineState, and when its CRD may be deleted.
func TestGuardsOfStates(t *testing.T) {
	w := bare(t)
	w.helm(t, "install", release, filepath.Join(w.root, "charts", "phasegate"), "--create-namespace", "--set", "toolhiveGuard.enabled=true")
	w.besideToolHive(t)
	w.mayWriteStates(t)
	accounts := "--as=system:serviceaccount:" + system + ":" + release + "-"
	migrator, server := accounts+migrating, accounts+serving
	const held = "datastore-migration.1"
	file := func(machine, uid, finalizer, held string) string {
		path := filepath.Join(t.TempDir(), "state.yaml")
		if err := os.WriteFile(path, fmt.Appendf(nil, state, machine, uid, finalizer, held), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	holding := file("datastore-migration", "1", v1alpha1.HeldFinalizer, `'v1Lock → Release {"a":1}', apiService`)
	harness.Eventually(t, "the policy to be loaded", func() error {
		return refused("are written by system:serviceaccount:" + system + ":" + release + "-" + migrating + " only")(w.kubectlSays(t, "create", "-f", holding, "--dry-run=server"))
	})
	w.kubectl(t, "create", "-f", holding, migrator)
	w.kubectl(t, "create", "-f", file("mcpserver", "2", "", ""), server)
	w.kubectl(t, "create", "-f", file("another-releases", "3", "", "")) // guarded by that one

	shown := filepath.Join(t.TempDir(), "definition.yaml")
	if err := os.WriteFile(shown, fmt.Appendf(nil, definition, "mcpserver"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.kubectl(t, "create", "-f", shown, server)
	edit := func(spec string) []string {
		return []string{"patch", "machinedefinition", "mcpserver.x", "--type=merge", "-p", `{"spec":` + spec + `}`}
	}

	change := []string{"patch", "machinestate", held, "--type=merge", "-p", `{"status":{"held":[]}}`}
	cases := map[string]struct {
		why  string
		args []string
		ok   bool
	}{
		"administrator":      {why: "what is held would be lost", args: change},
		"other manager":      {why: "it runs another machine", args: append(change, server)},
		"finalizer":          {why: "a deletion would lose what is held", args: []string{"patch", "machinestate", held, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`}},
		"label":              {why: "the manager would not find it", args: []string{"label", "machinestate", held, "a=b"}},
		"deletion":           {why: "also of one that holds nothing", args: []string{"delete", "machinestate", "mcpserver.2"}},
		"all":                {why: "each of them is asked for", args: []string{"delete", "machinestate", "--all", "--wait=false"}},
		"storage version":    {why: "to store it anew changes nothing", args: []string{"patch", "machinestate", held, "--type=merge", "-p", `{"spec":{"machine":"datastore-migration"}}`}, ok: true},
		"as the manager":     {why: "the break glass of an administrator", args: append(change, migrator), ok: true},
		"definition":         {why: "approve would annotate what it says", args: edit(`{"text":"y"}`)},
		"other's definition": {why: "it runs another machine", args: append(edit(`{"text":"y"}`), migrator)},
		"own definition":     {why: "the file has changed", args: append(edit(`{"text":"y"}`), server), ok: true},
		"of another release": {why: "that one has a guard of its own", args: []string{"patch", "machinestate", "another-releases.3", "--type=merge", "-p", `{"status":{"phase":"Shut"}}`}, ok: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			said, err := w.kubectlSays(t, append(c.args, "--dry-run=server")...)
			if c.ok && err != nil {
				t.Errorf("refused: %s: %s", c.why, said)
			}
			if !c.ok {
				if err := refused("ValidatingAdmissionPolicy 'phasegate-state-guard'")(said, err); err != nil {
					t.Errorf("%s: %v", c.why, err)
				}
			}
		})
	}
	// Else one that may write the definition of its own machine could make it that of another.
	if err := refused("spec.machine cannot be changed")(w.kubectlSays(t, append(edit(`{"machine":"datastore-migration"}`), server, "--dry-run=server")...)); err != nil {
		t.Error(err)
	}
	w.deletesStates(t, held, migrator)
}

// mayWriteStates gives the managers' accounts the rights that they need of states.
func (w *world) mayWriteStates(t *testing.T) {
	t.Helper()
	w.kubectl(t, "create", "clusterrole", "states", "--verb=get,list,watch,create,patch,delete", "--resource=machinestates.phasegate.dev,machinedefinitions.phasegate.dev")
	w.kubectl(t, "create", "clusterrolebinding", "states", "--clusterrole=states",
		"--serviceaccount="+system+":"+release+"-"+migrating, "--serviceaccount="+system+":"+release+"-"+serving)
}

// deletesStates: their CRD goes when nothing is held, and not before; the guards of the release are no hindrance then.
func (w *world) deletesStates(t *testing.T, held, migrator string) {
	t.Helper()
	remove := []string{"delete", "crd", v1alpha1.MachineStateCRD, "--wait=false"}
	harness.Eventually(t, "the deletion of the CRD to be refused", func() error {
		return refused("MachineState " + held + " holds v1Lock, apiService for Door shop/front: delete that object")(w.kubectlSays(t, append(remove, "--dry-run=server")...))
	})
	w.kubectl(t, "patch", "machinestate", held, migrator, "--type=merge", "-p", `{"status":{"held":[]}}`)
	harness.Eventually(t, "the finalizer to be enough", func() error {
		return refused("MachineState " + held + " holds something")(w.kubectlSays(t, append(remove, "--dry-run=server")...))
	})
	w.helm(t, "uninstall", release)
	if err := refused("MachineState " + held + " holds something")(w.kubectlSays(t, remove...)); err != nil {
		t.Errorf("after the uninstallation: %v", err)
	}
	w.eventuallyDoes(t, "the API server to forget the guard", "patch", "machinestate", held, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	w.eventuallyDoes(t, "the CRD to be deleted", "delete", "crd", v1alpha1.MachineStateCRD, "--ignore-not-found", "--timeout=20s")
}

// eventuallyDoes tries until kubectl has done it.
func (w *world) eventuallyDoes(t *testing.T, what string, args ...string) {
	t.Helper()
	harness.Eventually(t, what, func() error {
		said, err := w.kubectlSays(t, args...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	})
}
