package deploy_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

var update = flag.Bool("update", false, "write what the chart renders into testdata/golden")

// valueFiles are files of testdata/values, with the further arguments of helm that render them.
var valueFiles = map[string][]string{
	"minimal":    nil,
	"production": nil,
	"files":      nil,
	"definition": {
		"--set-file", "definition.document=../examples/orders/orders.openapi.yaml",
		"--set-file", "definition.overlay=../examples/orders/orders.gatehouse.yaml",
		"--set-file", "connect.overlay=../examples/orders/orders.assistants.yaml",
	},
	"assistants": nil,
}

func valuesArgs(name string) []string {
	return append([]string{"--values", filepath.Join("testdata", "values", name+".yaml")}, valueFiles[name]...)
}

func TestChartRendersValueFiles(t *testing.T) {
	t.Parallel()
	for name := range valueFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := helm(t, append([]string{"lint", "--strict", "chart"}, valuesArgs(name)...)...)
			require.NoError(t, err, out)

			rendered := render(t, valuesArgs(name)...)
			if name == "minimal" { // nearly what kubernetes/gatehouse.yaml is
				requireAppRoleBehindAnIngress(t, rendered)
			} else {
				golden := filepath.Join("testdata", "golden", name+".yaml")
				if *update {
					require.NoError(t, os.WriteFile(golden, []byte(rendered), 0o600))
				}
				assert.Equal(t, read(t, golden), rendered, "go test ./deploy -run TestChartRendersValueFiles -update writes the file")
			}

			requireStrict(t, rendered)
			for _, o := range objects(t, rendered) {
				switch {
				case o.Kind == "ConfigMap" && o.Data["Caddyfile"] != "":
					requireUsable(t, o)
				case o.Kind == "Deployment", o.Kind == "Job":
					requireUnprivileged(t, o.pod(t))
				default:
					assert.NotEqual(t, "Secret", o.Kind)
				}
				if o.Kind == "Deployment" {
					assert.Equal(t, 30, o.Spec["minReadySeconds"], "load balancers and people need time to notice")
					requireTimeToStop(t, o.pod(t), rendered)
				}
			}
		})
	}
}

// requireAppRoleBehindAnIngress requires what the minimal values have and kubernetes/gatehouse.yaml does not.
func requireAppRoleBehindAnIngress(t *testing.T, rendered string) {
	t.Helper()
	for _, want := range []string{
		`auth approle "{file./run/secrets/vault/role-id}" "{file./run/secrets/vault/secret-id}"`, `credentials vault "http://vault.stores:8200" {`,
		`redis "redis://redis.stores:6379/" {`, `password "{file./run/secrets/redis/password}"`, `upstream "http://data.shop:8080"`,
		"- name: \"secret-vault\"\n              mountPath: \"/run/secrets/vault\"\n              readOnly: true",
		"- name: \"secret-vault\"\n          secret:\n            secretName: \"gatehouse-vault\"\n            defaultMode: 0440",
		"# Data services.\n    - ports:\n        - port: 8080\n",
	} {
		assert.Contains(t, rendered, want)
	}
	for _, unwanted := range []string{"GATEHOUSE_VAULT_ROLE", "serviceAccountToken", "assertion", "gatehouse_jwks", "8443"} {
		assert.NotContains(t, rendered, unwanted)
	}
}

// requireUsable adapts the Caddyfile of a ConfigMap, and requires that `gatehouse check` finds no errors.
func requireUsable(t *testing.T, config object) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range config.Data {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "/etc/gatehouse/", dir+"/")), 0o600))
	}
	out, err := gatewaytest.Command(t, nil, "adapt", "--config", filepath.Join(dir, "Caddyfile"))
	require.NoError(t, err, out)
	assert.NotContains(t, out, "not formatted", config.Metadata.Name)
	out, err = gatewaytest.Command(t, nil, "check", "--offline", "--config", filepath.Join(dir, "Caddyfile"))
	assert.NoError(t, err, out)
}

