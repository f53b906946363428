{{/* How pods come to the extender, and who makes certificates: job, cert-manager or second. */}}
{{- define "lodestone.scheduling" -}}
{{- if eq .Values.scheduler "second" }}second{{ else }}{{ .Values.certificates }}{{ end }}
{{- end }}
{{- define "lodestone.tag" -}}
{{- .Values.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "lodestone.kubeScheduler" -}}
{{- .Values.kubeScheduler | default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version) }}
{{- end }}
