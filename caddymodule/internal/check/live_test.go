package check_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/check"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// probed are the parts of a configuration that probes look at.
type probed struct {
	redis, credentials, app, service, connect string
	api, listen                               string
}

// probe checks a configuration with live stores, and returns the rules of probes that find something.
func probe(t *testing.T, p probed) (ids []string, text string) {
	t.Helper()
	report, text, _ := probeWith(t, p)
	for _, f := range report.Findings {
		ids = append(ids, f.Rule)
	}
	return slices.Compact(ids), text
}

// probeWith returns the findings of probes and of the loader, what was skipped, what was printed, and the exit status.
func probeWith(t *testing.T, p probed, args ...string) (report check.Report, text, status string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "keys.json"), []byte(`{"keys":{}}`), 0o600))
	if p.credentials == "" {
		p.credentials = "credentials file " + filepath.Join(dir, "keys.json")
	}
	if p.listen == "" {
		p.listen = "127.0.0.1:0"
	}
	if p.connect != "" {
		p.connect = "gatehouse_connect {\nissuer http://127.0.0.1:8080\nupstream " + p.service + "\n" + p.connect + "\n}\n"
	}
	path := filepath.Join(dir, "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte(strings.NewReplacer(
		"REDIS", p.redis, "CREDENTIALS", p.credentials, "APP", p.app, "SERVICE", p.service, "CONNECT", p.connect, "LISTEN", p.listen, "API", cmp.Or(p.api, "upstream "+p.service),
	).Replace(`{
	admin off
	auto_https off
	gatehouse {
		REDIS
		CREDENTIALS
		APP
	}
}
http://LISTEN {
	CONNECT
	gatehouse_api {
		API
	}
}
`)), 0o600))
	stdout, stderr, status := runCheck(t, append([]string{"--json", "--config", path}, args...)...)
	require.NoError(t, json.Unmarshal([]byte(stdout), &report), stdout+stderr)
	report.Findings = slices.DeleteFunc(report.Findings, func(f check.Finding) bool { return f.Rule < "GH030" && f.Rule != "GH001" })
	for _, f := range report.Findings {
		require.Positive(t, f.Line)
	}
	return report, stdout + stderr, status
}

