{{/*
Ports of a controller. On the host network all pods of a node share one set of
ports, so each controller has its own. Takes (list $ controller), returns JSON.
*/}}
{{- define "phasegate.ports" -}}
{{- $root := index . 0 }}
{{- $offset := 0 }}
{{- if $root.Values.hostNetwork }}
{{- $offset = get (dict "datastoremigration" 0 "mcpserver" 2 "custom" 4) (index . 1) }}
{{- end }}
{{- toJson (dict "metrics" (add $root.Values.metrics.port $offset) "health" (add 8081 $offset)) }}
{{- end }}

{{/* Flags that say what a controller works with: those of the manager and of its checks. Takes (list $ controller). */}}
{{- define "phasegate.workArgs" -}}
{{- $root := index . 0 }}
{{- $controller := index . 1 -}}
- --controllers={{ $controller }}
- --phases-dir=/etc/phasegate/machines
{{- if eq $controller "datastoremigration" }}
- --kinds-file=/etc/phasegate/kinds/kinds.yaml
- --calico-namespace={{ $root.Values.controllers.datastoremigration.calicoNamespace }}
{{- with $root.Values.controllers.datastoremigration.storeQuota }}
- --store-quota={{ . }}
{{- end }}
{{- with $root.Values.controllers.datastoremigration.requestTimeout }}
- --request-timeout={{ . }}
{{- end }}
{{- else if eq $controller "mcpserver" }}
- --proxy-image={{ include "phasegate.image" (list $root $root.Values.proxyImage) }}
{{- if eq (include "phasegate.proxy" $root) "toolhive" }}
- --proxy=toolhive
- --toolhive-proxy-image={{ include "phasegate.toolhiveImage" $root }}
{{- with $root.Values.toolhiveProxyImage.version }}
- --toolhive-proxy-version={{ . }}
{{- end }}
{{- end }}
- {{ printf "--proxy-resources=%s" (toJson $root.Values.proxyResources) | quote }}
{{- if ne (toString $root.Values.openshift) "auto" }}
- --openshift={{ $root.Values.openshift }}
{{- end }}
{{- end }}
- --log-format={{ $root.Values.logging.format }}
- --log-level={{ $root.Values.logging.level }}
{{- end }}

{{/* Flags of the process, whatever it works on, for which its account needs rights. Takes (list $ controller). */}}
{{- define "phasegate.processArgs" -}}
{{- $root := index . 0 }}
{{- $controller := index . 1 -}}
- --leader-elect
- --leader-elect-namespace={{ $root.Release.Namespace }}
- --leader-elect-lease-name={{ include "phasegate.fullname" $root }}-{{ $controller }}
- --leader-elect-lease-duration={{ $root.Values.leaderElection.leaseDuration }}
- --leader-elect-renew-deadline={{ $root.Values.leaderElection.renewDeadline }}
- --leader-elect-retry-period={{ $root.Values.leaderElection.retryPeriod }}
{{- if $root.Values.metrics.enabled }}
- --metrics-bind-address=:{{ (include "phasegate.ports" . | fromJson).metrics }}
- --metrics-secure={{ $root.Values.metrics.secure }}
{{- if and (not $root.Values.metrics.objects) (ne $controller "datastoremigration") }}
- --object-metrics=false
{{- end }}
{{- else }}
- --metrics-bind-address=0
{{- end }}
{{- end }}

{{- define "phasegate.workMounts" -}}
{{- $root := index . 0 -}}
- name: machines
  mountPath: /etc/phasegate/machines
  readOnly: true
{{- if eq (index . 1) "datastoremigration" }}
- name: kinds
  mountPath: /etc/phasegate/kinds
  readOnly: true
{{- end }}
{{- end }}

{{- define "phasegate.workVolumes" -}}
{{- $fullname := include "phasegate.fullname" (index . 0) -}}
- name: machines
  configMap:
    name: {{ $fullname }}-machines
{{- if eq (index . 1) "datastoremigration" }}
- name: kinds
  configMap:
    name: {{ $fullname }}-kinds
{{- end }}
{{- end }}

{{/* "true" where the cluster chooses the user and groups of pods. */}}
{{- define "phasegate.openshift" -}}
{{- if eq (toString .Values.openshift) "auto" }}
{{- .Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- else }}
{{- .Values.openshift }}
{{- end }}
{{- end }}

{{/* What any pod of the chart says about itself. Takes (list $ controller). */}}
{{- define "phasegate.podSettings" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ include "phasegate.serviceAccountName" . }}
automountServiceAccountToken: true
securityContext:
  runAsNonRoot: true
  {{- if ne (include "phasegate.openshift" $root) "true" }}
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if $root.Values.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- with $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "phasegate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
