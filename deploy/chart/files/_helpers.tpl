{{- define "lodestone.admission" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}
{{- .Values.admission | default (ternary "policies" "webhook" $served) }}
{{- end }}
{{- define "lodestone.tag" -}}
{{- .Values.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "lodestone.kubeScheduler" -}}
{{- .Values.kubeScheduler | default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version) }}
{{- end }}
