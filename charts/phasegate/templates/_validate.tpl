{{/*
Refuses values that could be rendered and would not work. What a single value may
be is said in values.schema.json. Each message: the value, what is wrong, what to do.
*/}}
{{- define "phasegate.validate" }}
{{- include "phasegate.validateControllers" . }}
{{- include "phasegate.validateMachines" . }}
{{- include "phasegate.validateKinds" . }}
{{- include "phasegate.validateMetrics" . }}
{{- include "phasegate.validateCRDs" . }}
{{- include "phasegate.validateProxy" . }}
{{- $lease := .Values.leaderElection }}
{{- $lasts := include "phasegate.milliseconds" $lease.leaseDuration | int }}
{{- $renews := include "phasegate.milliseconds" $lease.renewDeadline | int }}
{{- $retries := include "phasegate.milliseconds" $lease.retryPeriod | int }}
{{- if not (and (gt $lasts $renews) (gt $renews $retries)) }}
{{- fail (printf "leaderElection: leaseDuration (%s) > renewDeadline (%s) > retryPeriod (%s) must hold, else two pods could lead at a time" $lease.leaseDuration $lease.renewDeadline $lease.retryPeriod) }}
{{- end }}
{{- $pdb := .Values.podDisruptionBudget }}
{{- if and (ne (toString $pdb.minAvailable) "") (ne (toString $pdb.maxUnavailable) "") }}
{{- fail "podDisruptionBudget: minAvailable and maxUnavailable are both given: Kubernetes takes one of them" }}
{{- end }}
{{- if and .Values.networkPolicy.enabled .Values.hostNetwork }}
{{- fail "networkPolicy.enabled: no NetworkPolicy holds for pods on the host network (hostNetwork): switch one of them off" }}
{{- end }}
{{- end }}

{{/* Of a duration such as 500ms, 15s or 1m: all that the schema lets through. */}}
{{- define "phasegate.milliseconds" }}
{{- $unit := regexFind "[a-z]+$" . }}
{{- mul (trimSuffix $unit . | int) (get (dict "ms" 1 "s" 1000 "m" 60000) $unit) }}
{{- end }}

{{- define "phasegate.validateControllers" }}
{{- if not (include "phasegate.controllers" . | fromJsonArray) }}
{{- fail "controllers: all are off, so that this release would run nothing: switch one of them on (controllers.NAME.enabled), or use helm uninstall" }}
{{- end }}
{{- include "phasegate.validateReleases" . }}
{{- $accounts := dict }}
{{- range $controller := include "phasegate.controllers" . | fromJsonArray }}
{{- $account := (get $.Values.controllers $controller).serviceAccount }}
{{- if not (or $account.create $account.name) }}
{{- fail (printf "controllers.%s.serviceAccount: give the name of the account that exists, or let create be true" $controller) }}
{{- end }}
{{- $name := include "phasegate.serviceAccountName" (list $ $controller) }}
{{- if hasKey $accounts $name }}
{{- fail (printf "controllers.%s.serviceAccount.name: %q is the account of %s as well, so each would have the rights of both: name another" $controller $name (get $accounts $name)) }}
{{- end }}
{{- $_ := set $accounts $name $controller }}
{{- end }}
{{- end }}

