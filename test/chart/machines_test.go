package chart_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

func configMap(t *testing.T, name, given string) map[string]string {
	t.Helper()
	cm := &corev1.ConfigMap{}
	mustRender(t, values(t, given)).find(t, "ConfigMap", release+"-"+name, cm)
	return cm.Data
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What is mounted is what is compiled in, byte for byte: comments, and the revision
// that `status.machine.revision` names, are the same.
func TestShippedFilesAreCopiedVerbatim(t *testing.T) {
	want := map[string]string{
		"datastore-migration.yaml": read(t, "phases", "datastore-migration.yaml"),
		"mcpserver.yaml":           read(t, "phases", "mcpserver.yaml"),
	}
	if diff := cmp.Diff(want, configMap(t, "machines", "{}")); diff != "" {
		t.Errorf("machines (-compiled in +mounted), make generate copies them:\n%s", diff)
	}
	// A file of the user's, whose first line is indented and whose last has no end.
	mine := "  # mine\nkind: Machine\nmetadata: {name: mcpserver}\n\n# end"
	want["mine.yaml"] = mine + "\n"
	delete(want, "mcpserver.yaml")
	text, err := yaml.Marshal(map[string]any{"machines": map[string]any{"files": map[string]string{"mine.yaml": mine}}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, configMap(t, "machines", string(text))); diff != "" {
		t.Errorf("with a file in the place of a machine (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"kinds.yaml": read(t, "resources", "kinds.yaml")}, configMap(t, "kinds", "{}")); diff != "" {
		t.Errorf("kinds (-compiled in +mounted):\n%s", diff)
	}
}

// at walks maps by key, and lists of objects by the name of one.
func at(t *testing.T, root map[string]any, path ...string) map[string]any {
	t.Helper()
	for _, key := range path {
		switch next := root[key].(type) {
		case map[string]any:
			root = next
			continue
		case nil:
		default:
			t.Fatalf("%s is a %T", key, next)
		}
		found := false
		for _, list := range []string{"phases", "steps"} {
			objects, _ := root[list].([]any)
			i := slices.IndexFunc(objects, func(o any) bool { m := o.(map[string]any); return m["name"] == key || m["action"] == key })
			if i >= 0 {
				root, found = objects[i].(map[string]any), true
				break
			}
		}
		if !found {
			t.Fatalf("there is no %s in %v", key, root)
		}
	}
	return root
}

// An override changes what it names, and nothing else.
func TestOverride(t *testing.T) {
	cases := map[string]struct {
		why    string
		values string
		change func(t *testing.T, spec map[string]any)
	}{
		"nothing": {why: "but comments, it is the same machine", values: `{defaults: {}}`, change: func(*testing.T, map[string]any) {}},
		"a field of a phase": {why: "the commonest", values: `{phases: {Complete: {description: x}, Pending: {timeout: {after: 1h}}}}`, change: func(t *testing.T, spec map[string]any) {
			at(t, spec, "Complete")["description"] = "x"
			at(t, spec, "Pending", "timeout")["after"] = "1h"
		}},
		"a step by its action": {why: "its other fields stay", values: `{phases: {Migrating: {steps: {Drain: {with: {quiet: 2s}}}}}}`, change: func(t *testing.T, spec map[string]any) {
			at(t, spec, "Migrating", "Drain", "with")["quiet"] = "2s"
		}},
		"all steps": {why: "a list replaces a list", values: `{phases: {CleaningUp: {steps: [{wait: 1h}]}}}`, change: func(t *testing.T, spec map[string]any) {
			at(t, spec, "CleaningUp")["steps"] = []any{map[string]any{"wait": "1h"}}
		}},
		"zero and empty": {why: "they are values: mergeOverwrite would pass them over", values: `{defaults: {retry: {jitter: 0}}, phases: {Converged: {watch: []}}}`, change: func(t *testing.T, spec map[string]any) {
			at(t, spec, "defaults", "retry")["jitter"] = 0.0
			at(t, spec, "Converged")["watch"] = []any{}
		}},
		"a new field": {why: "what the machine leaves out can be said", values: `{upgrade: {phaseMap: {Old: Pending}}}`, change: func(_ *testing.T, spec map[string]any) {
			spec["upgrade"] = map[string]any{"phaseMap": map[string]any{"Old": "Pending"}}
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want, got := map[string]any{}, map[string]any{}
			if err := yaml.Unmarshal([]byte(read(t, "phases", "datastore-migration.yaml")), &want); err != nil {
				t.Fatal(err)
			}
			c.change(t, want["spec"].(map[string]any))
			data := configMap(t, "machines", "{machines: {override: {datastore-migration: "+c.values+"}}}")
			if err := yaml.Unmarshal([]byte(data["datastore-migration.yaml"]), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			if data["mcpserver.yaml"] != read(t, "phases", "mcpserver.yaml") {
				t.Error("the other machine is changed too")
			}
		})
	}
}

// allows says whether some rule of the release's role grants a verb.
func allows(t *testing.T, out rendered, role, verb, group, resource, name string) bool {
	t.Helper()
	r := &rbacv1.ClusterRole{}
	out.find(t, "ClusterRole", release+"-"+role, r)
	return slices.ContainsFunc(r.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Verbs, verb) && slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) &&
			(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, name))
	})
}

