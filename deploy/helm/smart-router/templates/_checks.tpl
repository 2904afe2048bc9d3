{{/*
Checks that the schema cannot express: values that are valid alone and wrong together. Helm prints all problems at once,
one line each, with the names of the values file.
*/}}
{{- define "smart-router.checks" -}}
{{- $problems := list -}}
{{- $v := .Values -}}
{{- $data := $v.secret.data -}}
{{- $several := or $v.autoscaling.enabled (gt (int $v.replicaCount) 1) -}}

{{- if not $v.image.repository -}}
{{- $problems = append $problems "image.repository is empty: build the image (docker build -t REGISTRY/smart-router:TAG .), push it, and name it here" -}}
{{- end -}}
{{- if not (get $v.config "VOICE_AGENT_BASE_URL") -}}
{{- $problems = append $problems "config.VOICE_AGENT_BASE_URL is empty: set it to the address for the audio of calls, e.g. wss://voice.example.com" -}}
{{- end -}}

{{- if not $v.secret.existingName -}}
  {{- if not $data.REDIS_URL -}}
  {{- $problems = append $problems "no Redis: set secret.existingName to a Secret with the key REDIS_URL, or secret.data.REDIS_URL" -}}
  {{- else if eq (lower $data.REDIS_URL) "embedded" -}}
  {{- $problems = append $problems "secret.data.REDIS_URL=embedded cannot be used here: every replica, and during a roll also the new one, would have a store of its own and give the same pod to two calls" -}}
  {{- else if $v.networkPolicy.enabled -}}
    {{- $servers := regexReplaceAll "^[^:]+://([^/@]*@)?" $data.REDIS_URL "" | splitList "/" | first -}}
    {{- range regexFindAll ":[0-9]+(,|\\?|$)" $servers -1 -}}
      {{- $port := regexFind "[0-9]+" . | int -}}
      {{- $known := false -}}
      {{- range $v.networkPolicy.egress.redis.ports -}}{{- if eq (int .) $port -}}{{- $known = true -}}{{- end -}}{{- end -}}
      {{- if not $known -}}
      {{- $problems = append $problems (printf "REDIS_URL uses port %d, which the NetworkPolicy forbids: add it to networkPolicy.egress.redis.ports" $port) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- range $key := list "SMART_ROUTER_API_KEY" "SMART_ROUTER_ADMIN_KEY" -}}
    {{- if not (get $data $key) -}}
    {{- $problems = append $problems (printf "no %s: set secret.existingName to a Secret with this key, or secret.data.%s (openssl rand -hex 24)" $key $key) -}}
    {{- else if lt (len (get $data $key)) 16 -}}
    {{- $problems = append $problems (printf "secret.data.%s has fewer than 16 characters (openssl rand -hex 24)" $key) -}}
    {{- end -}}
  {{- end -}}
  {{- if and $data.SMART_ROUTER_API_KEY (eq $data.SMART_ROUTER_API_KEY $data.SMART_ROUTER_ADMIN_KEY) -}}
  {{- $problems = append $problems "secret.data.SMART_ROUTER_ADMIN_KEY equals SMART_ROUTER_API_KEY: every voice agent would be an operator" -}}
  {{- end -}}
  {{- if and $data.DATABASE_URL $v.networkPolicy.enabled (not $v.networkPolicy.egress.postgres.enabled) -}}
  {{- $problems = append $problems "secret.data.DATABASE_URL is set, but the NetworkPolicy forbids Postgres: set networkPolicy.egress.postgres.enabled" -}}
  {{- end -}}
  {{- range $key := list "ALERT_WEBHOOK_URL" "PAGERDUTY_ROUTING_KEY" "RECORDS_REPORT_WEBHOOK_URL" -}}
    {{- if and (get $data $key) $v.networkPolicy.enabled (not $v.networkPolicy.egress.web.enabled) -}}
    {{- $problems = append $problems (printf "secret.data.%s is set, but the NetworkPolicy forbids connections to the web: set networkPolicy.egress.web.enabled" $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- $election := $v.leaderElection -}}
{{- if le (float64 $election.leaseDurationSeconds) (float64 $election.renewDeadlineSeconds) -}}
{{- $problems = append $problems (printf "leaderElection.leaseDurationSeconds (%v) must be longer than renewDeadlineSeconds (%v), or two replicas lead at once" $election.leaseDurationSeconds $election.renewDeadlineSeconds) -}}
{{- end -}}
{{- if le (mulf (float64 $election.renewDeadlineSeconds) 10.0) (mulf (float64 $election.retryPeriodSeconds) 12.0) -}}
{{- $problems = append $problems (printf "leaderElection.renewDeadlineSeconds (%v) must be longer than 1.2 * retryPeriodSeconds (%v), or one lost request ends a term" $election.renewDeadlineSeconds $election.retryPeriodSeconds) -}}
{{- end -}}
{{- if and (not $election.enabled) $several -}}
{{- $problems = append $problems "leaderElection.enabled is false with more than one replica: each would take the pools from the others; set replicaCount to 1 and autoscaling.enabled to false, or turn the election on" -}}
{{- end -}}

{{- /* Missing values have the router's own defaults. The router checks the other relations when it starts. */ -}}
{{- $lease := get $v.config "LEASE_TTL" | default "15m" -}}
{{- $sweep := get $v.config "CLEANUP_INTERVAL" | default "30s" -}}
{{- $memory := get $v.config "CALL_INFO_TTL" | default "1h" -}}
{{- $noShow := get $v.config "NO_SHOW_TIMEOUT" | default "off" -}}
{{- $leaseMs := include "smart-router.milliseconds" $lease | float64 -}}
{{- if lt (include "smart-router.milliseconds" $memory | float64) (addf $leaseMs (mulf 2.0 (include "smart-router.milliseconds" $sweep | float64))) -}}
{{- $problems = append $problems (printf "config.CALL_INFO_TTL (%s) must be at least LEASE_TTL (%s) + 2 * CLEANUP_INTERVAL (%s), or a call is forgotten before the sweep ends it" $memory $lease $sweep) -}}
{{- end -}}
{{- if ge (include "smart-router.milliseconds" $noShow | float64) $leaseMs -}}
{{- $problems = append $problems (printf "config.NO_SHOW_TIMEOUT (%s) must be shorter than LEASE_TTL (%s), or off" $noShow $lease) -}}
{{- end -}}

{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- $problems = append $problems "autoscaling.minReplicas is greater than maxReplicas" -}}
{{- end -}}
{{- if $v.ingress.enabled -}}
  {{- if not $v.ingress.host -}}
  {{- $problems = append $problems "ingress.enabled without ingress.host: set it to the name that the providers call" -}}
  {{- end -}}
  {{- if not (or (get $v.config "PUBLIC_URL") (get $v.config "TRUST_PROXY")) -}}
  {{- $problems = append $problems "ingress.enabled without config.PUBLIC_URL (or TRUST_PROXY): behind a proxy every provider signature would be wrong" -}}
  {{- end -}}
  {{- $called := regexReplaceAll "^https?://([^/@]*@)?([^/:?#]*).*$" (get $v.config "PUBLIC_URL" | default "") "${2}" | lower -}}
  {{- if and $called $v.ingress.host (ne $called (lower $v.ingress.host)) -}}
  {{- $problems = append $problems (printf "ingress.host (%s) is not the name in config.PUBLIC_URL (%s): providers sign the address they call, so every signature would be wrong" $v.ingress.host $called) -}}
  {{- end -}}
{{- end -}}

