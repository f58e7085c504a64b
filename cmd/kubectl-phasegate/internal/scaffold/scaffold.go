// Package scaffold writes what a cluster needs before it can run a machine: the CRD of its
// kind, and the role of the account that runs it. It asks no cluster.
package scaffold

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

// Options say what a machine file does not.
type Options struct {
	// CRDs say the plurals of their kinds; those of other kinds are guessed.
	CRDs []apiextensionsv1.CustomResourceDefinition
	// ClusterScoped: objects of the kind are in no namespace.
	ClusterScoped bool
	// Account is the one that runs the machine.
	Account types.NamespacedName
}

// resources answers plurals.
func (o Options) resources(apiVersion, kind string) (group, resource string) {
	group, resource = rbac.Guess(apiVersion, kind)
	for i := range o.CRDs {
		if spec := &o.CRDs[i].Spec; spec.Group == group && spec.Names.Kind == kind {
			return group, spec.Names.Plural
		}
	}
	return group, resource
}

// Role is a ClusterRole with all that the machine needs, and its ClusterRoleBinding, as YAML.
func Role(m *fsm.Machine, o Options) (string, error) {
	needs := catalog.Needs(m, datastoremigration.Settings{}, o.resources)
	var rules []rule
	for _, r := range rbac.Merge(needs) {
		rules = append(rules, rule{PolicyRule: r, For: neededBy(r, needs)})
	}
	return fill(roleText, map[string]any{
		"Name": "phasegate-" + m.Name(), "Machine": m.Name(), "Rules": rules, "Account": o.Account, "Notes": notes(m),
	})
}

// neededBy lists the steps and watches for which a rule is there.
func neededBy(r rbacv1.PolicyRule, needs []rbac.Need) string {
	var who []string
	for _, n := range needs {
		if slices.Contains(r.APIGroups, n.Group) && slices.Contains(r.Resources, n.Resource) && slices.Contains(r.Verbs, n.Verb) &&
			(len(r.ResourceNames) == 0 && n.Name == "" || slices.Contains(r.ResourceNames, n.Name)) {
			who = append(who, n.For...)
		}
	}
	slices.Sort(who)
	return strings.Join(slices.Compact(who), ", ")
}

// notes say what no rule can: what is known only when the machine runs, and what is no right.
func notes(m *fsm.Machine) []string {
	var all []string
	for _, u := range catalog.Unclear(m) {
		all = append(all, "Not among the rules: "+u.By+" needs "+strings.Join(u.Verbs, ", ")+" of a kind that an expression says. Add the kinds that it can be.")
	}
	for _, call := range m.Calls() {
		switch kind, _ := call.With.Object("manifest")["kind"].(string); {
		case call.Action == "HTTPRequest":
			all = append(all, call.By+" makes HTTP requests: start the manager with --allow-http-host=HOST for "+call.With.String("url", "")+".")
		case call.Action == "Apply" && (strings.HasSuffix(kind, "Role") || strings.HasSuffix(kind, "RoleBinding")):
			all = append(all, call.By+" makes a "+kind+": the API server lets an account grant only what it may do itself. Add those rights.")
		}
	}
	slices.SortStableFunc(all, cmp.Compare[string])
	return slices.Compact(all)
}
