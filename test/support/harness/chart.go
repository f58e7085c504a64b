package harness

import (
	"fmt"
	"os"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// ChartRules are the rules that the chart gives to roles, by the names of their
// files in charts/phasegate/files/rbac: "mcpserver".
func ChartRules(roles ...string) ([]rbacv1.PolicyRule, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	var rules []rbacv1.PolicyRule
	for _, role := range roles {
		file := filepath.Join(root, "charts", "phasegate", "files", "rbac", role+".yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the rules of the chart: %w: run `make generate`", err)
		}
		var has struct {
			Rules []rbacv1.PolicyRule `json:"rules"`
		}
		if err := yaml.UnmarshalStrict(text, &has); err != nil {
			return nil, fmt.Errorf("read the rules of the chart: %s: %w", file, err)
		}
		rules = append(rules, has.Rules...)
	}
	return rules, nil
}

// MigrationRules are all rules that the chart can give to the account of migrations, those of its
// optional roles included.
func MigrationRules() ([]rbacv1.PolicyRule, error) {
	return ChartRules("datastoremigration", "datastoremigration-apiservers", "datastoremigration-cleanup", "datastoremigration-backup", "datastoremigration-dependents", "datastoremigration-copyahead", "custom")
}
