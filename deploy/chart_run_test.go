package deploy_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/certtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/recordtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// The gateway runs with the rendered Caddyfile, arguments and mounts, and with a real Redis and Vault, which logs it in with the
// projected token. Only ports and the root of the mounts are the test's. The key pair is from the keys job.
func TestRenderedGatewayServesASignedRequest(t *testing.T) {
	t.Parallel()
	ca := certtest.NewCA(t)
	cert, key := ca.ServerCert(t)
	redis := redistest.Start(t, redistest.WithTLS(t), redistest.WithUser("gateway", "made-up",
		"~gatehouse:limit:* &gatehouse:* +@connection +@scripting +@pubsub +get +set +time -@dangerous +info"))
	server := vaulttest.Start(t, vaulttest.Options{})
	trustServiceAccounts(t, server, map[string]string{"gatehouse": "vault-policy.hcl", "gatehouse-keys": "vault-policy-operator.hcl"})
	service, err := demo.Open(t.Context(), demo.Memory, demo.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, service.Close()) })
	var assertions atomic.Int32
	data := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Gateway-Assertion") != "" {
			assertions.Add(1)
		}
		service.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(data.Close)

	values := writeValues(t, fmt.Sprintf(`
hosts: [127.0.0.1]
tls: {certFile: tls/tls.crt, keyFile: tls/tls.key}
secrets:
  tls: {secretName: api-tls}
  redis: {secretName: gatehouse-redis}
  hop: {secretName: gatehouse-hop}
redis: {urls: ["rediss://%s"], username: gateway, passwordFile: redis/password, caFile: redis/ca.crt}
credentials: {vault: {address: "%s/"}}
assertion: {keyFiles: [hop/hop.pem]}
api: {upstreams: [{addresses: ["%s"]}]}
keysJob: {enabled: true}
`, redis.Addr, server.Addr, data.URL))
	rendered := render(t, "--namespace", "platform", "--values", values)
	requireStrict(t, rendered)
	all := objects(t, rendered)
	secrets := map[string]map[string]string{
		"api-tls":         {"tls.crt": read(t, cert), "tls.key": read(t, key)},
		"gatehouse-redis": {"password": "made-up\n", "ca.crt": read(t, redis.CA.Path)},
		"gatehouse-hop":   {"hop.pem": newHopKey(t)},
	}
	business := demo.Businesses()[0]
	caller := issueInJob(t, mount(t, all, "Job", nil, secrets), business)
	caller.Client = &http.Client{Transport: &http.Transport{TLSClientConfig: ca.ClientTLS()}, Timeout: patience}

	gateway, _ := startRendered(t, all, secrets)
	gateway.URL = "https://" + gateway.Addr
	res := caller.Get(t, gateway.URL, "/api/v1/contacts")
	require.Equal(t, http.StatusOK, res.Status, res.Body)
	assert.Contains(t, res.Body, `{"contacts":[{`)
	assert.Positive(t, assertions.Load(), "data services get an assertion")
	assert.Equal(t, http.StatusOK, caller.Get(t, gateway.URL, "/.well-known/gatehouse-jwks.json").Status)
	unsigned := gatewaytest.Caller{Client: caller.Client}
	assert.Equal(t, http.StatusUnauthorized, unsigned.Get(t, gateway.URL, "/api/v1/contacts").Status)
	assert.Equal(t, http.StatusNotFound, unsigned.Get(t, gateway.URL, "/metrics").Status, "callers cannot read metrics")
	assert.Equal(t, http.StatusOK, unsigned.Get(t, strings.Replace(gateway.URL, "127.0.0.1", "localhost", 1), "/readyz").Status, "load balancers do not know the host")

	gateway.Signal(t, syscall.SIGTERM)
	require.Zero(t, gateway.ExitCode(t), gateway.Output())
	gatewaytest.RequireNowhere(t, gateway.Output(), caller.PrivateKey.Reveal(), "made-up")

	// The keys job has the documents that a Caddyfile of one's own names, which come from a ConfigMap.
	caddyfile := all[slices.IndexFunc(all, func(o object) bool { return o.Data["Caddyfile"] != "" })].Data["Caddyfile"]
	const before = "\tgatehouse_api {\n"
	require.Contains(t, caddyfile, before)
	file := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(caddyfile, before, before+"\t\tdefinition shop /run/secrets/docs/shop.yaml\n", 1)), 0o600))
	all = append(objects(t, render(t, "--namespace", "platform", "--values", values, "--set-file", "caddyfile="+file, "--set", "secrets.docs.configMapName=shop-docs")),
		object{Kind: "ConfigMap", Metadata: metadata{Name: "shop-docs"}, Data: map[string]string{"shop.yaml": `{openapi: 3.1.0,
			info: {title: Shop, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: owner, paths: {/owner: {get: {operationId: getOwner,
			responses: {"200": {description: "", content: {application/json: {schema: {type: object, properties: {owner: {type: string}}}}}}}}}}}`}})
	issueInJob(t, mount(t, all, "Job", nil, secrets), business)
}