// requireUnprivileged requires what the Pod Security Standard "restricted" does, and more.
func requireUnprivileged(t *testing.T, p pod) {
	t.Helper()
	assert.False(t, *p.Spec.AutomountServiceAccountToken)
	assert.Subset(t, p.Spec.SecurityContext, map[string]any{
		"runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": map[string]any{"type": "RuntimeDefault"},
	})
	assert.Equal(t, map[string]any{
		"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": map[string]any{"drop": []any{"ALL"}},
	}, p.container().SecurityContext)
	for _, variable := range p.container().Env { // of the keys job, and of testdata/values
		assert.Contains(t, []string{"CADDY_ADMIN", "GATEHOUSE_VAULT_ROLE", "OTEL_EXPORTER_OTLP_ENDPOINT"}, variable.Name, "secrets are files")
	}
}

// requireTimeToStop requires that Kubernetes waits for the preStop action, and for the requests in progress.
func requireTimeToStop(t *testing.T, p pod, rendered string) {
	t.Helper()
	grace := regexp.MustCompile(`grace_period (\d+)s\n`).FindStringSubmatch(rendered)
	require.NotNil(t, grace)
	seconds, err := strconv.Atoi(grace[1])
	require.NoError(t, err)
	assert.Greater(t, p.Spec.TerminationGracePeriodSeconds, p.container().Lifecycle.PreStop.Sleep.Seconds+seconds)
}

// A Service's name is a DNS label that begins with a letter. A release's need not be.
func TestNamesOfObjects(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 53)
	for name, test := range map[string]struct{ release, values, want string }{
		"release":                     {"shop", `{}`, "shop-gatehouse"},
		"release that says it":        {"gatehouse-eu", `{}`, "gatehouse-eu"},
		"long release":                {long, `{}`, long[:40] + "-gatehouse"},
		"cut at a hyphen":             {long[:39] + "-b", `{}`, long[:39] + "-gatehouse"},
		"other name":                  {"shop", `nameOverride: edge`, "shop-edge"},
		"release that says the other": {"edge-eu", `nameOverride: edge`, "edge-eu"},
		"longest names":               {long, `nameOverride: ` + long[:30], long[:50]},
		"long release with the other": {strings.Repeat("b", 53), `nameOverride: ` + long[:30], strings.Repeat("b", 19) + "-" + long[:30]},
		"whole name":                  {"1.shop", `{nameOverride: ignored, fullnameOverride: edge-2}`, "edge-2"},
		"null":                        {"shop", `{nameOverride: null, fullnameOverride: null}`, "shop-gatehouse"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := helm(t, "template", test.release, "chart", "--values", "testdata/values/production.yaml",
				"--set", "monitoring.dashboards.enabled=true", "--values", writeValues(t, test.values))
			require.NoError(t, err, out)
			requireStrict(t, out)
			for _, o := range objects(t, out) {
				assert.Regexp(t, "^"+test.want+"(-keys|-metrics|-dashboards)?$", o.Metadata.Name)
				assert.LessOrEqual(t, len(o.Metadata.Name), 63)
				assert.Equal(t, "gatehouse", o.Metadata.Labels["app.kubernetes.io/name"], "the alerts select this job")
				assert.Equal(t, test.release, o.Metadata.Labels["app.kubernetes.io/instance"])
			}
		})
	}
	for _, release := range []string{"1-shop", "shop.eu", long[:39] + ".b"} {
		out, err := helm(t, "template", release, "chart")
		require.Error(t, err, out)
		assert.Contains(t, out, "set fullnameOverride")
	}
}

// A pinned image stays the same when the chart is upgraded.
func TestNotesNameTheImage(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0", 64)
	out, err := helm(t, "install", "gatehouse", "chart", "--dry-run=client", "--set", "image.digest="+digest)
	require.NoError(t, err, out)
	_, notes, _ := strings.Cut(out, "NOTES:\n")
	require.True(t, strings.HasPrefix(notes, "ghcr.io/gatehouse-gateway/gatehouse@"+digest+" serves "), notes)
}

