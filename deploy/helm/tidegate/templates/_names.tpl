{{/* Names and labels of all objects. */}}

{{- define "tidegate.name" -}}
{{- if contains "tidegate" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-tidegate" (.Release.Name | trunc 41 | trimSuffix "-") }}
{{- end }}
{{- end }}

{{- define "tidegate.selector" -}}
app.kubernetes.io/name: tidegate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidegate.labels" -}}
{{ include "tidegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .Values.mode }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end }}

{{- define "tidegate.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "tidegate.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "tidegate.image" -}}
{{- if .Values.image.digest }}{{ printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* The ports for clients, as a JSON list of {name, port, servicePort}. */}}
{{- define "tidegate.listeners" -}}
{{- if eq .Values.mode "ratelimit" }}{{ list (dict "name" "grpc" "port" 8081 "servicePort" 8081) | toJson }}
{{- else }}{{ toJson .Values.listeners }}
{{- end }}
{{- end }}

{{/* The URL of Redis: the value, or that of the Redis of this chart. Empty without both. */}}
{{- define "tidegate.redisUrl" -}}
{{- if .Values.store.url }}{{ .Values.store.url }}
{{- else if .Values.redis.enabled }}{{ printf "redis://%s-redis:6379" .Release.Name }}
{{- end }}
{{- end }}