{{/*
Two releases with one controller would drive the same objects. Machines of one's own are different ones in each
release. Helm's lookup answers nothing in `helm template`: then the managers find out, and say so.
*/}}
{{- define "phasegate.validateReleases" }}
{{- range $other := (lookup "apps/v1" "Deployment" "" "").items | default list }}
{{- $labels := dig "metadata" "labels" dict $other | default dict }}
{{- $controller := get $labels "app.kubernetes.io/component" }}
{{- $instance := get $labels "app.kubernetes.io/instance" }}
{{- $itself := and (eq $instance $.Release.Name) (eq $other.metadata.namespace $.Release.Namespace) }}
{{- if and (eq (get $labels "app.kubernetes.io/part-of") "phasegate") (has $controller (list "datastoremigration" "mcpserver")) (not $itself) }}
{{- if (get $.Values.controllers $controller).enabled }}
{{- fail (printf "controllers.%s.enabled: the release %s in namespace %s runs this controller already, and both would drive the same objects: uninstall that one, or switch the controller off in one of them" $controller $instance $other.metadata.namespace) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "phasegate.validateMachines" }}
{{- $shipped := list }}
{{- range $path, $_ := .Files.Glob "files/machines/*.yaml" }}
{{- $shipped = append $shipped (base $path | trimSuffix ".yaml") }}
{{- end }}
{{- range $name, $_ := .Values.machines.override }}
{{- if not (has $name $shipped) }}
{{- fail (printf "machines.override.%s: there is no shipped machine of that name, but: %s" $name (join ", " $shipped)) }}
{{- end }}
{{- end }}
{{- $files := dict }}
{{- $others := list }}
{{- range $file, $text := .Values.machines.files }}
{{- if not (regexMatch "^[A-Za-z0-9_-][A-Za-z0-9_.-]*\\.yaml$" $file) }}
{{- fail (printf "machines.files.%s: managers read only files whose name ends in .yaml and does not begin with a dot" $file) }}
{{- end }}
{{- $machine := fromYaml $text }}
{{- with $machine.Error }}
{{- fail (printf "machines.files.%s: %s" $file .) }}
{{- end }}
{{- $name := dig "metadata" "name" "" $machine }}
{{- if or (ne (get $machine "kind") "Machine") (not $name) }}
{{- fail (printf "machines.files.%s: not a machine: it needs `kind: Machine` and a metadata.name" $file) }}
{{- end }}
{{- if hasKey $files $name }}
{{- fail (printf "machines.files.%s: machine %q is in %s too: a machine is one file" $file $name (get $files $name)) }}
{{- end }}
{{- $_ := set $files $name $file }}
{{- if hasKey $.Values.machines.override $name }}
{{- fail (printf "machines.files.%s: machine %q is in machines.override too: change the file instead" $file $name) }}
{{- end }}
{{- if not (has $name $shipped) }}{{ $others = append $others $file }}{{ end }}
{{- end }}
{{- if and $others (not .Values.controllers.custom.enabled) }}
{{- fail (printf "machines.files.%s: nobody would run it: set controllers.custom.enabled=true, or name the shipped machine that it is to replace (%s)" (first $others) (join ", " $shipped)) }}
{{- end }}
{{- if and .Values.controllers.custom.enabled (not $others) }}
{{- fail "controllers.custom.enabled: it has nothing to run: add a machine of a kind of your own to machines.files" }}
{{- end }}
{{- end }}

{{- define "phasegate.validateKinds" }}
{{- if and .Values.kinds.extra .Values.kinds.file }}
{{- fail "kinds: extra adds to the shipped registry and file replaces it: give one of them" }}
{{- end }}
{{- if and (or .Values.kinds.extra .Values.kinds.file) (not .Values.controllers.datastoremigration.enabled) }}
{{- fail "kinds: only controllers.datastoremigration reads it, which is switched off" }}
{{- end }}
{{- $registry := include "phasegate.kinds" . | fromYaml }}
{{- with $registry.Error }}
{{- fail (printf "kinds: the registry cannot be read: %s" .) }}
{{- end }}
{{- if ne (get $registry "kind") "KindRegistry" }}
{{- fail "kinds.file: not a registry: it needs `kind: KindRegistry`; files/kinds.yaml is an example" }}
{{- end }}
{{- $seen := list }}
{{- range dig "spec" "kinds" list $registry }}
{{- if has .kind $seen }}
{{- fail (printf "kinds: kind %s is in the registry twice: to change a shipped kind, copy files/kinds.yaml into kinds.file and edit it" .kind) }}
{{- end }}
{{- $seen = append $seen .kind }}
{{- end }}
{{- end }}

{{- define "phasegate.validateProxy" }}
{{- $image := .Values.toolhiveProxyImage }}
{{- if eq (include "phasegate.proxy" .) "toolhive" }}
{{- if not $image.repository }}
{{- fail "proxy: toolhive needs the image of ToolHive's proxyrunner: give toolhiveProxyImage.repository" }}
{{- end }}
{{- if not (or $image.tag $image.digest) }}
{{- fail "toolhiveProxyImage: it has neither tag nor digest, and the chart's version is none of ToolHive's: give one of them" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "phasegate.validateMetrics" }}
{{- $metrics := .Values.metrics }}
{{- if and $metrics.certSecret (not $metrics.secure) }}
{{- fail "metrics.certSecret: it is not used with metrics.secure=false" }}
{{- end }}
{{- range $value := list "serviceMonitor" "prometheusRule" "dashboard" }}
{{- if (get $metrics $value).enabled }}
{{- if not $metrics.enabled }}
{{- fail (printf "metrics.%s.enabled: there are no metrics with metrics.enabled=false" $value) }}
{{- end }}
{{- /* Not left out in silence: who asked for alerts believes to have them. */}}
{{- if and (ne $value "dashboard") (not ($.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}
{{- fail (printf "metrics.%s.enabled: the cluster does not serve monitoring.coreos.com/v1: install the Prometheus operator first; `helm template` is told with --api-versions monitoring.coreos.com/v1" $value) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
