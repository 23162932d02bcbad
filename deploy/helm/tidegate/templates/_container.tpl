{{/* The container of each mode: command, variables and mounts. */}}

{{- define "tidegate.command" -}}
{{- $drain := list "--drain-delay" (.Values.drain.delay | toString) "--drain-timeout" (.Values.drain.timeout | toString) }}
{{- if eq .Values.mode "ratelimit" -}}
command: [/bin/ratelimit]
args: {{ concat $drain .Values.args | toJson }}
{{- else -}}
command: [/bin/tidegate]
args: {{ concat (list "run" "-c" "/etc/tidegate/tidegate.yaml") $drain .Values.args | toJson }}
{{- end }}
{{- end }}

{{/* Without variables of Services, which could have the names of the program's own. */}}
{{- define "tidegate.environment" -}}
{{- with include "tidegate.redisUrl" . }}
- { name: REDIS_URL, value: {{ quote . }} }
{{- end }}
{{- if eq .Values.mode "ratelimit" }}
- { name: REDIS_SOCKET_TYPE, value: tcp }
{{- if .Values.existingSecret }}
- name: REDIS_AUTH
  valueFrom: { secretKeyRef: { name: {{ .Values.existingSecret }}, key: redis-password, optional: true } }
{{- end }}
- { name: RUNTIME_ROOT, value: /data }
- { name: RUNTIME_SUBDIRECTORY, value: ratelimit }
- { name: RUNTIME_WATCH_ROOT, value: "false" }
- { name: USE_PROMETHEUS, value: "true" }
- { name: PROMETHEUS_ADDR, value: ":9901" }
- { name: HOST, value: 127.0.0.1 } # `POST /json` has no TLS and no tokens
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tidegate.mounts" -}}
- { name: rules, mountPath: {{ eq .Values.mode "ratelimit" | ternary "/data/ratelimit/config" "/etc/tidegate" }}, readOnly: true }
{{- if .Values.existingSecret }}
- { name: secrets, mountPath: /run/secrets/tidegate, readOnly: true }
{{- end }}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Settings that a reload does not apply (docs/operations.md): the admin address, `metrics`, and an access log that is
     turned on or off. A change of these restarts the pods. Empty in mode `ratelimit`, whose settings are variables. */}}
{{- define "tidegate.restartChecksum" -}}
{{- if eq .Values.mode "gateway" }}
{{- $rules := fromYaml .Values.rules }}
{{- $log := $rules.access_log }}
{{- if kindIs "map" $log }}{{ $log = $log.path }}{{ end }}
{{- $isLogged := not (has (toString $log) (list "off" "false" "<nil>")) }}
{{- $admin := $rules.admin }}
{{- if kindIs "map" $admin }}{{ $admin = $admin.address }}{{ end }}
{{- dict "admin" $admin "metrics" $rules.metrics "log" $isLogged | toJson | sha256sum | trunc 16 }}
{{- end }}
{{- end }}
