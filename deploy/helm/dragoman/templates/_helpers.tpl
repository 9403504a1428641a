{{- define "dragoman.selector" -}}
app.kubernetes.io/name: dragoman
app.kubernetes.io/part-of: dragoman
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dragoman.labels" -}}
{{ include "dragoman.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "dragoman.config" -}}
{{ .Values.config | default (.Files.Get "files/dragoman.toml") }}
{{- end }}