func TestCheckProbesRedis(t *testing.T) {
	service := soundService(t)
	const connectDocs = "~gatehouse:* ~rate:gatehouse:* &gatehouse:* +@connection +@scripting +@pubsub +@transaction +@read +@write +time -@dangerous +info"
	const docs = "+@connection +@scripting +@pubsub +get +set +del +time -@dangerous +info ~gatehouse:limit:* ~rate:gatehouse:limit:* &gatehouse:*"
	server := redistest.Start(t, redistest.WithConfig("appendonly", "yes"), redistest.WithUser("limits", "pass", docs),
		redistest.WithUser("narrow", "pass", "+@connection +@pubsub +get +set +del +info ~gatehouse:* &gatehouse:*"),
		redistest.WithUser("connect", "pass", connectDocs), redistest.WithUser("norate", "pass", strings.ReplaceAll(connectDocs, "~rate:gatehouse:*", "")),
		redistest.WithUser("some", "pass", connectDocs+" -lrange -xadd -hincrby -hrandfield -getex"),
		redistest.WithUser("undeleted", "pass", strings.ReplaceAll(docs, "+del ", "")))
	open := redistest.Start(t, redistest.WithConfig("appendonly", "yes"))
	evicting := redistest.Start(t, redistest.WithConfig("maxmemory", "100mb"), redistest.WithConfig("maxmemory-policy", "allkeys-lru"))
	unlogged, stopped := redistest.Start(t), redistest.Start(t)
	ahead := redistest.Start(t, redistest.WithConfig("appendonly", "yes"), redistest.WithClock())
	require.NoError(t, ahead.StepClock(11*time.Minute))
	require.NoError(t, stopped.Stop())
	as := func(user string) string {
		return "redis " + server.URL() + " {\nusername " + user + "\npassword {env.CHECK_PASSWORD}\n}"
	}
	t.Setenv("CHECK_PASSWORD", "pass")
	for name, c := range map[string]struct {
		p    probed
		want []string
		says string
	}{
		"healthy":                           {probed{redis: "redis " + open.URL(), connect: "name x"}, nil, ""},
		"evicting":                          {probed{redis: "redis " + evicting.URL()}, []string{"GH033"}, "allkeys-lru"},
		"without a log":                     {probed{redis: "redis " + evicting.URL(), connect: "name x"}, []string{"GH033", "GH034"}, "appendonly"},
		"stopped":                           {probed{redis: "redis " + stopped.URL()}, []string{"GH030"}, "does not respond"},
		"the documented ACL":                {probed{redis: as("limits")}, nil, ""},
		"a narrow ACL":                      {probed{redis: as("narrow")}, []string{"GH031"}, "may not run TIME, EVAL on"},
		"for assistants":                    {probed{redis: as("limits"), connect: "name x"}, []string{"GH031"}, "HSET"},
		"the documented ACL for assistants": {probed{redis: as("connect"), connect: "name x"}, nil, ""},
		"their limits":                      {probed{redis: as("norate"), connect: "name x"}, []string{"GH031"}, "may not run GET for rate:gatehouse:*, EVAL for rate:gatehouse:* on"},
		"no log, for services":              {probed{redis: "redis " + unlogged.URL(), api: "upstream " + service + "\n}\nhandle /a/* {\ngatehouse_auth shop\nreverse_proxy localhost:5"}, []string{"GH067", "GH064", "GH072"}, "appendonly"},
		"gcra":                              {probed{redis: as("norate"), app: "limits {\nalgorithm gcra\n}"}, []string{"GH031"}, "may not run GET for rate:gatehouse:*, EVAL for rate:gatehouse:* on"},
		"the documented ACL for gcra":       {probed{redis: as("limits"), app: "limits {\nalgorithm gcra\n}"}, nil, ""},
		"no deletion of writes":             {probed{redis: as("undeleted")}, []string{"GH031"}, "may not run DEL on"},
		"some commands":                     {probed{redis: as("some"), connect: "name x"}, []string{"GH031"}, "may not run HRANDFIELD, HINCRBY, LRANGE, XADD, GETEX on"},
		"a wrong clock":                     {probed{redis: "redis " + ahead.URL()}, []string{"GH043"}, "the clocks of Redis and this machine differ by 1"},
		"a wrong password":                  {probed{redis: "redis " + server.URL() + " {\nusername limits\npassword {env.HOME}\n}"}, []string{"GH030"}, "WRONGPASS"},
		"not a Cluster":                     {probed{redis: "redis " + open.URL() + " {\ncluster\n}"}, []string{"GH030"}, "cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			c.p.service = service
			ids, text := probe(t, c.p)
			assert.Equal(t, c.want, ids, text)
			assert.Contains(t, text, c.says)
		})
	}
	definition, err := filepath.Abs("../../../examples/orders/orders")
	require.NoError(t, err)
	ids, text := probe(t, probed{redis: "redis " + redistest.Start(t).URL(), service: service, api: "definition orders " + definition + ".openapi.yaml {\noverlay " + definition + ".gatehouse.yaml\n}\nupstream " + service})
	require.Contains(t, ids, "GH034", "which signed writes were accepted is lost")
	require.Contains(t, text, "signed writes")
	client := open.Client(t)
	keys, err := client.Keys(t.Context(), "*check:*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		assert.NotEqual(t, time.Duration(-1), client.PTTL(t.Context(), key).Val(), "%s must expire", key)
	}
}

// A server in the place of Redis does not control the terminal.
func TestCheckEscapesWhatStoresSay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(strings.Repeat("-ERR \x1b]0;attack\x07\r\n", 10)))
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	path := filepath.Join(t.TempDir(), "caddy.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"admin":{"disabled":true},"apps":{"gatehouse":{"redis":{"urls":["redis://`+l.Addr().String()+`"]},"credentials":{"source":"file","path":"`+path+`.keys"}}}}`), 0o600))
	require.NoError(t, os.WriteFile(path+".keys", []byte(`{"keys":{}}`), 0o600))
	stdout, stderr, _ := runCheck(t, "--config", path)
	assert.Contains(t, stdout, "GH030")
	assert.Contains(t, stdout, `\u001b]0;attack`)
	assert.NotContains(t, stdout+stderr, "\x1b")
}

// What the user of Redis does not permit to check is part of the report, and not a success.
func TestCheckReportsWhatIsNotChecked(t *testing.T) {
	const blind = "+@connection +@scripting +@pubsub +@transaction +@read +@write +time -@dangerous ~gatehouse:* ~rate:gatehouse:* &gatehouse:*"
	server := redistest.Start(t, redistest.WithConfig("appendonly", "no"), redistest.WithUser("blind", "pass", blind),
		redistest.WithUser("documented", "pass", blind+" +info"))
	t.Setenv("CHECK_PASSWORD", "pass")
	p := probed{service: soundService(t), connect: "name x"}
	const why = "its user may not run INFO, which +info permits"

	p.redis = "redis redis://" + server.Addr + " {\nusername blind\npassword {env.CHECK_PASSWORD}\n}"
	report, text, status := probeWith(t, p, "--business", knownBusiness)
	require.Empty(t, report.Findings)
	require.Equal(t, []check.Skip{{What: "memory policy and persistence of Redis", Why: why}}, report.Skipped, text)
	require.Equal(t, "2", status)
	require.Contains(t, text, `"findings":[]`)

	p.redis = strings.Replace(p.redis, "blind", "documented", 1)
	report, text, status = probeWith(t, p, "--business", knownBusiness)
	require.Len(t, report.Findings, 1, text)
	assert.Equal(t, "GH034", report.Findings[0].Rule)
	assert.Empty(t, report.Skipped)
	assert.Contains(t, text, `"skipped":[]`)
	assert.Equal(t, "1", status)
}

func TestCheckProbesCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.WithConfig("appendonly", "yes"))
	node, service := "redis redis://"+cluster.Addrs()[0], soundService(t)
	ids, text := probe(t, probed{redis: node + " {\ncluster\n}", service: service, connect: "name x"})
	require.Empty(t, ids, text)
	ids, text = probe(t, probed{redis: node, service: service})
	require.Equal(t, []string{"GH035"}, ids, text)

	for _, addr := range cluster.Addrs() {
		client := redis.NewClient(&redis.Options{Addr: addr})
		require.NoError(t, client.ClusterDelSlots(t.Context(), 7).Err())
		require.NoError(t, client.Close())
	}
	ids, text = probe(t, probed{redis: node + " {\ncluster\n}", service: service, connect: "name x"})
	assert.Equal(t, []string{"GH035"}, ids, text)
	assert.Contains(t, text, "16383 of 16384 slots")
}

// A proxy replaces the version in the response to HELLO.
func TestCheckFindsAnOldRedis(t *testing.T) {
	server := redistest.Start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	version := regexp.MustCompile(`(\$7\r\nversion\r\n\$\d+\r\n)\d`)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			redis, err := net.Dial("tcp", strings.TrimPrefix(server.URL(), "redis://"))
			if err != nil {
				_ = client.Close()
				return
			}
			go func() {
				_, _ = io.Copy(redis, client)
				_ = redis.Close()
			}()
			go func() {
				defer func() { _ = client.Close() }()
				buffer := make([]byte, 64<<10)
				for {
					n, err := redis.Read(buffer)
					if _, failed := client.Write(version.ReplaceAll(buffer[:n], []byte("${1}6"))); err != nil || failed != nil {
						return
					}
				}
			}()
		}
	}()
	ids, text := probe(t, probed{redis: "redis redis://" + listener.Addr().String(), service: soundService(t)})
	assert.Equal(t, []string{"GH032"}, ids, text)
	assert.Contains(t, text, "the version of Redis is 6.")
}

