{{/*
Lays a map over another, in place: maps are merged, everything else is replaced.
Not mergeOverwrite, for which false and 0 are no values. Takes (list base over).
*/}}
{{- define "phasegate.lay" }}
{{- $base := index . 0 }}
{{- range $key, $value := index . 1 }}
{{- if and (kindIs "map" $value) (kindIs "map" (get $base $key)) }}
{{- include "phasegate.lay" (list (get $base $key) $value) }}
{{- else }}
{{- $_ := set $base $key $value }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Lays a map by name over a list of objects. An object's name is that of the first
of the keys that it has. Takes (list objects over keys where).
*/}}
{{- define "phasegate.layByName" }}
{{- $objects := index . 0 }}
{{- $keys := index . 2 }}
{{- $where := index . 3 }}
{{- range $name, $over := index . 1 }}
{{- $known := list }}
{{- $found := false }}
{{- range $object := $objects }}
{{- $is := "" }}
{{- range $key := $keys }}{{ $is = $is | default (get $object $key) }}{{ end }}
{{- $known = append $known $is }}
{{- if eq $is $name }}
{{- $found = true }}
{{- $steps := get $over "steps" }}
{{- if kindIs "map" $steps }}
{{- include "phasegate.layByName" (list (get $object "steps" | default list) $steps (list "name" "action") (printf "%s.%s.steps" $where $name)) }}
{{- include "phasegate.lay" (list $object (omit $over "steps")) }}
{{- else }}
{{- include "phasegate.lay" (list $object $over) }}
{{- end }}
{{- end }}
{{- end }}
{{- if not $found }}
{{- fail (printf "%s.%s: there is nothing of that name, but: %s" $where $name (join ", " (compact $known))) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The shipped machine of a name, with machines.override laid over it. Takes (list $ name). */}}
{{- define "phasegate.machine" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $text := $root.Files.Get (printf "files/machines/%s.yaml" $name) }}
{{- $over := get $root.Values.machines.override $name }}
{{- if $over }}
{{- $where := printf "machines.override.%s" $name }}
{{- $machine := fromYaml $text }}
{{- include "phasegate.layByName" (list $machine.spec.phases ($over.phases | default dict) (list "name") (printf "%s.phases" $where)) }}
{{- include "phasegate.lay" (list $machine.spec (omit $over "phases")) -}}
# {{ $name }}, with {{ $where }} laid over it.
{{ toYaml $machine }}
{{- else }}
{{- $text }}
{{- end }}
{{- end }}

{{/* The kinds of files/kinds.yaml and kinds.extra, or kinds.file instead. */}}
{{- define "phasegate.kinds" -}}
{{- if .Values.kinds.file }}
{{- .Values.kinds.file }}
{{- else }}
{{- .Files.Get "files/kinds.yaml" | trimSuffix "\n" }}
{{- with .Values.kinds.extra }}
  # kinds.extra
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Which user writes the states of each machine, as a JSON object by the name of the machine. */}}
{{- define "phasegate.stateWriters" -}}
{{- $of := dict "datastore-migration" "datastoremigration" "mcpserver" "mcpserver" }}
{{- range $file, $text := .Values.machines.files }}
{{- $name := (fromYaml $text).metadata.name }}
{{- if not (hasKey $of $name) }}{{ $_ := set $of $name "custom" }}{{ end }}
{{- end }}
{{- $on := include "phasegate.controllers" . | fromJsonArray }}
{{- $writers := dict }}
{{- range $machine, $controller := $of }}
{{- if has $controller $on }}
{{- $_ := set $writers $machine (printf "system:serviceaccount:%s:%s" $.Release.Namespace (include "phasegate.serviceAccountName" (list $ $controller))) }}
{{- end }}
{{- end }}
{{- toJson $writers }}
{{- end }}

{{/* A map of texts as CEL has it. */}}
{{- define "phasegate.celMap" -}}
{{- $pairs := list }}
{{- range $key, $value := . }}{{ $pairs = append $pairs (printf "'%s': '%s'" $key $value) }}{{ end -}}
{ {{ join ", " $pairs }} }
{{- end }}
