{{- define "elasticdl.labels" -}}
app.kubernetes.io/name: elasticdl
app.kubernetes.io/component: operator
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "elasticdl.monitors" -}}
{{- $has := .Capabilities.APIVersions.Has "monitoring.coreos.com/v1/ServiceMonitor" -}}
{{- if eq (toString .Values.serviceMonitor.enabled) "auto" }}{{ ternary "yes" "" $has }}{{ else if .Values.serviceMonitor.enabled }}yes{{ end }}
{{- end }}
{{- /* The namespaces in which a policy applies, for its binding. */ -}}
{{- define "elasticdl.matched" -}}
{{- with .Values.namespaces -}}
matchResources:
  namespaceSelector:
    matchExpressions:
      - {key: kubernetes.io/metadata.name, operator: In, values: [{{ join ", " . }}]}
{{- end }}
{{- end }}