// A proxy delays Vault's health response and changes the time in it.
func TestCheckFindsASlowVaultWithAnotherClock(t *testing.T) {
	server := vaulttest.Start(t, vaulttest.Options{})
	target, err := url.Parse(server.Addr)
	require.NoError(t, err)
	now := regexp.MustCompile(`"server_time_utc":\d+`)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(res *http.Response) error {
		if !strings.HasSuffix(res.Request.URL.Path, "/sys/health") {
			return nil
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		body = now.ReplaceAll(body, []byte(fmt.Sprintf(`"server_time_utc":%d`, time.Now().Add(time.Hour).Unix())))
		select {
		case <-time.After(check.SlowVault + 100*time.Millisecond): // what is measured
		case <-res.Request.Context().Done():
		}
		res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		res.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return nil
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	t.Setenv("CHECK_TOKEN", server.RootToken)
	ids, text := probe(t, probed{
		redis: "redis " + redistest.Start(t).URL(), service: soundService(t),
		credentials: "credentials vault " + front.URL + " {\nauth token {env.CHECK_TOKEN}\n}",
	})
	assert.Equal(t, []string{"GH042", "GH043", "GH044"}, ids, text)
	assert.Contains(t, text, "the clocks of Vault and this machine differ by")
	assert.Contains(t, text, "to respond")
}

func TestCheckProbesVault(t *testing.T) {
	redis, service := "redis "+redistest.Start(t, redistest.WithConfig("appendonly", "yes")).URL(), soundService(t)
	server := vaulttest.Start(t, vaulttest.Options{})
	policy := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", name))
		require.NoError(t, err)
		return string(text)
	}
	narrow := strings.ReplaceAll(policy("vault-policy.hcl"), "gateway/keys", "gateway/others")
	source := func(auth string) string { return "credentials vault " + server.Addr + " {\nauth " + auth + "\n}" }
	login := func(t *testing.T, name, rules string) string {
		t.Helper()
		role, secret := server.AppRole(t, name, rules, map[string]any{"token_no_default_policy": true}) // as by vault-setup.sh
		t.Setenv("CHECK_SECRET_ID", secret)
		return source("approle " + role + " {env.CHECK_SECRET_ID}")
	}
	// On a busy machine, Vault can be slow (GH044, see TestCheckFindsASlowVaultWithAnotherClock).
	probeVault := func(t *testing.T, p probed) (ids []string, text string) {
		t.Helper()
		all, text := probe(t, p)
		for _, id := range all {
			if id != "GH044" {
				ids = append(ids, id)
			}
		}
		return ids, text
	}
	for name, c := range map[string]struct {
		rules, manage string
		want          []string
		says          string
	}{
		"as documented":                   {policy("vault-policy.hcl"), "", nil, ""},
		"for operators":                   {policy("vault-policy-operator.hcl"), "manage_keys", nil, ""},
		"for operators who read metadata": {strings.Replace(policy("vault-policy-operator.hcl"), `["delete"]`, `["read", "delete"]`, 1), "manage_keys", nil, ""},
		"for operators though not needed": {policy("vault-policy-operator.hcl"), "", []string{"GH042"}, "update of kv/data/gateway/keys/"},
		"for gateways though managing":    {policy("vault-policy.hcl"), "manage_keys", []string{"GH041"}, "list of kv/metadata/gateway/keys/"},
		"of one prefix":                   {strings.Replace(policy("vault-policy.hcl"), "keys/*", "keys/pk_live_*", 1), "", []string{"GH049"}, "denies the entry of the key check0000000"},
		"of another path":                 {narrow, "", []string{"GH041"}, "read of kv/data/gateway/keys/"},
	} {
		t.Run(name, func(t *testing.T) {
			p := probed{redis: redis, service: service, credentials: login(t, strings.ReplaceAll(name, " ", "-"), c.rules), connect: c.manage}
			ids, text := probeVault(t, p)
			assert.Equal(t, c.want, ids, text)
			assert.Contains(t, text, c.says)
		})
	}
	t.Run("a login that may not ask for its capabilities", func(t *testing.T) {
		hidden := strings.ReplaceAll(policy("vault-policy-operator.hcl"), "sys/capabilities-self", "sys/other")
		_, text := probeVault(t, probed{redis: redis, service: service, credentials: login(t, "hidden", hidden)})
		assert.Contains(t, text, `"what":"the capabilities of the login to Vault","why":"it may not ask for them: let its policy update sys/capabilities-self"`)
	})
	t.Run("a root token", func(t *testing.T) {
		t.Setenv("CHECK_TOKEN", server.RootToken)
		ids, text := probeVault(t, probed{redis: redis, service: service, credentials: source("token {env.CHECK_TOKEN}")})
		assert.Equal(t, []string{"GH042"}, ids, text)
		assert.NotContains(t, text, server.RootToken)
	})
	t.Run("a wrong login", func(t *testing.T) {
		t.Setenv("CHECK_TOKEN", "hvs.wrong")
		ids, text := probe(t, probed{redis: redis, service: service, credentials: source("approle nobody {env.CHECK_TOKEN}")})
		assert.Equal(t, []string{"GH040"}, ids, text)
		assert.NotContains(t, text, "hvs.wrong")
	})
}

func TestCheckProbesListenersAndRecords(t *testing.T) {
	redis, service := "redis "+redistest.Start(t).URL(), soundService(t)
	t.Run("an address in use", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		_, port, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		ids, text := probe(t, probed{redis: redis, service: service, listen: "localhost:" + port})
		require.Equal(t, []string{"GH060"}, ids, text)
	})
	t.Run("a malformed record", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "keys.json")
		require.NoError(t, os.WriteFile(file, []byte(`{"keys":{"pk_live_0123456789":{"private_key":"s3cret","status":"sometimes"}}}`), 0o600))
		ids, text := probe(t, probed{redis: redis, service: service, credentials: "credentials file " + file})
		assert.Equal(t, []string{"GH045"}, ids, text)
		assert.Contains(t, text, "pk_live_0123456789")
		assert.NotContains(t, text, "s3cret")
	})
	t.Run("a private key in place of the public one", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "keys.json")
		require.NoError(t, os.WriteFile(file, []byte(`{"keys":{"sk_live_s3cret0123456789":{"private_key":"pk_live_0123456789","status":"active"}}}`), 0o600))
		ids, text := probe(t, probed{redis: redis, service: service, credentials: "credentials file " + file})
		assert.Equal(t, []string{"GH045"}, ids, text)
		assert.Contains(t, text, "the key sk_… cannot be used")
		assert.NotContains(t, text, "s3cret")
	})
}