// Helm removes a value that is null if it has a default, and keeps it otherwise. Both mean that it is empty.
func TestNullIsEmpty(t *testing.T) {
	t.Parallel()
	defaults := render(t)
	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "chart/values.yaml")), &values))
	text, err := yaml.Marshal(withNulls(values))
	require.NoError(t, err)
	require.Greater(t, strings.Count(string(text), ": null\n"), 50)
	assert.Equal(t, defaults, render(t, "--values", writeValues(t, string(text))))
	assert.Equal(t, defaults, render(t, "--values", writeValues(t, `{tls: null, cache: null, limits: null, assertion: null,
definition: null, connect: null, serviceAccount: null, autoscaling: null, monitoring: null, keysJob: null, networkPolicy: {redis: null}}`)))
	assert.Equal(t, render(t, "--set", "podDisruptionBudget.enabled=false"), render(t, "--set", "podDisruptionBudget=null"))
	assert.Equal(t, render(t, "--values", "testdata/values/files.yaml"), render(t, "--values", "testdata/values/files.yaml", "--set", "credentials.vault=null"))
	assert.Equal(t, render(t, "--values", "testdata/values/minimal.yaml"),
		render(t, "--values", "testdata/values/minimal.yaml", "--set", "credentials.vault.auth.kubernetes=null"))

	rendered := render(t, "--values", writeValues(t, `
api: {upstreams: [{addresses: ["https://data.internal:8443"], caFile: null, healthUri: null, resources: null}]}
env: {A: null, B: b}
podLabels: {a: null, b: b}
podAnnotations: {a: null, b: b}
nodeSelector: {a: null, b: b}
resources: {requests: null, limits: {cpu: null, memory: 1073741824}}
`))
	requireStrict(t, rendered)
	assert.NotContains(t, rendered, "null")
	for _, o := range objects(t, rendered) {
		if o.Kind == "Deployment" {
			assert.Len(t, o.pod(t).container().Env, 1)
			assert.NotContains(t, o.pod(t).Metadata.Labels, "a")
			assert.NotContains(t, o.pod(t).Metadata.Annotations, "a")
		}
	}
	assert.Contains(t, rendered, "          resources:\n            limits:\n              memory: 1073741824\n          securityContext:")

	out, err := helm(t, "template", "gatehouse", "chart", "--set", "resources=null,autoscaling.enabled=true")
	require.Error(t, err, out)
	assert.Contains(t, out, "autoscaling needs resources.requests.cpu")
	rendered = render(t, "--set", "resources=null")
	requireStrict(t, rendered)
	assert.Contains(t, rendered, "          resources:\n            {}\n")
}

// withNulls returns values in which everything empty is null.
func withNulls(values map[string]any) map[string]any {
	result := map[string]any{}
	for name, value := range values {
		switch v := value.(type) {
		case map[string]any:
			result[name] = withNulls(v)
			if len(v) == 0 {
				result[name] = nil
			}
		case []any:
			result[name] = v
			if len(v) == 0 {
				result[name] = nil
			}
		default:
			result[name] = v
			if v == "" || v == 0 || v == false {
				result[name] = nil
			}
		}
	}
	return result
}

// Names of digits are legal, and YAML would read them as numbers.
func TestNamespaceMayBeANumber(t *testing.T) {
	t.Parallel()
	requireStrict(t, render(t, append(valuesArgs("production"), "--namespace", "2027")...))
}

func TestManifestsAreThoseOfTheChart(t *testing.T) {
	t.Parallel()
	_, manifests, _ := strings.Cut(read(t, "kubernetes/gatehouse.yaml"), "\n\n")
	rendered := render(t, "--namespace", "gatehouse", "--values", "kubernetes/values.yaml")
	assert.Equal(t, rendered, manifests, "make manifests renders it")
	requireStrict(t, manifests)
	for _, o := range objects(t, manifests) {
		if o.Kind == "ConfigMap" {
			requireUsable(t, o)
		}
	}
}

