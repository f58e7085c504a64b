// Package scaffold writes what a cluster needs before it can run a machine: the CRD of its
// kind, and the role of the account that runs it. It asks no cluster.
package scaffold

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/template"

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
		of := " of a kind"
		if u.Subresource != "" {
			of = " of /" + u.Subresource + " of a kind"
		}
		all = append(all, "Not among the rules: "+u.By+" needs "+strings.Join(u.Verbs, ", ")+of+" that an expression says. Add the kinds that it can be.")
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

// rule is one of a role, with those who need it.
type rule struct {
	rbacv1.PolicyRule
	For string
}

// String is the rule on one line.
func (r rule) String() string {
	parts := []string{list("apiGroups", r.APIGroups), list("resources", r.Resources)}
	if len(r.ResourceNames) > 0 {
		parts = append(parts, list("resourceNames", r.ResourceNames))
	}
	return "{" + strings.Join(append(parts, list("verbs", r.Verbs)), ", ") + "}"
}

func list(name string, texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		if quoted[i] = text; text == "" || strings.ContainsAny(text, "*:{}[]&#!|>'\"%@` ") {
			quoted[i] = fmt.Sprintf("%q", text)
		}
	}
	return name + ": [" + strings.Join(quoted, ", ") + "]"
}

var roleText = template.Must(template.New("role").Parse(`# What the manager must be allowed to do for machine {{.Machine}}, and nothing else.
{{- range .Notes}}
# {{.}}
{{- end}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{.Name}}
rules:
{{- range .Rules}}
- {{.}} # {{.For}}
{{- end}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{.Name}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{.Name}}}
subjects:
- {kind: ServiceAccount, name: {{.Account.Name}}, namespace: {{.Account.Namespace}}}
`))

var crdText = template.Must(template.New("crd").Parse(`# The kind of machine {{.Machine}}. spec is what its expressions read: say more about each field, and add your own.
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {{.Plural}}.{{.Group}}
spec:
  group: {{.Group}}
  scope: {{.Scope}}
  names: {kind: {{.Kind}}, listKind: {{.Kind}}List, plural: {{.Plural}}, singular: {{.Singular}}}
  versions:
  - name: {{.Version}}
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Phase, type: string, jsonPath: .status.phase}
{{- range .Status}}{{if .Column}}
    - {name: {{.Title}}, type: {{.Column}}, jsonPath: .status.{{.Name}}}
{{- end}}{{end}}
    - {name: Message, type: string, jsonPath: .status.message}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
{{.Spec}}          status: # written by the manager alone: leave it as it is
            type: object
            properties:
              phase: {type: string}
              message: {type: string}
              observedGeneration: {type: integer}
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items: {type: object, x-kubernetes-preserve-unknown-fields: true, required: [type], properties: {type: {type: string}}}
              machine: {type: object, x-kubernetes-preserve-unknown-fields: true}
{{- range .Status}}
              {{.Name}}: {{.Schema}}
{{- end}}
`))

func fill(t *template.Template, values any) (string, error) {
	var out strings.Builder
	err := t.Execute(&out, values)
	return out.String(), err
}