{{- $own := include "smart-router.ownVariables" . | fromYamlArray -}}
{{- range $v.extraEnv -}}
  {{- if has .name $own -}}
  {{- $problems = append $problems (printf "extraEnv sets %s, which the chart sets itself: use the value that the comments in values.yaml name" .name) -}}
  {{- end -}}
{{- end -}}

{{- /* The result of a duplicate key in one map is undefined. */ -}}
{{- range $key, $_ := include "smart-router.selectorLabels" . | fromYaml -}}
  {{- if hasKey $v.podLabels $key -}}
  {{- $problems = append $problems (printf "podLabels sets %s, by which Deployment and Services know their pods: leave it out (nameOverride changes the name)" $key) -}}
  {{- end -}}
{{- end -}}
{{- range $key := list "kubectl.kubernetes.io/default-container" "checksum/secret" -}}
  {{- if hasKey $v.podAnnotations $key -}}
  {{- $problems = append $problems (printf "podAnnotations sets %s, which the chart sets itself: leave it out" $key) -}}
  {{- end -}}
{{- end -}}
{{- range $key, $_ := include "smart-router.labels" . | fromYaml -}}
  {{- if hasKey $v.serviceMonitor.labels $key -}}
  {{- $problems = append $problems (printf "serviceMonitor.labels sets %s, which the chart sets itself: leave it out" $key) -}}
  {{- end -}}
  {{- if hasKey $v.prometheusRule.labels $key -}}
  {{- $problems = append $problems (printf "prometheusRule.labels sets %s, which the chart sets itself: leave it out" $key) -}}
  {{- end -}}
{{- end -}}

{{- if $problems -}}
{{- fail (printf "\n\nsmart-router cannot be installed like this:\n  - %s\n" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end -}}

{{/* A duration as the schema allows it (15m, 1h30m, 1.5s) in milliseconds; `off` and `0` are 0. */}}
{{- define "smart-router.milliseconds" -}}
{{- $units := dict "ns" 0.000001 "us" 0.001 "ms" 1.0 "s" 1000.0 "m" 60000.0 "h" 3600000.0 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 -}}
{{- $sum = addf $sum (mulf (regexFind "[0-9.]+" . | float64) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* Set by the chart, from other values or from the Secret. */}}
{{- define "smart-router.ownVariables" -}}
- HTTP_HOST
- HTTP_PORT
- METRICS_PORT
- POD_NAME
- POD_SOURCE
- NAMESPACE
- POD_LABEL_SELECTOR
- SHUTDOWN_TIMEOUT
- TIER_CONFIG
- LEADER_ELECTION_ENABLED
- LEADER_ELECTION_LOCK_NAME
- LEADER_ELECTION_NAMESPACE
- LEADER_ELECTION_DURATION
- LEADER_ELECTION_RENEW_DEADLINE
- LEADER_ELECTION_RETRY_PERIOD
- LEADER_LOSS
- NODE_EXTRA_CA_CERTS
- REDIS_URL
- SMART_ROUTER_API_KEY
- SMART_ROUTER_ADMIN_KEY
- TWILIO_AUTH_TOKEN
- PLIVO_AUTH_TOKEN
- EXOTEL_WEBHOOK_TOKEN
- DATABASE_URL
- ALERT_WEBHOOK_URL
- ALERT_WEBHOOK_SECRET
- PAGERDUTY_ROUTING_KEY
- RECORDS_REPORT_WEBHOOK_URL
- RECORDS_REPORT_WEBHOOK_SECRET
- OTEL_EXPORTER_OTLP_HEADERS
{{- end -}}
