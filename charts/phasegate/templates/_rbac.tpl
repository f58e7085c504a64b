{{/*
The rules of files/rbac/<name>.yaml. What they grant on bgpfilters, a kind without
a rule of its own, is granted on each kind of kinds.extra and kinds.file as well.
Takes (list $ name); returns YAML.
*/}}
{{- define "phasegate.rules" -}}
{{- $root := index . 0 }}
{{- $rules := ($root.Files.Get (printf "files/rbac/%s.yaml" (index . 1)) | fromYaml).rules }}
{{- $kinds := $root.Values.kinds.extra }}
{{- with $root.Values.kinds.file }}{{ $kinds = (fromYaml .).spec.kinds }}{{ end }}
{{- range $kind := $kinds }}
{{- $plurals := dict "projectcalico.org" $kind.plural "crd.projectcalico.org" (dig "v1" "plural" $kind.plural $kind) }}
{{- range $rule := $rules }}
{{- range $group, $plural := $plurals }}
{{- range $sub := list "" "/finalizers" }}
{{- if and (has $group $rule.apiGroups) (has (print "bgpfilters" $sub) $rule.resources) }}
{{- $_ := set $rule "resources" (append $rule.resources (print $plural $sub) | uniq) }}
{{- end }}
{{- end }}
{{- if has (printf "bgpfilters.%s" $group) (get $rule "resourceNames" | default list) }}
{{- $_ := set $rule "resourceNames" (append $rule.resourceNames (printf "%s.%s" $plural $group) | uniq) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $rules }}
{{- end }}

{{/* A binding of a ClusterRole to the account of a controller. Takes (list $ controller role). */}}
{{- define "phasegate.clusterRoleBinding" -}}
{{- $root := index . 0 }}
{{- $controller := index . 1 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ index . 2 }}
  labels:
    {{- include "phasegate.labels" (list $root $controller) | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ index . 3 }}
subjects:
- kind: ServiceAccount
  name: {{ include "phasegate.serviceAccountName" (list $root $controller) }}
  namespace: {{ $root.Release.Namespace }}
{{- end }}

{{/*
Whether a controller may write the backup of v1 into Calico's namespace: without a cluster
to ask, as in `helm template`, the namespace is taken to be there. Takes (list $ controller).
*/}}
{{- define "phasegate.grantsBackup" -}}
{{- $root := index . 0 }}
{{- $values := get $root.Values.controllers (index . 1) }}
{{- if and (eq (index . 1) "datastoremigration") $values.cleanup.enabled }}
{{- $asks := lookup "v1" "Namespace" "" "kube-system" }}
{{- if or (not $asks) (lookup "v1" "Namespace" "" $values.calicoNamespace) }}true{{ end }}
{{- end }}
{{- end }}
