{{/*
The Caddyfile. Values are quoted everywhere, and values.schema.json keeps quotation marks, braces and backslashes out of them:
no value can end a token, or become a placeholder.
*/}}
{{/* A data service: (list $ UPSTREAM). */}}
{{- define "gatehouse.caddyfile.upstream" -}}
{{- $root := first . }}
{{- with last . }}
		upstream{{ range .resources }} {{ quote . }}{{ end }}{{ range .addresses }} {{ quote . }}{{ end }}
{{- if or .healthUri .caFile }} {
			{{- with .healthUri }}
			health_uri {{ quote . }}
			{{- end }}
			{{- with .caFile }}
			transport http {
				tls_trust_pool file {{ include "gatehouse.file" (list $root .) | quote }}
			}
			{{- end }}
		}
{{- end }}
{{- end }}
{{- end }}

{{- define "gatehouse.caddyfile" -}}
{{- $tls := not (empty (.Values.tls).certFile) }}
{{- if eq $tls (empty (.Values.tls).keyFile) }}{{ fail "tls needs certFile and keyFile, or neither" }}{{ end }}
{{- $scheme := ternary "https" "http" $tls }}
{{- $port := include "gatehouse.port" . -}}
# Made by the Helm chart; see docs/kubernetes.md.
{
	# In the pod only, for `kubectl exec`: gatehouse api drift, gatehouse explain.
	admin localhost:2019
	# Certificates are files, and nothing is kept when the pod ends.
	auto_https off
	{{- if $tls }}
	# The network policy does not let pods reach an authority's OCSP responder.
	ocsp_stapling off
	{{- end }}
	persist_config off
	grace_period {{ .Values.drain.graceSeconds }}s

	servers {
		{{- if $tls }}
		# HTTP/3 would need UDP, and announce the port of the pod.
		protocols h1 h2
		{{- else }}
		protocols h1
		{{- end }}
		{{- with .Values.trustedProxies }}
		trusted_proxies static{{ range . }} {{ quote . }}{{ end }}
		trusted_proxies_strict
		{{- end }}
		listener_wrappers {
			gatehouse_drain
		}
		timeouts {
			read_header 5s
			read_body 15s
			write 30s
			idle 2m
		}
		max_header_size 16KiB
	}

	gatehouse {
{{- with $.Values.redis }}
		# Rate limits of the whole fleet, and connections of assistants.
		redis{{ range .urls }} {{ quote . }}{{ end }} {
			{{- if .cluster }}
			cluster
			{{- end }}
			{{- with .sentinel }}
			sentinel {{ quote . }}
			{{- end }}
			{{- with .username }}
			username {{ quote . }}
			{{- end }}
			{{- with .passwordFile }}
			password "{file.{{ include "gatehouse.file" (list $ .) }}}"
			{{- end }}
			{{- with .caFile }}
			tls {
				ca {{ include "gatehouse.file" (list $ .) | quote }}
			}
			{{- end }}
			timeout 50ms
		}
{{- end }}

		# The credentials of calling businesses.
{{- if eq $.Values.credentials.source "file" }}
		credentials file {{ include "gatehouse.file" (list $ (required "credentials.file is required with the source file" $.Values.credentials.file)) | quote }}
{{- else }}
{{- with $.Values.credentials.vault }}
		credentials vault {{ quote .address }} {
			mount {{ quote .mount }}
			path {{ quote .path }}
			{{- with .namespace }}
			namespace {{ quote . }}
			{{- end }}
			{{- if eq .auth.method "kubernetes" }}
			# The variable is set in the keys job only.
			auth kubernetes "{$GATEHOUSE_VAULT_ROLE:{{ .auth.kubernetes.role }}}" /run/vault/token {{ quote .auth.kubernetes.mount }}
			{{- else if eq .auth.method "appRole" }}
			auth approle "{file.{{ include "gatehouse.file" (list $ (required "credentials.vault.auth.appRole.roleIdFile is required with the method appRole" (.auth.appRole).roleIdFile)) }}}" "{file.{{ include "gatehouse.file" (list $ (required "credentials.vault.auth.appRole.secretIdFile is required with the method appRole" (.auth.appRole).secretIdFile)) }}}"
			{{- else }}
			auth token_file {{ include "gatehouse.file" (list $ (required "credentials.vault.auth.tokenFile is required with the method tokenFile" .auth.tokenFile)) | quote }}
			{{- end }}
			{{- with .caFile }}
			tls {
				ca {{ include "gatehouse.file" (list $ .) | quote }}
			}
			{{- end }}
		}
{{- end }}
{{- end }}
{{- with .Values.cache }}
{{- if or .ttl .staleIfError }}

		cache {
			{{- with .ttl }}
			ttl {{ quote . }}
			{{- end }}
			{{- with .staleIfError }}
			stale_if_error {{ quote . }}
			{{- end }}
		}
{{- end }}
{{- end }}

		limits {
			{{- with (.Values.limits).perKey }}
			per_key {{ int . }}
			{{- end }}
			{{- with (.Values.limits).perIp }}
			per_ip {{ int . }}
			{{- end }}
			on_outage {{ (.Values.limits).onOutage | default "local" | quote }}
		}
{{- if (.Values.assertion).keyFiles }}

		# Lets data services verify that a request came through a gateway.
		assertion{{ range .Values.assertion.keyFiles }} {{ include "gatehouse.file" (list $ .) | quote }}{{ end }} {
			issuer {{ include "gatehouse.issuer" (list . "assertion.issuer" .Values.assertion.issuer) | quote }}
		}
{{- end }}
	}
}

