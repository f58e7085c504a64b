package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/test/support/harness"
)

// What scaffold prints is applied as it is, and is all that a manager needs to run the machine from start to end. While
// rights are missing, the object names all of them at once.
func TestScaffold(t *testing.T) {
	w := pristine(t)
	w.kubectl(t, "wait", "--for=delete", "--timeout=3m", "namespace/bookshop", "crd/databaserestores.example.com") // of another test
	machine := example(t, "database-restore/database-restore.yaml")
	file := filepath.Join(t.TempDir(), "scaffold.yaml")
	if err := os.WriteFile(file, []byte(w.phasegate(t, "scaffold", machine)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.kubectl(t, "apply", "-f", file)
	w.awaitEstablished(t, "crd/databaserestores.example.com")
	w.openBookshop(t)
	t.Cleanup(func() {
		w.kubectl(t, "delete", "--timeout=3m", "namespace/bookshop", "crd/databaserestores.example.com", "clusterrole/phasegate-database-restore", "clusterrolebinding/phasegate-database-restore")
	})
	rules := printedRules(t, file)
	base, err := harness.ChartRules("custom")
	if err != nil {
		t.Fatal(err)
	}
	account := "scaffolded"
	grant := func(rules []rbacv1.PolicyRule) {
		t.Helper()
		if err := w.Grant(t.Context(), account, rules); err != nil {
			t.Fatal(err)
		}
	}
	grant(append(base, rbacv1.PolicyRule{APIGroups: []string{"example.com"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "patch"}}))
	manager, err := w.StartManagerOf("", "--kubeconfig", w.KubeconfigOf(account), "--controllers", "custom", "--phases-dir", directory(t, "database-restore/database-restore.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Stop(harness.Patience) })
	w.apply(t, "database-restore/sample.yaml")
	harness.Eventually(t, "all missing rights to be named", func() error {
		got := w.kubectl(t, "get", "-n", "bookshop", "databaserestore/monday", "-o", "jsonpath={.status.message}")
		for _, want := range []string{"create, delete, get, patch configmaps", "get, patch deployments.apps", "create, delete, get, list jobs.batch", "kubectl phasegate scaffold"} {
			if !strings.Contains(got, want) {
				return nilUnless(false, got)
			}
		}
		return nil
	})
	grant(rules) // and nothing else
	w.awaitStopped(t)
	w.endPod(t, corev1.PodSucceeded)
	w.kubectl(t, "wait", "--for=condition=Ready", "--timeout=3m", "-n", "bookshop", "databaserestore/monday")
	w.assertOpen(t)
	w.kubectl(t, "delete", "--timeout=3m", "-n", "bookshop", "databaserestore/monday")
	w.assertNoStates(t, "DatabaseRestore")
}

// printedRules are those of the ClusterRole in a file.
func printedRules(t *testing.T, file string) []rbacv1.PolicyRule {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		if err := yaml.Unmarshal([]byte(doc), role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" {
			return role.Rules
		}
	}
	t.Fatal("no ClusterRole is printed")
	return nil
}