// A kind of the user's is read, written and cleaned up with the rights of the others.
func TestExtraKind(t *testing.T) {
	const extra = "{kind: Gateway, plural: gateways, scope: Cluster, v1: {kind: OldGateway, plural: oldgateways}}"
	registry, err := yaml.Marshal(map[string]any{"kinds": map[string]string{"file": "apiVersion: phasegate.dev/v1alpha1\nkind: KindRegistry\nmetadata: {name: mine}\nspec:\n  kinds:\n  - " + extra + "\n"}})
	if err != nil {
		t.Fatal(err)
	}
	const crds, v3, v1 = "apiextensions.k8s.io", "projectcalico.org", "crd.projectcalico.org"
	for name, given := range map[string]string{"kinds.extra": "{kinds: {extra: [" + extra + "]}}", "kinds.file": string(registry)} {
		t.Run(name, func(t *testing.T) {
			out := mustRender(t, values(t, given))
			for _, need := range [][]string{
				{"datastoremigration", "patch", v1, "oldgateways", ""}, // its owners are detached
				{"datastoremigration", "create", v3, "gateways", ""},
				{"datastoremigration", "delete", v3, "gateways", ""},
				{"datastoremigration", "update", v1, "oldgateways/finalizers", ""}, // its owners are attached where an admission plugin asks
				{"datastoremigration", "update", v3, "gateways/finalizers", ""},
				{"datastoremigration", "get", crds, "customresourcedefinitions", "gateways.projectcalico.org"},
				{"datastoremigration-cleanup", "delete", crds, "customresourcedefinitions", "oldgateways.crd.projectcalico.org"},
			} {
				if !allows(t, out, need[0], need[1], need[2], need[3], need[4]) {
					t.Errorf("not granted: %v", need)
				}
				if shipped := mustRender(t, nil); allows(t, shipped, need[0], need[1], need[2], need[3], need[4]) {
					t.Errorf("granted to everybody: %v", need)
				}
			}
			for _, never := range [][]string{
				{"datastoremigration", "create", v1, "oldgateways", ""},
				{"datastoremigration", "delete", v1, "oldgateways", ""},
				{"datastoremigration", "delete", crds, "customresourcedefinitions", "oldgateways.crd.projectcalico.org"},
				{"datastoremigration-cleanup", "delete", crds, "customresourcedefinitions", "gateways.projectcalico.org"},
			} {
				if allows(t, out, never[0], never[1], never[2], never[3], never[4]) {
					t.Errorf("granted without need: %v", never)
				}
			}
			cm := &corev1.ConfigMap{}
			out.find(t, "ConfigMap", release+"-kinds", cm)
			got := struct {
				Spec struct {
					Kinds []struct{ Kind string }
				}
			}{}
			if err := yaml.Unmarshal([]byte(cm.Data["kinds.yaml"]), &got); err != nil {
				t.Fatal(err)
			}
			if last := got.Spec.Kinds[len(got.Spec.Kinds)-1].Kind; last != "Gateway" {
				t.Errorf("the last kind of the registry is %s", last)
			}
		})
	}
}