{{ range $i, $host := .Values.hosts }}{{ if $i }}, {{ end }}{{ printf "%s://%s:%s" $scheme $host $port | quote }}{{ end }} {
{{- if $tls }}
	tls {{ include "gatehouse.file" (list . .Values.tls.certFile) | quote }} {{ include "gatehouse.file" (list . .Values.tls.keyFile) | quote }}
{{- end }}
	# /healthz and /readyz, here and below for load balancers that check the port of callers.
	gatehouse_health
{{- if (.Values.assertion).keyFiles }}
	# Publishes the public keys of assertion.
	gatehouse_jwks
{{- end }}
{{- with .Values.connect }}
{{- if .enabled }}
	# The connection server for AI assistants.
	gatehouse_connect {
		issuer {{ include "gatehouse.issuer" (list $ "connect.issuer" .issuer) | quote }}
{{- if not (.upstream).addresses }}{{ fail "connect.upstream is required if connect is enabled" }}{{ end }}
{{- include "gatehouse.caddyfile.upstream" (list $ .upstream) }}
{{- if .overlay }}
{{- if not ($.Values.definition).document }}{{ fail "connect.overlay needs definition.document" }}{{ end }}
		definition /etc/gatehouse/openapi.yaml {
			{{- if ($.Values.definition).overlay }}
			overlay /etc/gatehouse/overlay.yaml
			{{- end }}
			overlay /etc/gatehouse/assistants.yaml
			{{- with ($.Values.definition).except }}
			except{{ range . }} {{ quote . }}{{ end }}
			{{- end }}
		}
{{- end }}
{{- with .name }}
		name {{ quote . }}
{{- end }}
{{- with .logoFile }}
		logo {{ include "gatehouse.file" (list $ .) | quote }}
{{- end }}
{{- with .accentColor }}
		accent_color {{ quote . }}
{{- end }}
{{- with .supportUrl }}
		support_url {{ quote . }}
{{- end }}
{{- with .privacyUrl }}
		privacy_url {{ quote . }}
{{- end }}
{{- with .termsUrl }}
		terms_url {{ quote . }}
{{- end }}
{{- with .exceptAreas }}
		except_areas{{ range . }} {{ quote . }}{{ end }}
{{- end }}
{{- if .homePage }}
		home_page
{{- end }}
{{- if .manageKeys }}
		manage_keys
{{- end }}
	}
{{- end }}
{{- end }}
	# The API: signatures, rate limits, clean requests to data services, checked responses.
	gatehouse_api {
{{- with .Values.definition }}
{{- if .document }}
		definition{{ with .name }} {{ quote . }}{{ end }} /etc/gatehouse/openapi.yaml {
			{{- if .overlay }}
			overlay /etc/gatehouse/overlay.yaml
			{{- end }}
			{{- with .except }}
			except{{ range . }} {{ quote . }}{{ end }}
			{{- end }}
			enforce {{ .enforce | default "all" | quote }}
		}
{{- else if or .overlay .name }}{{ fail "definition.overlay and definition.name need definition.document" }}
{{- else if or .except (ne (.enforce | default "all") "all") }}
		definition {
			{{- with .except }}
			except{{ range . }} {{ quote . }}{{ end }}
			{{- end }}
			enforce {{ .enforce | default "all" | quote }}
		}
{{- end }}
{{- end }}
{{- range .Values.api.upstreams }}
{{- include "gatehouse.caddyfile.upstream" (list $ .) }}
{{- end }}
{{- with .Values.api.docsPath }}
		docs_path {{ quote . }}{{ with $.Values.api.docsOrigin }} {{ quote . }}{{ end }}
{{- end }}
	}
}

# Requests for other hosts get the API's 404; Caddy would send an empty 200.
{{ $scheme }}://:{{ $port }} {
{{- if $tls }}
	tls {{ include "gatehouse.file" (list . .Values.tls.certFile) | quote }} {{ include "gatehouse.file" (list . .Values.tls.keyFile) | quote }}
{{- end }}
	gatehouse_health
	gatehouse_errors
	handle_errors {
		gatehouse_errors
	}
}

# For probes and Prometheus. No Service for callers has this port.
http://:9180 {
	gatehouse_health
	metrics /metrics
}
{{ end }}