func TestAlertsAndDashboardsAreRendered(t *testing.T) {
	t.Parallel()
	rendered := render(t, "--set", "monitoring.serviceMonitor.enabled=true,monitoring.prometheusRule.enabled=true,monitoring.dashboards.enabled=true",
		"--set-string", "monitoring.prometheusRule.labels.release=prometheus")
	dashboards, err := filepath.Glob("grafana/*.json")
	require.NoError(t, err)
	kinds := requireStrict(t, rendered)
	for _, kind := range []string{"ServiceMonitor gatehouse\n", "PrometheusRule gatehouse\n", "ConfigMap gatehouse-dashboards\n"} {
		assert.Contains(t, kinds, kind)
	}
	for _, o := range objects(t, rendered) {
		switch {
		case o.Kind == "PrometheusRule":
			var want map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(read(t, "prometheus-rules.yaml")), &want))
			assert.Equal(t, want, o.Spec)
			assert.Equal(t, "prometheus", o.Metadata.Labels["release"])
		case strings.HasSuffix(o.Metadata.Name, "-dashboards"):
			assert.Len(t, o.Data, len(dashboards), "each has a link in chart/files")
			for name, text := range o.Data {
				assert.Equal(t, read(t, filepath.Join("grafana", strings.TrimPrefix(name, "gatehouse-"))), text, name)
			}
		case o.Kind == "ServiceMonitor":
			assert.Equal(t, "app.kubernetes.io/name", o.Spec["jobLabel"])
			assert.Equal(t, "gatehouse", o.Metadata.Labels["app.kubernetes.io/name"], "the alerts select this job")
		}
	}
}

