{{- /* Names. A release called like the chart is not named twice. */ -}}
{{- define "outbox-relay.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "outbox-relay.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "outbox-relay.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "outbox-relay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: outbox-relay
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "outbox-relay.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "outbox-relay.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "outbox-relay.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "outbox-relay.providersConfigMap" -}}
{{- if not (or .Values.providers.existingConfigMap .Values.providers.accounts) -}}
{{- fail "providers.accounts or providers.existingConfigMap is needed: a relay without an account has nothing to do" -}}
{{- end -}}
{{- default (printf "%s-providers" (include "outbox-relay.fullname" .)) .Values.providers.existingConfigMap -}}
{{- end -}}

{{- define "outbox-relay.contractsConfigMap" -}}
{{- if .Values.contracts.existingConfigMap -}}
{{- .Values.contracts.existingConfigMap -}}
{{- else if .Values.contracts.files -}}
{{- printf "%s-contracts" (include "outbox-relay.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- /* How long a pod may take to stop. In flight when SIGTERM arrives: requests with at most one deadline left, and their
       write-back, retried while the ledger is away. After the lease the claim is swept in any case, so waiting longer buys
       nothing; 10 s are for the rest. */ -}}
{{- define "outbox-relay.grace" -}}
{{- $timing := .Values.timing -}}
{{- if lt (float64 $timing.leaseSeconds) (addf $timing.providerDeadlineSeconds 0.5) -}}
{{- fail (printf "timing.leaseSeconds (%v) must exceed timing.providerDeadlineSeconds (%v) by at least 0.5" $timing.leaseSeconds $timing.providerDeadlineSeconds) -}}
{{- end -}}
{{- $lease := ceil (float64 $timing.leaseSeconds) | int -}}
{{- $deadline := ceil (float64 $timing.providerDeadlineSeconds) | int -}}
{{- $least := add $lease 10 (int .Values.preStopSeconds) -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- $least -}}
{{- else -}}
{{- $floor := add $deadline 2 (int .Values.preStopSeconds) -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int $floor) -}}
{{- fail (printf "terminationGracePeriodSeconds (%d) must be at least %d: a request in flight that is cut off becomes delivery_unknown" (int .Values.terminationGracePeriodSeconds) (int $floor)) -}}
{{- end -}}
{{- int .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{- /* Environment of a program. Arguments: root, component, and wakeups to override the release's. */ -}}
{{- define "outbox-relay.settings" -}}
{{- $root := .root -}}
{{- $wakeups := default $root.Values.wakeups .wakeups -}}
- {name: OUTBOX_ENVIRONMENT, value: {{ $root.Values.environment | quote }}}
- {name: OUTBOX_WAKEUPS, value: {{ $wakeups | quote }}}
{{- if eq $wakeups "kafka" }}
- {name: OUTBOX_KAFKA_BOOTSTRAP_SERVERS, value: {{ required "kafka.bootstrapServers is needed, or wakeups=ledger" $root.Values.kafka.bootstrapServers | quote }}}
- {name: OUTBOX_KAFKA_GROUP_ID, value: {{ index $root.Values.kafka (printf "%sGroup" .component) | quote }}}
- {name: OUTBOX_TOPIC_PREFIX, value: {{ $root.Values.kafka.topicPrefix | quote }}}
- {name: OUTBOX_TOPIC_PARTITIONS, value: {{ $root.Values.kafka.topicPartitions | toString | quote }}}
{{- end }}
- {name: OUTBOX_PROVIDERS_FILE, value: /etc/outbox/providers/providers.yaml}
{{- if include "outbox-relay.contractsConfigMap" $root }}
- {name: OUTBOX_CONTRACTS_DIR, value: /etc/outbox/contracts}
{{- end }}
- {name: OUTBOX_LEASE_S, value: {{ $root.Values.timing.leaseSeconds | toString | quote }}}
- {name: OUTBOX_PROVIDER_DEADLINE_S, value: {{ $root.Values.timing.providerDeadlineSeconds | toString | quote }}}
- {name: OUTBOX_SWEEP_S, value: {{ $root.Values.timing.sweepSeconds | toString | quote }}}
- {name: OUTBOX_SLOTS, value: {{ $root.Values.timing.slots | toString | quote }}}
- {name: OUTBOX_LINGER_MS, value: {{ $root.Values.timing.lingerMilliseconds | toString | quote }}}
- {name: OUTBOX_LOG_FORMAT, value: {{ $root.Values.logFormat | quote }}}
- {name: OUTBOX_LOG_LEVEL, value: {{ $root.Values.logLevel | quote }}}
- {name: OUTBOX_LISTEN, value: "0.0.0.0:9464"}
- name: OUTBOX_INSTANCE
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end -}}

{{- define "outbox-relay.secretEnv" -}}
- secretRef: {name: {{ .database | quote }}}
{{- with .root.Values.secrets.credentials }}
- secretRef: {name: {{ . | quote }}}
{{- end }}
{{- with .root.Values.secrets.kafka }}
- secretRef: {name: {{ . | quote }}}
{{- end }}
{{- end -}}

{{- define "outbox-relay.mounts" -}}
- {name: providers, mountPath: /etc/outbox/providers, readOnly: true}
{{- if include "outbox-relay.contractsConfigMap" . }}
- {name: contracts, mountPath: /etc/outbox/contracts, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "outbox-relay.volumes" -}}
- name: providers
  configMap: {name: {{ include "outbox-relay.providersConfigMap" . }}}
{{- with include "outbox-relay.contractsConfigMap" . }}
- name: contracts
  configMap: {name: {{ . }}}
{{- end }}
- name: tmp
  emptyDir: {sizeLimit: 16Mi}
{{- end -}}