// An API of one's own from a ConfigMap, and a credential file from a Secret that Kubernetes replaces.
func TestRenderedGatewayServesADefinition(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"owner":%q,"margin":1}`, r.Header.Get("X-Business-Id"))
	}))
	t.Cleanup(service.Close)
	values := writeValues(t, fmt.Sprintf(`
hosts: [127.0.0.1]
trustedProxies: [10.20.0.0/16]
secrets: {keys: {secretName: keys}}
redis: {urls: ["redis://%s"]}
credentials: {source: file, file: keys/keys.json}
definition:
  document: |
    {openapi: 3.1.0, info: {title: Shop, version: "1"}, servers: [{url: /v1}], paths: {/owner: {get: {operationId: getOwner,
      responses: {"200": {description: "", content: {application/json: {schema: {type: object, properties: {owner: {type: string}}}}}}}}}}}
  overlay: |
    {overlay: 1.0.0, info: {title: Shop, version: "1"}, actions: [{target: $, update: {x-gatehouse-tenant: owner}}]}
api: {upstreams: [{addresses: ["%s"]}]}
`, redistest.Start(t).Addr, service.URL))
	issue := func() (gatewaytest.Caller, map[string]map[string]string) {
		file := filepath.Join(t.TempDir(), "keys.json")
		out, err := gatewaytest.Command(t, nil, "keys", "issue", "--json", "--file", file,
			"--business-id", "b-1", "--business-name", "Harbour Bakery", "--business-slug", "harbour-bakery")
		require.NoError(t, err, out)
		return issuedCaller(t, []byte(out)), map[string]map[string]string{"keys": {"keys.json": read(t, file)}}
	}
	first, secrets := issue()
	gateway, p := startRendered(t, objects(t, render(t, "--values", values)), secrets)
	res := first.Get(t, gateway.URL, "/v1/owner")
	require.Equal(t, http.StatusOK, res.Status, res.Body)
	assert.Equal(t, `{"owner":"b-1"}`, res.Body)

	second, secrets := issue()
	project(t, p.root+"/run/secrets/keys", "..2027", secrets["keys"], 0o440)
	require.Eventually(t, func() bool { return second.Get(t, gateway.URL, "/v1/owner").Status == http.StatusOK }, patience, 100*time.Millisecond)
	require.Eventually(t, func() bool { return first.Get(t, gateway.URL, "/v1/owner").Status == http.StatusUnauthorized }, patience, 100*time.Millisecond)
}

// startRendered starts the Deployment's gateway on ports of the test's, with a timeout for Vault that a busy machine does not exceed, and
// waits until its probes succeed.
func startRendered(t *testing.T, all []object, secrets map[string]map[string]string) (*gatewaytest.Gateway, pod) {
	t.Helper()
	gateway := gatewaytest.New(t, gatewaytest.Options{})
	_, port, _ := strings.Cut(gateway.Addr, ":")
	probes := gatewaytest.FreeAddr(t)
	_, probePort, _ := strings.Cut(probes, ":")
	p := mount(t, all, "Deployment", []string{
		"localhost:2019", strings.TrimPrefix(gateway.AdminURL, "http://"), ":8080", ":" + port, ":8443", ":" + port, ":9180", ":" + probePort,
		"\t\t\tmount \"", "\t\t\ttimeout 10s\n\t\t\tmount \"", "\t\tlimits {\n", "\t\tcache {\n\t\t\tlookup_timeout 10s\n\t\t}\n\n\t\tlimits {\n",
	}, secrets)
	require.Equal(t, []string{"run", "--config", "/etc/gatehouse/Caddyfile", "--adapter", "caddyfile"}, p.container().Args)
	gateway.Config = filepath.Join(p.root, "etc", "gatehouse", "Caddyfile")
	gateway.Run(t)
	for _, probe := range []probe{p.container().StartupProbe, p.container().LivenessProbe, p.container().ReadinessProbe} {
		require.Equal(t, "metrics", probe.HTTPGet.Port)
		require.Eventually(t, func() bool {
			return gatewaytest.Caller{}.Get(t, "http://"+probes, probe.HTTPGet.Path).Status == http.StatusOK
		}, patience, 20*time.Millisecond, probe.HTTPGet.Path)
	}
	require.Contains(t, gatewaytest.Caller{}.Get(t, "http://"+probes, "/metrics").Body, "gatehouse_build_info{")
	return gateway, p
}

// issueInJob starts the keys job and issues a key pair in it, as `kubectl exec` does. The job's log has no part of it.
func issueInJob(t *testing.T, p pod, business demo.Business) gatewaytest.Caller {
	t.Helper()
	var log recordtest.Output
	env := os.Environ()
	for _, variable := range p.container().Env {
		env = append(env, variable.Name+"="+p.replacer.Replace(variable.Value))
	}
	idle := exec.CommandContext(context.Background(), gatewaytest.Binary(t), p.container().Args...)
	idle.Dir, idle.Env, idle.Stdout, idle.Stderr = p.root+p.container().WorkingDir, env, &log, &log
	process, err := processtest.Start(idle)
	require.NoError(t, err)
	t.Cleanup(process.Kill)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "serving initial configuration") }, patience, 20*time.Millisecond)

	issue := exec.CommandContext(t.Context(), gatewaytest.Binary(t), "keys", "issue", "--config", filepath.Join(p.root, "etc", "gatehouse", "Caddyfile"),
		"--json", "--business-id", business.ID, "--business-name", business.Name, "--business-slug", business.Slug)
	issue.Env = env
	out, err := issue.Output()
	require.NoError(t, err, log.String())
	issued := issuedCaller(t, out)
	require.False(t, process.Ended())
	require.NoError(t, process.End(syscall.SIGTERM))
	require.Zero(t, process.State().ExitCode(), log.String())
	gatewaytest.RequireNowhere(t, log.String(), issued.PrivateKey.Reveal(), "sk_live_", "made-up")
	return issued
}

// issuedCaller reads what `gatehouse keys issue --json` prints.
func issuedCaller(t *testing.T, out []byte) gatewaytest.Caller {
	t.Helper()
	var issued struct {
		PublicKey  string            `json:"public_key"`
		PrivateKey authsigner.Secret `json:"private_key"`
	}
	require.NoError(t, json.Unmarshal(out, &issued))
	require.NotEmpty(t, issued.PrivateKey.Reveal())
	return gatewaytest.Caller{PublicKey: issued.PublicKey, PrivateKey: issued.PrivateKey}
}

// trustServiceAccounts lets service accounts of the namespace platform log in to Vault, each with the policy in a file. As
// docs/kubernetes.md says.
func trustServiceAccounts(t *testing.T, server *vaulttest.Server, policies map[string]string) {
	t.Helper()
	cluster := httptest.NewTLSServer(http.HandlerFunc(reviewToken))
	t.Cleanup(cluster.Close)
	root := server.Client(t)
	_, err := root.Logical().WriteWithContext(t.Context(), "auth/kubernetes/config", map[string]any{
		"kubernetes_host": cluster.URL, "disable_local_ca_jwt": true, "token_reviewer_jwt": serviceAccountToken("reviewer"),
		"kubernetes_ca_cert": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cluster.Certificate().Raw})),
	})
	require.NoError(t, err)
	for account, file := range policies {
		role := map[string]string{"gatehouse": "gatehouse-gateway", "gatehouse-keys": "gatehouse-operator"}[account]
		require.NoError(t, root.Sys().PutPolicyWithContext(t.Context(), role, read(t, file)))
		_, err = root.Logical().WriteWithContext(t.Context(), "auth/kubernetes/role/"+role, map[string]any{
			"bound_service_account_names": account, "bound_service_account_namespaces": "platform", "audience": "vault",
			"token_policies": role, "token_no_default_policy": true, "token_ttl": "1h",
		})
		require.NoError(t, err)
	}
}

// serviceAccountToken returns a token as the kubelet projects it. Its signature is one only for reviewToken.
func serviceAccountToken(account string) string {
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return part(map[string]string{"alg": "RS256"}) + "." + part(map[string]any{
		"aud": []string{"vault"}, "iss": "https://kubernetes.default.svc", "exp": time.Now().Add(time.Hour).Unix(),
		"nbf": time.Now().Add(-time.Minute).Unix(), "iat": time.Now().Add(-time.Minute).Unix(),
		"sub": "system:serviceaccount:platform:" + account,
		"kubernetes.io": map[string]any{
			"namespace": "platform", "serviceaccount": map[string]string{"name": account, "uid": "u-" + account},
		},
	}) + "." + part("signature")
}

// reviewToken is Kubernetes's TokenReview API.
func reviewToken(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Spec struct {
			Token     string   `json:"token"`
			Audiences []string `json:"audiences"`
		} `json:"spec"`
	}
	if r.URL.Path != "/apis/authentication.k8s.io/v1/tokenreviews" || json.NewDecoder(r.Body).Decode(&review) != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	status := map[string]any{"authenticated": false}
	for _, account := range []string{"gatehouse", "gatehouse-keys"} {
		claims, _, _ := strings.Cut(strings.SplitN(review.Spec.Token+"..", ".", 2)[1], ".")
		text, _ := base64.RawURLEncoding.DecodeString(claims)
		if strings.Contains(string(text), `"sub":"system:serviceaccount:platform:`+account+`"`) {
			status = map[string]any{"authenticated": true, "audiences": review.Spec.Audiences, "user": map[string]any{
				"username": "system:serviceaccount:platform:" + account, "uid": "u-" + account,
				"groups": []string{"system:serviceaccounts", "system:serviceaccounts:platform"},
			}}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status})
}

// pod is what the tests read of a pod, and where its volumes are.
type pod struct {
	root     string
	replacer *strings.Replacer // of paths in the container
	Metadata metadata          `yaml:"metadata"`
	Spec     struct {
		ServiceAccountName            string      `yaml:"serviceAccountName"`
		AutomountServiceAccountToken  *bool       `yaml:"automountServiceAccountToken"`
		TerminationGracePeriodSeconds int         `yaml:"terminationGracePeriodSeconds"`
		SecurityContext               any         `yaml:"securityContext"`
		Containers                    []container `yaml:"containers"`
		Volumes                       []struct {
			Name      string `yaml:"name"`
			ConfigMap *struct {
				Name string `yaml:"name"`
			} `yaml:"configMap"`
			Secret *struct {
				SecretName  string      `yaml:"secretName"`
				DefaultMode os.FileMode `yaml:"defaultMode"`
			} `yaml:"secret"`
			Projected *struct {
				Sources []struct {
					ServiceAccountToken struct {
						Path     string `yaml:"path"`
						Audience string `yaml:"audience"`
					} `yaml:"serviceAccountToken"`
				} `yaml:"sources"`
			} `yaml:"projected"`
		} `yaml:"volumes"`
	} `yaml:"spec"`
}

type container struct {
	Args       []string `yaml:"args"`
	WorkingDir string   `yaml:"workingDir"`
	Env        []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"env"`
	SecurityContext any `yaml:"securityContext"`
	Lifecycle       struct {
		PreStop struct {
			Sleep struct {
				Seconds int `yaml:"seconds"`
			} `yaml:"sleep"`
		} `yaml:"preStop"`
	} `yaml:"lifecycle"`
	VolumeMounts []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
	StartupProbe   probe `yaml:"startupProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
}

type probe struct {
	HTTPGet struct {
		Path string `yaml:"path"`
		Port string `yaml:"port"`
	} `yaml:"httpGet"`
}

func (p pod) container() container { return p.Spec.Containers[0] }

// pod returns the pod that a Deployment or Job makes.
func (o object) pod(t *testing.T) pod {
	t.Helper()
	text, err := json.Marshal(o.Spec["template"]) // the YAML encoder cannot write all texts
	require.NoError(t, err)
	var p pod
	require.NoError(t, yaml.Unmarshal(text, &p))
	require.Len(t, p.Spec.Containers, 1)
	return p
}

// mount lays out the volumes of a pod below a directory, as the kubelet does below the container's root. In the Caddyfile, it
// replaces the mounts' paths, and what replace has in pairs.
func mount(t *testing.T, all []object, kind string, replace []string, secrets map[string]map[string]string) pod {
	t.Helper()
	var p pod
	configs := map[string]map[string]string{}
	for _, o := range all {
		switch o.Kind {
		case kind:
			p = o.pod(t)
		case "ConfigMap":
			configs[o.Metadata.Name] = o.Data
		}
	}
	p.root = t.TempDir()
	paths := map[string]string{} // of volumes
	for _, m := range p.container().VolumeMounts {
		paths[m.Name] = p.root + m.MountPath
		replace = append(replace, m.MountPath+"/", paths[m.Name]+"/")
	}
	p.replacer = strings.NewReplacer(replace...)
	for _, v := range p.Spec.Volumes {
		require.Contains(t, paths, v.Name, "a volume that is not mounted")
		files, mode := map[string]string{}, os.FileMode(0o644)
		switch {
		case v.ConfigMap != nil:
			require.Contains(t, configs, v.ConfigMap.Name)
			for name, text := range configs[v.ConfigMap.Name] {
				files[name] = p.replacer.Replace(text)
			}
		case v.Secret != nil:
			require.Contains(t, secrets, v.Secret.SecretName)
			files, mode = secrets[v.Secret.SecretName], v.Secret.DefaultMode
		case v.Projected != nil:
			token := v.Projected.Sources[0].ServiceAccountToken
			require.Equal(t, "vault", token.Audience)
			files[token.Path] = serviceAccountToken(p.Spec.ServiceAccountName)
		}
		project(t, paths[v.Name], "..2026", files, mode)
		for name := range files {
			require.NoError(t, os.Symlink("..data/"+name, filepath.Join(paths[v.Name], name)))
		}
	}
	return p
}

// project replaces the content of a volume, as the kubelet does: in a new directory, and with the link ..data to it.
func project(t *testing.T, volume, version string, files map[string]string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(volume, version), 0o755))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(volume, version, name), []byte(text), mode))
	}
	require.NoError(t, os.Symlink(version, filepath.Join(volume, "..new")))
	require.NoError(t, os.Rename(filepath.Join(volume, "..new"), filepath.Join(volume, "..data")))
}

func newHopKey(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
