package charts_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/rbac"
)

var update = flag.Bool("update", false, "write testdata/rights.txt anew")

func roles(t *testing.T) map[string][]rbacv1.PolicyRule {
	t.Helper()
	files, err := fs.Glob(os.DirFS("phasegate/files/rbac"), "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]rbacv1.PolicyRule{}
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join("phasegate/files/rbac", file))
		if err != nil {
			t.Fatal(err)
		}
		var role struct {
			Rules []rbacv1.PolicyRule `json:"rules"`
		}
		if err := yaml.UnmarshalStrict(data, &role); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(file, ".yaml")] = role.Rules
	}
	return all
}

// A right more is a decision: it is seen in a review, one line for each.
func TestRightsAreThoseAgreedOn(t *testing.T) {
	var got strings.Builder
	all := roles(t)
	for _, name := range []string{"custom", "datastoremigration", "datastoremigration-apiservers", "datastoremigration-backup", "datastoremigration-cleanup", "datastoremigration-copyahead", "datastoremigration-dependents", "mcpserver", "mcpserver-toolhive"} {
		got.WriteString(name + "\n")
		for _, need := range rbac.Union(rbac.Flatten(name, all[name]...)) {
			got.WriteString("  " + need.String() + "\n")
		}
		delete(all, name)
	}
	if len(all) > 0 {
		t.Errorf("files that no role is made of: %v", all)
	}
	const golden = "testdata/rights.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("rights (-agreed +granted; go test ./charts -update writes them anew):\n%s", diff)
	}
}

// What no role may ever say, whoever thinks that an action needs it.
func TestNoRoleGrantsMoreThanItCanName(t *testing.T) {
	for role, rules := range roles(t) {
		for _, need := range rbac.Flatten(role, rules...) {
			for _, rule := range taboos {
				if rule.broken(need) {
					t.Errorf("%s: %s: %s", role, need, rule.why)
				}
			}
		}
	}
}

// asOwner tells a right on no resource either, which the API server has of no custom resource: who has it may block the deletion
// of an owner.
func asOwner(n rbac.Need) bool {
	return n.Verb == "update" && strings.HasSuffix(n.Resource, "/finalizers") &&
		slices.Contains([]string{"toolhive.stacklok.dev", "crd.projectcalico.org", "projectcalico.org"}, n.Group)
}

var taboos = []struct {
	why    string
	broken func(rbac.Need) bool
}{
	{"say which; what belongs to Calico's objects, and kinds of v1 that no registry knows, are found by listing everything", func(n rbac.Need) bool {
		all := n.String() == "list *.crd.projectcalico.org" || n.For[0] == "datastoremigration-dependents" && n.String() == "list *.*"
		return n.Verb == "*" || (n.Group == "*" || n.Resource == "*") && !all
	}},
	{"nothing here does that", func(n rbac.Need) bool {
		inTier := n.Verb == "update" && strings.HasPrefix(n.Resource, "tier.") // no resource, but the name under which Calico grants a right
		return slices.Contains([]string{"escalate", "bind", "impersonate", "deletecollection", "update"}, n.Verb) && !inTier && !asOwner(n)
	}},
	{"of v1, notes about owners and the one lock are patched; nothing is created or deleted", func(n rbac.Need) bool {
		return n.Group == "crd.projectcalico.org" && writes(n) && !asOwner(n) && (n.Verb != "patch" || n.Resource == "clusterinformations" && n.Name != "default")
	}},
	{"of v3, there is one lock", func(n rbac.Need) bool {
		return n.Resource == "clusterinformations" && writes(n) && n.Verb != "create" && n.Name != "default"
	}},
	{"only Calico's APIService is looked at and changed; a create cannot be named", func(n rbac.Need) bool {
		return n.Resource == "apiservices" && n.Verb != "create" && n.Name != "v3.projectcalico.org"
	}},
	{"only a clean-up deletes CRDs, and patches what it deletes, of v1 only; only copying ahead patches those of v3", func(n rbac.Need) bool {
		v1 := strings.HasSuffix(n.Name, ".crd.projectcalico.org")
		cleanUp := (n.Verb == "delete" || n.Verb == "patch") && n.For[0] == "datastoremigration-cleanup" && v1
		sideDoor := n.Verb == "patch" && n.For[0] == "datastoremigration-copyahead" && !v1 && strings.HasSuffix(n.Name, ".projectcalico.org")
		return n.Resource == "customresourcedefinitions" && writes(n) && !cleanUp && !sideDoor
	}},
	{"admission objects are looked at by name, but for webhooks, which others name, and only the fences are made, changed and deleted; a create cannot be named", func(n rbac.Need) bool {
		fence := strings.HasPrefix(n.Resource, "validating") && (n.Verb == "create" || (n.Verb == "delete" || n.Verb == "patch" && n.Resource == "validatingadmissionpolicies") && slices.Contains([]string{migrationv1.FenceName, migrationv1.V3FenceName}, n.Name))
		return n.Group == "admissionregistration.k8s.io" && (writes(n) && !fence || n.Name == "" && n.Verb != "create" && n.String() != "list validatingwebhookconfigurations.admissionregistration.k8s.io")
	}},
}

func writes(n rbac.Need) bool { return !slices.Contains([]string{"get", "list", "watch"}, n.Verb) }

// Helm refuses an older cluster, and so does the check.
func TestOldestKubernetes(t *testing.T) {
	data, err := os.ReadFile("phasegate/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var chart struct{ KubeVersion string }
	if err := yaml.Unmarshal(data, &chart); err != nil {
		t.Fatal(err)
	}
	if want := ">=" + check.OldestKubernetes + "-0"; chart.KubeVersion != want {
		t.Errorf("kubeVersion of the chart is %q, want %q as the check kubernetes-version has it", chart.KubeVersion, want)
	}
}
