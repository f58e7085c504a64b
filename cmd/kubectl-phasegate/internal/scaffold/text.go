package scaffold

import (
	"fmt"
	"strings"
	"text/template"

	rbacv1 "k8s.io/api/rbac/v1"
)

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
`))

func fill(t *template.Template, values any) (string, error) {
	var out strings.Builder
	err := t.Execute(&out, values)
	return out.String(), err
}
