{{- define "smart-router.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "smart-router.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "smart-router.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "smart-router.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What the selectors use: never changes, because a Deployment's selector cannot. */}}
{{- define "smart-router.selectorLabels" -}}
app.kubernetes.io/name: {{ include "smart-router.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "smart-router.labels" -}}
{{ include "smart-router.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* Tells the Service of the metrics from that of the API: a ServiceMonitor knows Services by their labels only. */}}
{{- define "smart-router.metricsLabels" -}}
app.kubernetes.io/component: metrics
{{- end -}}

{{- define "smart-router.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "smart-router.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "smart-router.secretName" -}}
{{- default (include "smart-router.fullname" .) .Values.secret.existingName -}}
{{- end -}}

{{/* Named after the release: two releases in one namespace, each with its own Redis, have two leaders. */}}
{{- define "smart-router.leaseName" -}}
{{- default (printf "%s-leader" (include "smart-router.fullname" .)) .Values.leaderElection.leaseName -}}
{{- end -}}

{{- define "smart-router.agentsNamespace" -}}
{{- default .Release.Namespace .Values.agents.namespace -}}
{{- end -}}

{{- define "smart-router.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* One rule of a NetworkPolicy's egress: the peers (none: any) and TCP ports. Takes {to, ports}. */}}
{{- define "smart-router.egressRule" -}}
ports:
  {{- range .ports }}
  - protocol: TCP
    port: {{ . }}
  {{- end }}
{{- with .to }}
to:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
With an autoscaler, the number that it has set: a manifest without one would make Kubernetes fall back to 1 when the
autoscaler is turned on. Its minimum where there is no Deployment yet, and where no cluster is asked (helm template).
*/}}
{{- define "smart-router.replicas" -}}
{{- $scaler := .Values.autoscaling -}}
{{- if $scaler.enabled -}}
{{- $running := lookup "apps/v1" "Deployment" .Release.Namespace (include "smart-router.fullname" .) -}}
{{- dig "spec" "replicas" 0 $running | int | max (int $scaler.minReplicas) | min (int $scaler.maxReplicas) -}}
{{- else -}}
{{- .Values.replicaCount -}}
{{- end -}}
{{- end -}}
