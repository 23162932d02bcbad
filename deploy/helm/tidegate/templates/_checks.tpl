{{/* Values that a schema cannot check. Each failure names the value and what to write. */}}

{{- define "tidegate.checks" -}}
{{- range $name, $text := (eq .Values.mode "ratelimit" | ternary .Values.descriptors (merge (dict "rules" .Values.rules) .Values.files)) }}
{{- include "tidegate.rejectSecrets" (dict "name" $name "text" $text) }}
{{- end }}
{{- if regexMatch "://[^/@]*:[^/@]*@" .Values.store.url }}
{{- fail "store.url has a password: put it into existingSecret" }}
{{- end }}
{{- if eq .Values.mode "ratelimit" }}{{ include "tidegate.checkRatelimit" . }}
{{- else }}{{ include "tidegate.checkRules" . }}
{{- end }}
{{- end }}

{{/* Fails if a line of a file has a secret instead of a placeholder or the path of a file. */}}
{{- define "tidegate.rejectSecrets" -}}
{{- $name := .name }}
{{- range $index, $line := splitList "\n" .text }}
{{- if not (regexMatch "^\\s*#" $line) }}
{{- $isKey := regexMatch "(^|[\\s{,\"'])(password|key_secret)[\"']?\\s*:\\s*[\"']?[^\\s\"'$#]" $line }}
{{- $isUrl := regexMatch "://[^/\\s\"'@]*:[^/\\s\"'@$]+@" $line }}
{{- $isToken := regexMatch "(?i)authorization[\"']?\\s*:\\s*[\"']?(bearer|basic)\\s+[^\\s$]" $line }}
{{- if or $isKey $isUrl $isToken }}
{{- fail (printf "%s has a secret in line %d, and a ConfigMap is readable: put it into existingSecret and write ${file:/run/secrets/tidegate/KEY}" $name (add1 $index)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tidegate.checkRules" -}}
{{- if and .Values.store.url (not (contains "://" .Values.store.url)) }}
{{- fail "store.url has no scheme: write redis://HOST:PORT, or rediss:// for TLS" }}
{{- end }}
{{- $rules := fromYaml .Values.rules }}
{{- if hasKey $rules "Error" }}{{ fail (printf "rules is not valid YAML: %s" $rules.Error) }}{{ end }}
{{- $admin := kindIs "map" $rules.admin | ternary (dig "address" "" (kindIs "map" $rules.admin | ternary $rules.admin dict)) $rules.admin | toString }}
{{- if or (not (hasSuffix ":9901" $admin)) (hasPrefix "127." $admin) (hasPrefix "localhost" $admin) }}
{{- fail "rules has no admin listener for probes: write `admin: 0.0.0.0:9901`, or a map with this address" }}
{{- end }}
{{- range .Values.listeners }}
{{- if not (regexMatch (printf ":%d\\b" (int .port)) (toJson (list $rules.listen $rules.service))) }}
{{- fail (printf "listeners has port %d, and neither `listen` nor `service` in rules has" (int .port)) }}
{{- end }}
{{- end }}
{{- include "tidegate.checkStore" (dict "root" . "store" ($rules.store | default "memory")) }}
{{- end }}

{{/* Each pod has its own limits in memory, so several pods grant each limit several times. */}}
{{- define "tidegate.checkStore" -}}
{{- $url := kindIs "map" .store | ternary (dig "url" "" (kindIs "map" .store | ternary .store dict)) .store | toString }}
{{- $redis := include "tidegate.redisUrl" .root }}
{{- if and (contains "${REDIS_URL}" $url) (not $redis) }}
{{- fail "rules uses ${REDIS_URL}: set store.url, or redis.enabled" }}
{{- end }}
{{- $isMemory := or (eq $url "memory") (and (contains "REDIS_URL:-memory" $url) (not $redis)) }}
{{- if and $isMemory (or .root.Values.autoscaling.enabled (gt (int .root.Values.replicas) 1)) }}
{{- fail "several pods with limits in memory grant each limit several times: set store.url, or redis.enabled, and use ${REDIS_URL} in rules" }}
{{- end }}
{{- end }}

{{- define "tidegate.checkRatelimit" -}}
{{- if not (include "tidegate.redisUrl" .) }}
{{- fail "mode ratelimit needs a Redis: set store.url, or redis.enabled" }}
{{- end }}
{{- $isXds := false }}
{{- range .Values.env }}{{ if eq .name "CONFIG_TYPE" }}{{ $isXds = eq (toString .value) "GRPC_XDS_SOTW" }}{{ end }}{{ end }}
{{- if and (not .Values.descriptors) (not $isXds) }}
{{- fail "mode ratelimit needs descriptors, or CONFIG_TYPE=GRPC_XDS_SOTW in env" }}
{{- end }}
{{- end }}
