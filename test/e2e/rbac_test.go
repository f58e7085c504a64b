package e2e

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/test/support/harness"
)

// managerAccount has what the chart grants, and nothing else: every test runs with it, so that a
// missing rule fails somewhere.
const managerAccount = "phasegate-manager"

// managerRules are those of the chart, for the one manager that runs all controllers here.
func managerRules(t testing.TB) []rbacv1.PolicyRule {
	t.Helper()
	rules, err := harness.MigrationRules()
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// alsoGrant gives the manager the rules of files of docs/extend besides, until the test ends.
func (w *world) alsoGrant(t *testing.T, files ...string) {
	t.Helper()
	before := &rbacv1.ClusterRole{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: managerAccount}, before); err != nil {
		t.Fatal(err)
	}
	rules := slices.Clone(before.Rules)
	for _, file := range files {
		data, err := os.ReadFile(example(t, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range strings.Split(string(data), "\n---\n") {
			role := &rbacv1.ClusterRole{}
			if err := yaml.Unmarshal([]byte(doc), role); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			rules = append(rules, role.Rules...)
		}
	}
	if err := w.Grant(t.Context(), managerAccount, rules); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Grant(context.Background(), managerAccount, before.Rules); err != nil {
			t.Error(err)
		}
	})
}

// without returns the rules less some verbs on one resource of one group, or on all of them: "*". Verbs that are not granted end the
// test: taking them away would test nothing.
func (w *world) without(t *testing.T, rules []rbacv1.PolicyRule, group, resource string, verbs ...string) []rbacv1.PolicyRule {
	t.Helper()
	taken := map[string]bool{}
	var out []rbacv1.PolicyRule
	for _, rule := range rules {
		if slices.Contains(rule.APIGroups, "*") && slices.ContainsFunc(verbs, func(verb string) bool { return slices.Contains(rule.Verbs, verb) }) {
			rule.APIGroups = w.groupsBut(t, group)
		}
		if slices.Contains(rule.APIGroups, group) && (resource == "*" || slices.Contains(rule.Resources, resource)) {
			rule.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool {
				taken[verb] = taken[verb] || slices.Contains(verbs, verb)
				return slices.Contains(verbs, verb)
			})
		}
		if len(rule.Verbs) > 0 {
			out = append(out, rule)
		}
	}
	for _, verb := range verbs {
		if !taken[verb] {
			t.Fatalf("the chart does not grant %s on %s.%s", verb, resource, group)
		}
	}
	return out
}

// groupsBut is what "*" means less one group: RBAC can only grant.
func (w *world) groupsBut(t *testing.T, group string) []string {
	t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	served, err := c.ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	var others []string
	for _, g := range served.Groups {
		if g.Name != group {
			others = append(others, g.Name)
		}
	}
	return others
}
