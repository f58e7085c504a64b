{{- define "phasegate.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The longest name made from it is <fullname>-datastoremigration-metrics. */}}
{{- define "phasegate.fullname" -}}
{{- $name := include "phasegate.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 36 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 36 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 36 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The names of the controllers that are switched on, as a JSON list. */}}
{{- define "phasegate.controllers" -}}
{{- $on := list }}
{{- range $name, $controller := .Values.controllers }}
{{- if $controller.enabled }}{{ $on = append $on $name }}{{ end }}
{{- end }}
{{- toJson $on }}
{{- end }}

{{/* Labels that never change, since a Deployment's selector cannot. Takes (list $ component); "" for what belongs to none. */}}
{{- define "phasegate.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "phasegate.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "phasegate.labels" -}}
{{- $root := index . 0 -}}
{{ include "phasegate.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: phasegate
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/*
Guards of CRDs are kept when their release goes, and are the same for all: they have one name, whatever the release is
called. One that another release has made, or has left, is as good as ours. Returns true or nothing; takes (list $ name).
*/}}
{{- define "phasegate.othersGuard" -}}
{{- $root := index . 0 }}
{{- $live := lookup "admissionregistration.k8s.io/v1" "ValidatingAdmissionPolicy" "" (index . 1) | default dict }}
{{- $notes := dig "metadata" "annotations" dict $live | default dict }}
{{- $ours := and (eq (get $notes "meta.helm.sh/release-name") $root.Release.Name) (eq (get $notes "meta.helm.sh/release-namespace") $root.Release.Namespace) }}
{{- if and $live (not $ours) }}true{{ end }}
{{- end }}

{{/* Takes (list $ component). */}}
{{- define "phasegate.serviceAccountName" -}}
{{- $root := index . 0 }}
{{- $account := (get $root.Values.controllers (index . 1)).serviceAccount }}
{{- $account.name | default (printf "%s-%s" (include "phasegate.fullname" $root) (index . 1)) }}
{{- end }}

{{/* What the proxies of MCP servers run. */}}
{{- define "phasegate.proxy" -}}
{{- .Values.proxy | default (ternary "toolhive" "phasegate" (ne .Values.toolhiveProxyImage.repository "")) }}
{{- end }}

{{/* The image of ToolHive's proxyrunner, of which the chart's version says nothing. */}}
{{- define "phasegate.toolhiveImage" -}}
{{- $image := .Values.toolhiveProxyImage }}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- with $image.tag }}:{{ . }}{{ end }}
{{- with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* Takes (list $ image). */}}
{{- define "phasegate.image" -}}
{{- $root := index . 0 }}
{{- $image := index . 1 }}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- with $image.digest }}@{{ . }}{{ end }}
{{- end }}
