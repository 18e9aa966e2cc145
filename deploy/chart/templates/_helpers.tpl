{{/* The name of all objects, which is at most 50 characters long: there are objects with a suffix. */}}
{{- define "gatehouse.fullname" -}}
{{- $own := .Values.nameOverride | default "gatehouse" }}
{{- $name := .Values.fullnameOverride }}
{{- if not $name }}
{{- if contains $own .Release.Name }}{{ $name = .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ $name = printf "%s-%s" (.Release.Name | trunc (sub 49 (len $own) | int) | trimSuffix "-") $own }}
{{- end }}
{{- end }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "no Service may be named %q, because of the release's name: set fullnameOverride to a name that begins with a letter and has no dot" $name) }}
{{- end }}
{{- $name }}
{{- end }}

{{/* The labels by which Services, policies and constraints find the pods of a component. */}}
{{- define "gatehouse.selector" -}}
app.kubernetes.io/name: gatehouse
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "gatehouse.labels" -}}
{{ include "gatehouse.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* A map as JSON, which keeps every text as it is, without what is null in it. */}}
{{- define "gatehouse.map" -}}
{{- $some := dict }}
{{- range $name, $value := . }}
{{- if kindIs "map" $value }}{{ $_ := set $some $name (include "gatehouse.map" $value | fromJson) }}
{{- else if not (kindIs "invalid" $value) }}{{ $_ := set $some $name $value }}
{{- end }}
{{- end }}
{{- toJson $some }}
{{- end }}

{{/* The files in /etc/gatehouse. */}}
{{- define "gatehouse.config" -}}
{{- if .Values.caddyfile }}
{{- toYaml (dict "Caddyfile" .Values.caddyfile) }}
{{- else -}}
Caddyfile: |
  {{- include "gatehouse.caddyfile" . | trimSuffix "\n" | nindent 2 }}
{{- end }}
{{- range $name, $text := dict "openapi.yaml" (.Values.definition).document "overlay.yaml" (.Values.definition).overlay "assistants.yaml" (.Values.connect).overlay }}
{{- if $text }}
{{ toYaml (dict $name $text) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gatehouse.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ printf "%s@%s" .repository .digest }}{{ else }}{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}{{ end }}
{{- end }}
{{- end }}

{{/* The port of callers in the pod. */}}
{{- define "gatehouse.port" -}}
{{ ternary "8443" "8080" (not (empty (.Values.tls).certFile)) }}
{{- end }}

{{/* What names the gateway: (list $ "path of the value" VALUE). */}}
{{- define "gatehouse.issuer" -}}
{{- $host := first (first .).Values.hosts }}
{{- if last . }}{{ last . }}
{{- else if hasPrefix "*" $host }}{{ fail (printf "%s is required, because %q, the first of hosts, names no host" (index . 1) $host) }}
{{- else }}https://{{ $host }}
{{- end }}
{{- end }}

{{/* The path of a file of `secrets`: (list $ "redis/password"). */}}
{{- define "gatehouse.file" -}}
{{- $root := first . }}{{ $file := last . }}
{{- $secret := first (splitList "/" $file) }}
{{- if not (index ($root.Values.secrets | default dict) $secret) }}
{{- fail (printf "the file %q is in no mount: add %q to secrets" $file $secret) }}
{{- end -}}
/run/secrets/{{ $file }}
{{- end }}

{{/* What Vault's Kubernetes auth reads. */}}
{{- define "gatehouse.projectsToken" -}}
{{- if and (eq .Values.credentials.source "vault") (eq .Values.credentials.vault.auth.method "kubernetes") }}yes{{ end }}
{{- end }}

{{/* The names in `secrets`, as JSON: (dict "root" $ "files" FILES). With FILES, only those that have one of the files. */}}
{{- define "gatehouse.secretNames" -}}
{{- $names := list }}
{{- range $name := keys (.root.Values.secrets | default dict) | sortAlpha }}
{{- $used := not $.files }}
{{- range $.files }}{{ if hasPrefix (print $name "/") . }}{{ $used = true }}{{ end }}{{ end }}
{{- if $used }}{{ $names = append $names $name }}{{ end }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{- define "gatehouse.volumes" -}}
- name: config
  configMap:
    name: {{ .config | quote }}
# Files that the gateway's group may read, and others may not: it refuses such a credential file.
{{- range include "gatehouse.secretNames" . | fromJsonArray }}
{{- $secret := index $.root.Values.secrets . }}
- name: {{ printf "secret-%s" . | quote }}
  {{- if $secret.secretName }}
  secret:
    secretName: {{ $secret.secretName | quote }}
    defaultMode: 0440
  {{- else if $secret.configMapName }}
  configMap:
    name: {{ $secret.configMapName | quote }}
  {{- else }}
  csi:
    driver: secrets-store.csi.k8s.io
    readOnly: true
    volumeAttributes:
      secretProviderClass: {{ $secret.secretProviderClass | quote }}
  {{- end }}
{{- end }}
{{- if include "gatehouse.projectsToken" .root }}
- name: vault-token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          audience: {{ .root.Values.credentials.vault.auth.kubernetes.audience | quote }}
          expirationSeconds: 3600
          path: token
{{- end }}
# Locks and logs of Caddy's storage, and what `gatehouse check` writes.
- name: data
  emptyDir:
    sizeLimit: 64Mi
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- end }}

{{- define "gatehouse.mounts" -}}
- name: config
  mountPath: /etc/gatehouse
  readOnly: true
{{- range include "gatehouse.secretNames" . | fromJsonArray }}
- name: {{ printf "secret-%s" . | quote }}
  mountPath: {{ printf "/run/secrets/%s" . | quote }}
  readOnly: true
{{- end }}
{{- if include "gatehouse.projectsToken" .root }}
- name: vault-token
  mountPath: /run/vault
  readOnly: true
{{- end }}
- name: data
  mountPath: /data
- name: tmp
  mountPath: /tmp
{{- end }}

{{/* The variables of env. */}}
{{- define "gatehouse.env" -}}
{{- range $name, $value := include "gatehouse.map" .Values.env | fromJson }}
- name: {{ quote $name }}
  value: {{ quote $value }}
{{- end }}
{{- end }}

{{/* The pod's security, which the profile "restricted" of the Pod Security Standards allows (with tcpMigrateReq, none does). */}}
{{- define "gatehouse.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "gatehouse.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Egress to the addresses of URLs: (dict "urls" URLS "rule" a value of networkPolicy "more" PORTS). */}}
{{- define "gatehouse.egress" }}
{{- $ports := (.rule).ports }}
{{- if not $ports }}
{{- $ports = .more | default list }}
{{- range .urls }}
{{- $url := urlParse . }}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) }}
{{- $ports = append $ports (int ($port | default (get (dict "https" "443" "http" "80") $url.scheme | default "6379"))) }}
{{- end }}
{{- end }}
- ports:
    {{- range uniq $ports }}
    - port: {{ int . }}
      protocol: TCP
    {{- end }}
  {{- with (.rule).to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* Egress of gateways and of the keys job. Behind Sentinels, Redis has a port of its own. */}}
{{- define "gatehouse.egressStores" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- with .Values.redis }}
{{- include "gatehouse.egress" (dict "urls" .urls "rule" $.Values.networkPolicy.redis "more" (ternary list (list 6379) (empty .sentinel))) }}
{{- end }}
{{- if eq .Values.credentials.source "vault" }}
{{- include "gatehouse.egress" (dict "urls" (list .Values.credentials.vault.address) "rule" .Values.networkPolicy.vault) }}
{{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}