// A wrong value must not be ignored, and no value may leave its place in the Caddyfile.
func TestChartRejectsWrongValues(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ values, want string }{
		"misspelt value":               {`replica: 2`, "'replica'"},
		"misspelt nested value":        {`redis: {passwrodFile: redis/password}`, "'passwrodFile'"},
		"misspelt value of a list":     {`api: {upstreams: [{addresses: ["http://a"], health: /}]}`, "'health'"},
		"text for a number":            {`replicas: "3"`, "/replicas"},
		"number for a text":            {`image: {tag: 1.2}`, "/image/tag"},
		"text for a boolean":           {`connect: {enabled: "no"}`, "/connect/enabled"},
		"removed value":                {`credentials: {vault: null}`, "'vault'"},
		"no host":                      {`hosts: []`, "/hosts"},
		"every host":                   {`hosts: ["*"]`, "/hosts/0"},
		"wildcard within a host":       {`hosts: ["api.*.example.com"]`, "/hosts/0"},
		"wildcard in a label":          {`hosts: ["a*.example.com"]`, "/hosts/0"},
		"name with a dot":              {`fullnameOverride: a.b`, "/fullnameOverride"},
		"name with a leading digit":    {`nameOverride: 1st`, "/nameOverride"},
		"name with a capital letter":   {`fullnameOverride: Gate`, "/fullnameOverride"},
		"name that is too long":        {`fullnameOverride: ` + strings.Repeat("a", 51), "/fullnameOverride"},
		"affinity that is a list":      {`affinity: []`, "/affinity"},
		"port of a URL":                {`credentials: {vault: {address: "https://vault:65536"}}`, "/credentials/vault/address"},
		"port 0 of a URL":              {`api: {upstreams: [{addresses: ["http://a:0"]}]}`, "/addresses/0"},
		"prefix of a proxy":            {`trustedProxies: [10.0.0.0/33]`, "/trustedProxies/0"},
		"prefix of a peer":             {`networkPolicy: {from: [{ipBlock: {cidr: "fd00::/129"}}]}`, "/cidr"},
		"peer without a prefix":        {`networkPolicy: {from: [{ipBlock: {cidr: 203.0.113.5}}]}`, "/cidr"},
		"port of Redis":                {`redis: {urls: ["redis://a:99999"]}`, "/redis/urls/0"},
		"port of an issuer":            {`assertion: {issuer: "https://a:70000"}`, "/assertion/issuer"},
		"port of a network policy":     {`networkPolicy: {vault: {ports: [65536]}}`, "/networkPolicy/vault/ports/0"},
		"data service with a slash":    {`api: {upstreams: [{addresses: ["http://a/"]}]}`, "/addresses/0"},
		"key file that is null":        {`assertion: {keyFiles: [null]}`, "/assertion/keyFiles/0"},
		"label of a peer that is null": {`networkPolicy: {from: [{podSelector: {matchLabels: {a: null}}}]}`, "/matchLabels/a"},
		"load balancer with a quote":   {`service: {loadBalancerClass: 'a"'}`, "/service/loadBalancerClass"},
		"host with a block":            {`hosts: ["api.example.com {\n\trespond ok\n}\nb"]`, "/hosts/0"},
		"host with a quotation mark":   {`hosts: ['a" "b']`, "/hosts/0"},
		"host with a line feed":        {`hosts: ["api.example.com\n"]`, "/hosts/0"},
		"variable in a host":           {`hosts: ["{$HOME}"]`, "/hosts/0"},
		"placeholder in a name":        {`connect: {name: "{file./run/secrets/redis/password}"}`, "/connect/name"},
		"quotation mark in a name":     {`connect: {name: 'A"'}`, "/connect/name"},
		"backslash in a name":          {`connect: {name: 'A\'}`, "/connect/name"},
		"backquote in a name":          {"connect: {name: 'A`'}", "/connect/name"},
		"line feed in a name":          {`connect: {name: "A\nmanage_keys"}`, "/connect/name"},
		"line separator in a name":     {`connect: {name: "A\u2028B"}`, "/connect/name"},
		"wide blank in a name":         {`connect: {name: "A\u3000B"}`, "/connect/name"},
		"next line in a name":          {`connect: {name: "A\u0085B"}`, "/connect/name"},
		"colour that is a comment":     {`connect: {accentColor: "# x"}`, "/connect/accentColor"},
		"link with a script":           {`connect: {termsUrl: "javascript:alert(1)"}`, "/connect/termsUrl"},
		"link with a space":            {`connect: {privacyUrl: "https://example.com/ x"}`, "/connect/privacyUrl"},
		"password in a URL":            {`redis: {urls: ["rediss://user:password@redis.internal:6379"]}`, "/redis/urls/0"},
		"Redis without a URL":          {`redis: {urls: []}`, "/redis/urls"},
		"space in a user name":         {`redis: {username: "a b"}`, "/redis/username"},
		"Vault with a path":            {`credentials: {vault: {address: "https://vault/x"}}`, "/credentials/vault/address"},
		"line feed in a role":          {`credentials: {vault: {auth: {kubernetes: {role: "a\n"}}}}`, "/role"},
		"unknown method":               {`credentials: {vault: {auth: {method: token}}}`, "/method"},
		"placeholder as a duration":    {`cache: {ttl: "{env.TTL}"}`, "/cache/ttl"},
		"duration without a unit":      {`cache: {ttl: "30"}`, "/cache/ttl"},
		"path with a space":            {`api: {docsPath: "/docs x"}`, "/api/docsPath"},
		"upstream with a block":        {`api: {upstreams: [{addresses: ["http://a {"]}]}`, "/addresses/0"},
		"resource with a quote":        {`api: {upstreams: [{addresses: ["http://a"], resources: ['a"']}]}`, "/resources/0"},
		"trusted proxies by name":      {`trustedProxies: [private_ranges]`, "/trustedProxies/0"},
		"file outside of secrets":      {`redis: {passwordFile: ../../etc/passwd}`, "/redis/passwordFile"},
		"file above its mount":         {`redis: {passwordFile: redis/../hop/hop.pem}`, "/redis/passwordFile"},
		"absolute file":                {`tls: {certFile: /etc/passwd}`, "/tls/certFile"},
		"image with a line feed":       {`image: {repository: "a\nb"}`, "/image/repository"},
		"secret of two kinds":          {`secrets: {a: {secretName: b, secretProviderClass: c}}`, "/secrets/a"},
		"secret with a value":          {`secrets: {a: {secretName: b, value: c}}`, "/secrets/a"},
		"mount above its directory":    {`secrets: {../../etc: {secretName: b}}`, "invalid propertyName"},
		"variable of the chart":        {`env: {GATEHOUSE_VAULT_ROLE: a}`, "invalid propertyName"},
		"variable with a blank":        {`env: {"A B": c}`, "invalid propertyName"},
		"number as a variable":         {`env: {A: 1}`, "/env/A"},
		"negative quantity":            {`resources: {requests: {cpu: -0.5}}`, "/cpu"},
		"too little time to stop":      {`drain: {graceSeconds: 5}`, "/drain/graceSeconds"},
		"peer with a misspelt member":  {`networkPolicy: {from: [{podSelektor: {}}]}`, "podSelektor"},
		"peer that is everybody":       {`networkPolicy: {from: [{}]}`, "/networkPolicy/from/0"},

		"node port of a ClusterIP":          {`service: {nodePort: 30443}`, "service.nodePort needs the type"},
		"load balancer without one":         {`service: {type: NodePort, loadBalancerSourceRanges: [203.0.113.0/24]}`, "need the type LoadBalancer"},
		"assertion of a wildcard":           {`{hosts: ["*.example.com"], secrets: {hop: {secretName: a}}, assertion: {keyFiles: [hop/hop.pem]}}`, `assertion.issuer is required, because "*.example.com"`},
		"assistants of a wildcard":          {`{hosts: ["*.example.com"], connect: {enabled: true, upstream: {addresses: ["http://a"]}}}`, "connect.issuer is required"},
		"file without a mount":              {`redis: {passwordFile: redis/password}`, `add "redis" to secrets`},
		"certificate without its key":       {`{secrets: {tls: {secretName: a}}, tls: {certFile: tls/tls.crt}}`, "tls needs certFile and keyFile"},
		"AppRole without its files":         {`credentials: {vault: {auth: {method: appRole}}}`, "roleIdFile is required"},
		"token file without a file":         {`credentials: {vault: {auth: {method: tokenFile}}}`, "tokenFile is required"},
		"credential file without a file":    {`credentials: {source: file}`, "credentials.file is required"},
		"name of an API that is too long":   {`definition: {document: "{}", name: ` + strings.Repeat("a", 64) + `}`, "/definition/name"},
		"overlay without a document":        {`definition: {overlay: "overlay: 1.0.0"}`, "need definition.document"},
		"tools without a document":          {`connect: {enabled: true, overlay: x, upstream: {addresses: ["http://a"]}}`, "needs definition.document"},
		"assistants without a data service": {`connect: {enabled: true}`, "connect.upstream is required"},
		"fewer gateways than the minimum":   {`autoscaling: {enabled: true, minReplicas: 5, maxReplicas: 2}`, "less than minReplicas"},
		"autoscaling without a request":     {`{autoscaling: {enabled: true}, resources: {requests: {cpu: null}}}`, "resources.requests.cpu"},
		"keys job with a credential file":   {`{secrets: {k: {secretName: a}}, credentials: {source: file, file: k/keys.json}, keysJob: {enabled: true}}`, "keysJob needs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := helm(t, "template", "gatehouse", "chart", "--values", writeValues(t, test.values))
			require.Error(t, err, out)
			assert.Contains(t, out, test.want)
		})
	}
}