{{- /* One container of one program. Arguments: root, component (relay or reconciler), database (name of the secret). */ -}}
{{- define "outbox-relay.container" -}}
{{- $root := .root -}}
{{- $own := index $root.Values .component -}}
name: {{ .component }}
image: {{ include "outbox-relay.image" $root | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
command: {{ ternary (list "python3" "-m" "outbox_relay") (list "python3" "-m" "reconciler") (eq .component "relay") | toJson }}
env:
  {{- include "outbox-relay.settings" . | nindent 2 }}
  {{- with $own.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
envFrom:
  {{- include "outbox-relay.secretEnv" . | nindent 2 }}
  {{- with $own.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: metrics, containerPort: 9464, protocol: TCP}
# Liveness asks only whether the loop ticks; a dependency that is down is shown by readiness and mended by nobody's restart.
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 3
{{- if $root.Values.preStopSeconds }}
{{- if semverCompare "<1.30-0" $root.Capabilities.KubeVersion.Version }}
{{- fail "preStopSeconds needs Kubernetes 1.30 or later: set it to 0" }}
{{- end }}
lifecycle:
  preStop: {sleep: {seconds: {{ $root.Values.preStopSeconds }}}}
{{- end }}
securityContext:
  {{- toYaml $root.Values.securityContext | nindent 2 }}
resources:
  {{- toYaml $own.resources | nindent 2 }}
volumeMounts:
  {{- include "outbox-relay.mounts" $root | nindent 2 }}
  {{- with $own.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* The relay as a native sidecar (Kubernetes 1.29 or later), for initContainers of a pod of yours. It ends after
       the pod's own containers. Add the volumes of outbox-relay.volumes, and outbox-relay.grace as the pod's grace period. */ -}}
{{- define "outbox-relay.sidecar" -}}
{{- include "outbox-relay.container" (dict "root" . "component" "relay" "database" .Values.secrets.relayDatabase) }}
restartPolicy: Always
{{- end -}}

{{- /* One Deployment. Arguments: root, component, database. */ -}}
{{- define "outbox-relay.deployment" -}}
{{- $root := .root -}}
{{- $own := index $root.Values .component -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "outbox-relay.fullname" $root }}-{{ .component }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "outbox-relay.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  {{- if not (kindIs "invalid" $own.replicas) }}
  replicas: {{ $own.replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "outbox-relay.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  template:
    metadata:
      labels:
        {{- include "outbox-relay.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
        {{- with $own.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        # New accounts or contracts restart the pods: a program reads them once.
        checksum/config: {{ include (print $root.Template.BasePath "/configmap.yaml") $root | sha256sum }}
        {{- with $own.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "outbox-relay.serviceAccount" $root }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ include "outbox-relay.grace" $root }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $own.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      securityContext:
        {{- toYaml $root.Values.podSecurityContext | nindent 8 }}
      containers:
        - {{- include "outbox-relay.container" . | nindent 10 }}
      volumes:
        {{- include "outbox-relay.volumes" $root | nindent 8 }}
        {{- with $own.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      topologySpreadConstraints:
        {{- if $own.topologySpreadConstraints }}
        {{- toYaml $own.topologySpreadConstraints | nindent 8 }}
        {{- else }}
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "outbox-relay.selector" $root | nindent 14 }}
              app.kubernetes.io/component: {{ .component }}
        {{- end }}
      {{- with $own.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $own.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $own.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}
