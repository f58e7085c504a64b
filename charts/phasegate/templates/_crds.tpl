{{/*
The CRD of a file as this chart has it, and why it is left as it is in the cluster: JSON with name, controller
("" for the CRD of MachineState, which all need), path, left ("" where it is installed) and risk (what an upgrade
would do to it; "" for nothing).

Helm's lookup answers nothing in `helm template` and in a dry run of the client: then no CRD is there, and all are
installed. Takes (list $ path controller).
*/}}
{{- define "phasegate.crd" -}}
{{- $root := index . 0 }}
{{- $install := $root.Values.crds.install }}
{{- $name := (index . 1 | $root.Files.Get | fromYaml).metadata.name }}
{{- $own := hasSuffix ".phasegate.dev" $name }}
{{- $live := dict }}
{{- if has $install (list "auto" "own") }}
{{- $live = lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name | default dict }}
{{- end }}
{{- $notes := dig "metadata" "annotations" dict $live | default dict }}
{{- $owner := get $notes "meta.helm.sh/release-name" }}
{{- $ours := and (eq $owner $root.Release.Name) (eq (get $notes "meta.helm.sh/release-namespace") $root.Release.Namespace) }}
{{- $left := "" }}
{{- if eq $install "never" }}
{{- $left = "crds.install is never" }}
{{- else if and (eq $install "own") (not $own) }}
{{- $left = "crds.install is own" }}
{{- else if and (eq $install "auto") $live }}
{{- if and $owner (not $ours) }}
{{- $left = printf "it belongs to the release %s in namespace %s" $owner (get $notes "meta.helm.sh/release-namespace") }}
{{- else if not $ours }}
{{- $left = "it was there before, and belongs to no release of Helm" }}
{{- else if not (or $own (include "phasegate.keepsMachine" $live)) }}
{{- $left = "it was installed by this chart, but another program has applied its own definition since" }}
{{- end }}
{{- end }}
{{- $risk := "" }}
{{- if and $left $ours (ne (get $notes "helm.sh/resource-policy") "keep") }}
{{- $risk = printf "crds.install: CRD %s is left (%s), and was installed by this release without crds.keep: Helm would delete it now, with all its objects: kubectl annotate crd %s helm.sh/resource-policy=keep, then try again" $name $left $name }}
{{- end }}
{{- dict "name" $name "controller" (index . 2) "path" (index . 1) "own" $own "left" $left "risk" $risk | toJson }}
{{- end }}

{{/* Whether a live CRD has our schema: the stored version knows status.machine. Returns true or nothing. */}}
{{- define "phasegate.keepsMachine" -}}
{{- range .spec.versions }}
{{- if and .storage (hasKey (dig "schema" "openAPIV3Schema" "properties" "status" "properties" dict .) "machine") }}true{{ end }}
{{- end }}
{{- end }}

{{/* All CRDs of the controllers that are switched on, as a JSON object by path; see phasegate.crd. */}}
{{- define "phasegate.crds" -}}
{{- $of := dict "datastoremigration" "migration.projectcalico.org" "mcpserver" "toolhive.stacklok.dev" }}
{{- $crds := dict }}
{{- range $controller := prepend (include "phasegate.controllers" . | fromJsonArray) "" }}
{{- $group := ternary "phasegate.dev" (get $of $controller) (eq $controller "") }}
{{- if $group }}
{{- range $path, $_ := $.Files.Glob (printf "files/crds/%s_*.yaml" $group) }}
{{- $_ := set $crds $path (include "phasegate.crd" (list $ $path $controller) | fromJson) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $crds }}
{{- end }}

{{- define "phasegate.validateCRDs" }}
{{- if and (not .Values.crds.keep) (ne .Values.crds.install "always") }}
{{- fail (printf "crds.keep: with crds.install=%s the CRDs stay on `helm uninstall`, since Helm does not ask then whose they are: set crds.install=always, if they are yours to delete" .Values.crds.install) }}
{{- end }}
{{- range $path, $crd := include "phasegate.crds" . | fromJson }}
{{- with $crd.risk }}{{ fail . }}{{ end }}
{{- end }}
{{- end }}

{{/*
Whether the API server has ValidatingAdmissionPolicy; where there is none to ask, as in `helm template`, it is taken
to have it, as every one that the chart supports has by default. Returns true or nothing.
*/}}
{{- define "phasegate.servesPolicies" -}}
{{- $asks := lookup "v1" "Namespace" "" "kube-system" }}
{{- if or (not $asks) (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") }}true{{ end }}
{{- end }}