// No text in values.yaml, whoever adds it, may end a token of the Caddyfile or hold a placeholder.
func TestNoValueCanLeaveItsToken(t *testing.T) {
	t.Parallel()
	for _, hostile := range []string{`a"b`, `a\`, "a\nb", "`a`", "{$HOME}", "{env.HOME}", "a {"} {
		t.Run(hostile, func(t *testing.T) {
			t.Parallel()
			var values map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(read(t, "chart/values.yaml")), &values))
			for path, value := range map[string]any{ // what is empty there
				"trustedProxies": []any{""}, "secrets": map[string]any{"a": map[string]any{"secretName": ""}},
				"assertion": map[string]any{"keyFiles": []any{""}, "issuer": ""},
				"api": map[string]any{"docsPath": "", "docsOrigin": "", "upstreams": []any{
					map[string]any{"addresses": []any{""}, "resources": []any{""}, "caFile": "", "healthUri": ""},
				}},
			} {
				require.Contains(t, values, path)
				values[path] = value
			}
			paths := poison(values, hostile, "")
			require.Greater(t, len(paths), 50)
			text, err := yaml.Marshal(values)
			require.NoError(t, err)
			out, err := helm(t, "template", "gatehouse", "chart", "--values", writeValues(t, string(text)))
			require.Error(t, err)
			for _, path := range paths {
				assert.Contains(t, out, "- at '"+path+"': ")
			}
		})
	}
}

// poison replaces all texts within values, and returns their paths, without those of whole documents and of Kubernetes's own texts.
func poison(values any, hostile, path string) (paths []string) {
	switch v := values.(type) {
	case map[string]any:
		for name, value := range v {
			at := path + "/" + name
			if _, ok := value.(string); !ok {
				paths = append(paths, poison(value, hostile, at)...)
				continue
			}
			v[name] = hostile
			switch {
			case slices.Contains([]string{"/definition/document", "/definition/overlay", "/connect/overlay", "/caddyfile"}, at):
			case strings.HasSuffix(at, "/audience"), strings.Contains(at, "abels/"):
			default:
				paths = append(paths, at)
			}
		}
	case []any:
		for i, value := range v {
			at := path + "/" + strconv.Itoa(i)
			if _, ok := value.(string); ok {
				v[i] = hostile
				paths = append(paths, at)
				continue
			}
			paths = append(paths, poison(value, hostile, at)...)
		}
	}
	return paths
}

// Texts that are not part of the Caddyfile may contain anything. They arrive byte for byte, and create no other objects.
func TestHostileTextsStayTexts(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"document end":       "a\n---\nkind: Secret\n...\n",
		"template":           "{{ .Release.Name }} {{ fail \"no\" }}\n",
		"placeholders":       "{$HOME} {env.HOME} `$(id)`\n",
		"indented beginning": "    first: {\n\tsecond\n}\n",
		"blanks at the ends": "  a  \n   \n b \t\n\n\n",
		"line separators":    "a\u2028b\u2029c\r\nd\re",
		"quotation marks":    `a: "b' # c: [d, {e` + "\n\"\"\"\n",
		"comment":            "# only\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values, err := yaml.Marshal(map[string]any{
				"definition":     map[string]any{"document": text, "overlay": text},
				"connect":        map[string]any{"overlay": text},
				"caddyfile":      text,
				"podAnnotations": map[string]any{"example.com/text": text},
				"env":            map[string]any{"NULL": text},
				"podLabels":      map[string]any{"app.kubernetes.io/name": "other"},
				"service":        map[string]any{"annotations": map[string]any{"example.com/text": text}},
			})
			require.NoError(t, err)
			rendered := render(t, "--values", writeValues(t, string(values)))
			requireStrict(t, rendered)
			all := objects(t, rendered)
			require.Len(t, all, len(objects(t, render(t))))
			for _, o := range all {
				switch o.Kind + " " + o.Metadata.Name {
				case "ConfigMap gatehouse":
					for _, file := range []string{"Caddyfile", "openapi.yaml", "overlay.yaml", "assistants.yaml"} {
						assert.Equal(t, text, o.Data[file], file)
					}
				case "Service gatehouse":
					assert.Equal(t, text, o.Metadata.Annotations["example.com/text"])
				case "Deployment gatehouse":
					assert.Equal(t, text, o.pod(t).Metadata.Annotations["example.com/text"])
					assert.Equal(t, text, o.pod(t).container().Env[0].Value)
					assert.Equal(t, "gatehouse", o.pod(t).Metadata.Labels["app.kubernetes.io/name"])
				}
			}
		})
	}
}

