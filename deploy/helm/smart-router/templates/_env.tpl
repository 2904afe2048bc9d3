{{/* The router's environment. Secrets come by reference only; everything else is in docs/configuration.md. */}}
{{- define "smart-router.env" -}}
{{- $v := .Values -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: HTTP_HOST
  value: "0.0.0.0"
- name: HTTP_PORT
  value: "8080"
- name: METRICS_PORT
  value: "9090"
- name: SHUTDOWN_TIMEOUT
  value: {{ printf "%ds" (int $v.shutdown.shutdownTimeoutSeconds) | quote }}
- name: POD_SOURCE
  value: kubernetes
- name: NAMESPACE
  value: {{ include "smart-router.agentsNamespace" . | quote }}
- name: POD_LABEL_SELECTOR
  value: {{ $v.agents.labelSelector | quote }}
- name: LEADER_ELECTION_ENABLED
  value: {{ $v.leaderElection.enabled | quote }}
{{- if $v.leaderElection.enabled }}
- name: LEADER_ELECTION_LOCK_NAME
  value: {{ include "smart-router.leaseName" . | quote }}
# The namespace of the routers, not of the agents.
- name: LEADER_ELECTION_NAMESPACE
  value: {{ .Release.Namespace | quote }}
- name: LEADER_ELECTION_DURATION
  value: {{ printf "%vs" $v.leaderElection.leaseDurationSeconds | quote }}
- name: LEADER_ELECTION_RENEW_DEADLINE
  value: {{ printf "%vs" $v.leaderElection.renewDeadlineSeconds | quote }}
- name: LEADER_ELECTION_RETRY_PERIOD
  value: {{ printf "%vs" $v.leaderElection.retryPeriodSeconds | quote }}
- name: LEADER_LOSS
  value: {{ $v.leaderElection.onLoss | quote }}
{{- end }}
{{- with $v.tierConfig }}
- name: TIER_CONFIG
  value: {{ toJson . | quote }}
{{- end }}
{{- range $name, $value := $v.config }}
{{- if $value }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- if $v.extraCa.configMap }}
- name: NODE_EXTRA_CA_CERTS
  value: /etc/smart-router/ca/{{ $v.extraCa.key }}
{{- end }}
{{- range $name := list "REDIS_URL" "SMART_ROUTER_API_KEY" "SMART_ROUTER_ADMIN_KEY" }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ include "smart-router.secretName" $ }}
      key: {{ $name }}
{{- end }}
{{- range $name := list "TWILIO_AUTH_TOKEN" "PLIVO_AUTH_TOKEN" "EXOTEL_WEBHOOK_TOKEN" "DATABASE_URL" "ALERT_WEBHOOK_URL" "ALERT_WEBHOOK_SECRET" "PAGERDUTY_ROUTING_KEY" "RECORDS_REPORT_WEBHOOK_URL" "RECORDS_REPORT_WEBHOOK_SECRET" "OTEL_EXPORTER_OTLP_HEADERS" }}
{{- if or $v.secret.existingName (get $v.secret.data $name) }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ include "smart-router.secretName" $ }}
      key: {{ $name }}
      optional: true
{{- end }}
{{- end }}
{{- with $v.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
