{{/* The name of the chart's objects: the release, and the chart unless the release's name has it. */}}
{{- define "tailhold.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tailhold.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "tailhold.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* A scalar as text. YAML reads numbers as floats, and 1048576 must not become 1.048576e+06. */}}
{{- define "tailhold.text" -}}
{{- if kindIs "invalid" . -}}
{{- else if and (kindIs "float64" .) (eq (floor .) (float64 .)) (lt (float64 .) 1e15) (gt (float64 .) -1e15) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* A map of labels, annotations or node labels, every value quoted. */}}
{{- define "tailhold.texts" -}}
{{- range $key, $value := . }}
{{ $key | quote }}: {{ include "tailhold.text" $value | quote }}
{{- end }}
{{- end -}}

{{/* Environment variables, every value quoted. */}}
{{- define "tailhold.env" -}}
{{- range . }}
- name: {{ .name | quote }}
  {{- if hasKey . "valueFrom" }}
  valueFrom: {{- toYaml .valueFrom | nindent 4 }}
  {{- else }}
  value: {{ include "tailhold.text" .value | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "tailhold.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: "operator"
{{- end -}}

{{- define "tailhold.labels" -}}
{{- include "tailhold.labelsAnd" (dict "root" . "more" dict) -}}
{{- end -}}

{{/* The labels of every object and more, ours winning: call with (dict "root" $ "more" .Values.podLabels). */}}
{{- define "tailhold.labelsAnd" -}}
{{- $ours := include "tailhold.selectorLabels" .root | fromYaml -}}
{{- $ours = merge $ours (dict
  "app.kubernetes.io/part-of" "tailhold"
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_")
) .more .root.Values.labels -}}
{{- include "tailhold.texts" $ours | trim -}}
{{- end -}}

{{/* An image's name: call with (dict "image" .Values.image "root" $). A digest wins over a tag. */}}
{{- define "tailhold.image" -}}
{{- $registry := .root.Values.global.imageRegistry | default .image.registry -}}
{{- $name := ternary .image.repository (printf "%s/%s" $registry .image.repository) (empty $registry) -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The names of all pull secrets, as a JSON list. */}}
{{- define "tailhold.pullSecrets" -}}
{{- $names := list -}}
{{- range concat .Values.global.imagePullSecrets .Values.imagePullSecrets }}{{ $names = append $names .name }}{{ end -}}
{{- $names | uniq | toJson -}}
{{- end -}}

{{/* What the operator adds to the pods that it starts, as JSON. */}}
{{- define "tailhold.serverExtra" -}}
{{- $env := list -}}
{{- range .Values.server.extraEnv -}}
{{- if hasKey . "valueFrom" -}}
{{- $env = append $env (dict "name" .name "valueFrom" .valueFrom) -}}
{{- else -}}
{{- $env = append $env (dict "name" .name "value" (include "tailhold.text" .value)) -}}
{{- end -}}
{{- end -}}
{{- dict "volumes" .Values.server.extraVolumes "volumeMounts" .Values.server.extraVolumeMounts "env" $env | toJson -}}
{{- end -}}

{{- define "tailhold.probe" -}}
initialDelaySeconds: {{ .initialDelaySeconds | int64 }}
periodSeconds: {{ .periodSeconds | int64 }}
timeoutSeconds: {{ .timeoutSeconds | int64 }}
failureThreshold: {{ .failureThreshold | int64 }}
{{- end -}}