func TestPageOnKubernetesNamesWhatExists(t *testing.T) {
	t.Parallel()
	page := read(t, "../docs/kubernetes.md")
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1)
	require.Len(t, blocks, 3)
	for _, block := range blocks {
		if strings.HasPrefix(block[1], "apiVersion: ") {
			requireStrict(t, block[1])
			assert.Contains(t, render(t), "    - name: http\n", "the port that the Ingress names")
			continue
		}
		rendered := render(t, "--values", writeValues(t, block[1]))
		requireStrict(t, rendered)
		requireUsable(t, objects(t, rendered)[slices.IndexFunc(objects(t, rendered), func(o object) bool { return o.Data["Caddyfile"] != "" })])
	}
	for _, template := range regexp.MustCompile(`--show-only (\S+)`).FindAllStringSubmatch(page, -1) {
		assert.FileExists(t, filepath.Join("chart", template[1]))
	}

	_, list, _ := strings.Cut(page, "## Not in the values")
	rows := regexp.MustCompile("(?m)^\\| (`.*?) (?:of `(.*?)` )?\\|").FindAllStringSubmatch(list, -1)
	require.Greater(t, len(rows), 5)
	for _, row := range rows {
		for _, name := range regexp.MustCompile("`(.*?)`").FindAllStringSubmatch(row[1], -1) {
			out, err := helm(t, "template", "gatehouse", "chart", "--set", strings.TrimPrefix(row[2]+"."+name[1]+"=1", "."))
			require.Error(t, err, out)
			assert.Contains(t, out, "'"+name[1]+"' not allowed")
		}
	}

	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "chart/values.yaml")), &values))
	named := 0
	for _, path := range regexp.MustCompile("`([a-zA-Z]+(?:\\.[a-zA-Z]+)+)(?:: [^`]+)?`").FindAllStringSubmatch(page, -1) {
		names := strings.Split(path[1], ".")
		if _, ok := values[names[0]]; !ok {
			continue
		}
		named++
		var at any = values
		for _, name := range names {
			object, ok := at.(map[string]any)
			require.True(t, ok, path[1])
			require.Contains(t, object, name, path[1])
			at = object[name]
		}
	}
	assert.Greater(t, named, 10)
}

