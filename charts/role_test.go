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

	"github.com/phasegate/phasegate/controllers/rights"
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
	for _, name := range []string{"custom", "datastoremigration", "datastoremigration-cleanup", "mcpserver"} {
		got.WriteString(name + "\n")
		for _, need := range rights.Union(rights.Flatten(name, all[name]...)) {
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
	named := map[string]string{ // what is written by name only, and the name
		"patch clusterinformations.crd.projectcalico.org":       "default",
		"patch apiservices.apiregistration.k8s.io":              "v3.projectcalico.org",
		"get apiservices.apiregistration.k8s.io":                "v3.projectcalico.org",
		"patch clusterinformations.projectcalico.org":           "default",
		"delete clusterinformations.projectcalico.org":          "default",
		"get customresourcedefinitions.apiextensions.k8s.io":    "",
		"delete customresourcedefinitions.apiextensions.k8s.io": "",
	}
	for role, rules := range roles(t) {
		for _, need := range rights.Flatten(role, rules...) {
			if need.Verb == "*" || need.Resource == "*" || need.Group == "*" {
				t.Errorf("%s: %s: say which", role, need)
			}
			if slices.Contains([]string{"escalate", "bind", "impersonate", "deletecollection", "update"}, need.Verb) {
				t.Errorf("%s: %s: nothing here does that", role, need)
			}
			whole := need
			whole.Name = ""
			if name, ok := named[whole.String()]; ok && (need.Name == "" || name != "" && need.Name != name) {
				t.Errorf("%s: %s: by name only", role, need)
			}
			writes := !slices.Contains([]string{"get", "list", "watch"}, need.Verb)
			if writes && need.Group == "crd.projectcalico.org" && need.Resource != "clusterinformations" {
				t.Errorf("%s: %s: of v1, only the lock is written", role, need)
			}
			if need.Verb == "delete" && need.Resource == "customresourcedefinitions" && (role != "datastoremigration-cleanup" || !strings.HasSuffix(need.Name, ".crd.projectcalico.org")) {
				t.Errorf("%s: %s: only a clean-up deletes CRDs, and those of v1 only", role, need)
			}
		}
	}
}