func TestManifestsAreDecodedStrictly(t *testing.T) {
	t.Parallel()
	tools, err := buildTools()
	require.NoError(t, err)
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"
	for name, test := range map[string]struct{ manifest, want string }{
		"unknown field":  {service + "spec: {typ: ClusterIP}", `unknown field "spec.typ"`},
		"repeated field": {service + "spec: {}\nspec: {}", `"spec"`},
		"wrong type":     {service + "spec: {ports: 80}", "cannot unmarshal number"},
		"unknown kind":   {"apiVersion: v1\nkind: Sevrice", "Sevrice"},
		"second object":  {"# comment\n---\n" + service + "---\nkind: Service", "document 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), tools[1])
			cmd.Stdin = strings.NewReader(test.manifest)
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			assert.Contains(t, string(out), test.want)
		})
	}
}

// A subchart gets the values `global` and no others.
func TestChartMayBeADependency(t *testing.T) {
	t.Parallel()
	requireStrict(t, render(t, "--set", "global.region=eu"))
}

// object is what the tests read of an object.
type object struct {
	Kind     string            `yaml:"kind"`
	Metadata metadata          `yaml:"metadata"`
	Data     map[string]string `yaml:"data"`
	Spec     map[string]any    `yaml:"spec"`
}

type metadata struct {
	Name        string            `yaml:"name"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// objects reads rendered manifests.
func objects(t *testing.T, rendered string) []object {
	t.Helper()
	var all []object
	for decoder := yaml.NewDecoder(strings.NewReader(rendered)); ; {
		var o object
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			require.NotEmpty(t, all)
			return all
		} else if err != nil {
			require.NoError(t, err, rendered)
		}
		all = append(all, o)
	}
}

func writeValues(t *testing.T, values string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte(values), 0o600))
	return file
}

// render renders the chart as the release "gatehouse".
func render(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, append([]string{"template", "gatehouse", "chart"}, args...)...)
	require.NoError(t, err, out)
	return out
}

// buildTools builds helm and manifests once, and returns their paths.
var buildTools = sync.OnceValues(func() (tools [2]string, err error) {
	if out, err := exec.Command("../scripts/tool.sh", "helm", "version").CombinedOutput(); err != nil {
		return tools, errors.New(string(out))
	}
	bin, err := filepath.Abs("../.cache/bin")
	if err != nil {
		return tools, err
	}
	tools = [2]string{filepath.Join(bin, "helm"), filepath.Join(bin, "manifests")}
	build := exec.Command("go", "-C", "../tools", "build", "-trimpath", "-ldflags=-s -w", "-o", tools[1], "./manifests")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return tools, errors.New(string(out))
	}
	return tools, nil
})

// helm runs the pinned Helm, and returns its output, or its errors if there are any.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	tools, err := buildTools()
	require.NoError(t, err)
	var out, faults bytes.Buffer
	cmd := exec.CommandContext(t.Context(), tools[0], args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"KUBECACHEDIR="+home, "KUBECONFIG="+filepath.Join(home, "none"))
	cmd.Stdout, cmd.Stderr = &out, &faults
	if err := cmd.Run(); err != nil {
		return out.String() + faults.String(), err
	}
	return out.String(), nil
}

// requireStrict decodes every object into its Go type, and returns their kinds and names.
func requireStrict(t *testing.T, manifests string) string {
	t.Helper()
	tools, err := buildTools()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), tools[1])
	cmd.Stdin = strings.NewReader(manifests)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}
