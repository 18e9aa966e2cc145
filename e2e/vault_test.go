package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// vaultEnvironment is an environment whose credentials are in Vault.
type vaultEnvironment struct {
	*environment
	vault *vaulttest.Server
	// proxy records the gateways' requests to Vault.
	proxy *vaultProxy
	// env are the variables of the configurations' placeholders; the gateways' secret ID is in a file.
	env          []string
	secretIDFile string
	secretID     string
	mount        string
	keys         keysCLI
}

func newVaultEnvironment(t *testing.T, o vaulttest.Options) *vaultEnvironment {
	t.Helper()
	return vaultIn(t, newEnvironment(t, nil), o)
}

// vaultIn adds a Vault to an environment.
func vaultIn(t *testing.T, around *environment, o vaulttest.Options) *vaultEnvironment {
	t.Helper()
	w := &vaultEnvironment{environment: around, vault: vaulttest.Start(t, o), mount: "kv"}
	w.proxy = newVaultProxy(t, w.vault.Addr)
	roleID, secretID := w.vault.AppRole(t, "gateway", vaulttest.ReadPolicy, nil)
	operatorID, operatorSecret := w.vault.AppRole(t, "operator", vaulttest.ManagePolicy, nil)
	w.secretID = secretID
	w.secretIDFile = filepath.Join(t.TempDir(), "secret-id")
	require.NoError(t, os.WriteFile(w.secretIDFile, []byte(secretID+"\n"), 0o600))
	w.env = []string{"TEST_ROLE_ID=" + roleID, "TEST_OPERATOR=" + operatorID, "TEST_OPERATOR_SECRET=" + operatorSecret}
	w.setMount(t, "kv")
	return w
}

// setMount chooses the KV engine: kv is version 2, kv1 version 1.
func (w *vaultEnvironment) setMount(t *testing.T, mount string) {
	t.Helper()
	w.mount = mount
	config := filepath.Join(t.TempDir(), "operator.caddyfile")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `{
	gatehouse {
		redis %s
		credentials vault %s {
			mount %s
			auth approle {env.TEST_OPERATOR} {env.TEST_OPERATOR_SECRET}
		}
	}
}
`, w.redis.URL(), w.vault.Addr, mount), 0o600))
	w.keys = keysCLI{source: []string{"--config", config, "--adapter", "caddyfile"}, env: w.env}
}

// longVaultTimeout is an option of the block cache with which gateways wait longer for Vault, because the machine may be busy.
const longVaultTimeout = "lookup_timeout 10s"

// options returns the usual gateway's options with credentials in Vault; app is put into the block gatehouse.
func (w *vaultEnvironment) options(app string) gatewaytest.Options {
	if !strings.Contains(app, "cache {") {
		app += "\n\t\tcache {\n\t\t\t" + longVaultTimeout + "\n\t\t}"
	}
	o := w.environment.options(app, "")
	o.Global = strings.Replace(o.Global, "credentials file "+w.keyFile, fmt.Sprintf(
		"credentials vault %s {\n\t\t\tmount %s\n\t\t\tauth approle {env.TEST_ROLE_ID} {file.%s}\n\t\t\ttimeout 10s\n\t\t}",
		w.proxy.URL, w.mount, w.secretIDFile), 1)
	o.Env = w.env
	return o
}

func (w *vaultEnvironment) gateway(t *testing.T, app string) *gatewaytest.Gateway {
	t.Helper()
	return gatewaytest.Start(t, w.options(app))
}

// vaultProxy forwards to Vault and records lookups.
type vaultProxy struct {
	*httptest.Server
	mu      sync.Mutex
	asked   []string // methods and targets
	lookups []string
	// gate, if not nil, holds back the lookups of keys with the prefix until it is closed.
	gate                    chan struct{}
	prefix                  string
	heldNow, mostHeldAtOnce int
}

// hold holds back the lookups of keys with the prefix until release is called.
func (p *vaultProxy) hold(prefix string) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate, p.prefix = make(chan struct{}), prefix
	return sync.OnceFunc(func() { close(p.gate) })
}

// held returns how many lookups are held back, and the most that have been at once.
func (p *vaultProxy) held() (now, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heldNow, p.mostHeldAtOnce
}

// pass records a lookup, and waits if it is held back.
func (p *vaultProxy) pass(ctx context.Context, key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookups = append(p.lookups, key)
	if p.gate == nil || !strings.HasPrefix(key, p.prefix) {
		return
	}
	p.heldNow++
	p.mostHeldAtOnce = max(p.mostHeldAtOnce, p.heldNow)
	p.mu.Unlock()
	select {
	case <-p.gate:
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.heldNow--
}

func newVaultProxy(t *testing.T, vault string) *vaultProxy {
	t.Helper()
	target, err := url.Parse(vault)
	require.NoError(t, err)
	p := new(vaultProxy)
	forward := &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorLog: nil,
		// an unavailable Vault gives no response
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked = append(p.asked, r.Method+" "+r.RequestURI)
		p.mu.Unlock()
		if _, key, ok := strings.Cut(r.URL.Path, "/gateway/keys/"); ok {
			p.pass(r.Context(), key)
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// seen returns the key of each lookup.
func (p *vaultProxy) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lookups)
}

// targets returns the methods and targets of all requests.
func (p *vaultProxy) targets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// requireListening waits until the gateways have subscribed to changes of keys, after which they look every key up again.
func (w *environment) requireListening(t *testing.T, gateways int64) {
	t.Helper()
	const channel = "gatehouse:credentials"
	client := w.redis.Client(t)
	require.Eventually(t, func() bool {
		n, err := client.PubSubNumSub(t.Context(), channel).Result()
		return err == nil && n[channel] == gateways
	}, patience, 10*time.Millisecond)
}

//nolint:tparallel // the subtests change the mount of one Vault
func TestKeyLifecycle(t *testing.T) {
	t.Parallel()
	w := newVaultEnvironment(t, vaulttest.Options{})
	for _, source := range []string{"file", "kv", "kv1"} {
		t.Run(source, func(t *testing.T) {
			var g *gatewaytest.Gateway
			var keys keysCLI
			if source == "file" {
				g = w.unlimited(t)
				keys = keysCLI{source: []string{"--config", g.Config, "--adapter", "caddyfile"}}
			} else {
				w.setMount(t, source)
				g, keys = w.gateway(t, ""), w.keys
			}
			requireReady(t, g)

			first := keys.issue(t)
			if source == "file" { // the gateway reads the file a moment later
				waitForStatus(t, http.StatusOK, first.caller(), g)
			}
			require.Equal(t, http.StatusOK, first.caller().Get(t, g.URL, "/api/v1/me").Status, "a key works once it is issued")

			var second issued
			o := keys.json(t, &second, "rotate", first.PublicKey, "--grace", "1h")
			require.Equal(t, 1, strings.Count(o.stdout, second.PrivateKey))
			gatewaytest.RequireNowhere(t, o.stdout+o.stderr, first.PrivateKey)
			waitForStatus(t, http.StatusOK, second.caller(), g)
			require.Equal(t, http.StatusOK, first.caller().Get(t, g.URL, "/api/v1/me").Status, "both are valid during the grace period")
			keys.run(t, "rotate", first.PublicKey, "--grace", "1h").requireError(t, "grace period of the last rotation has not ended")

			var list []issued
			o = keys.json(t, &list, "list")
			require.True(t, slices.ContainsFunc(list, func(k issued) bool { return k.PublicKey == first.PublicKey }))
			require.True(t, source == "file" || len(list) == 1)
			gatewaytest.RequireNowhere(t, o.stdout+keys.run(t, "show", first.PublicKey).requireOK(t).stdout, first.PrivateKey, second.PrivateKey)

			var third issued
			keys.json(t, &third, "rotate", first.PublicKey, "--grace", "0")
			waitForStatus(t, http.StatusOK, third.caller(), g)
			for _, old := range []issued{first, second} {
				requireProblem(t, old.caller().Get(t, g.URL, "/api/v1/me"), http.StatusUnauthorized, "INVALID_CREDENTIALS")
			}

			keys.run(t, "revoke", first.PublicKey).requireOK(t)
			waitForStatus(t, http.StatusUnauthorized, third.caller(), g)
			keys.run(t, "show", first.PublicKey).requireError(t, "reading")
			keys.run(t, "revoke", first.PublicKey).requireError(t, "revoking")
			gatewaytest.RequireNowhere(t, g.Output(), first.PrivateKey, second.PrivateKey, third.PrivateKey, w.secretID)
		})
	}
}

func TestRevocationReachesEveryGateway(t *testing.T) {
	t.Parallel()
	w := newVaultEnvironment(t, vaulttest.Options{})
	const cache = "cache {\n\t\t\tttl 1h\n\t\t\t" + longVaultTimeout + "\n\t\t}"
	gateways := []*gatewaytest.Gateway{w.gateway(t, cache), w.gateway(t, cache), w.gateway(t, cache)}
	w.requireListening(t, 3)
	key := w.keys.issue(t)
	for _, g := range gateways {
		requireReady(t, g)
		assert.Equal(t, http.StatusOK, key.caller().Get(t, g.URL, "/api/v1/me").Status)
	}
	require.Len(t, w.proxy.seen(), 3, "one lookup for each gateway")
	o := w.keys.run(t, "revoke", key.PublicKey, "--json").requireOK(t)
	require.JSONEq(t, `{"public_key":"`+key.PublicKey+`","revoked":true,"invalidated":true}`, o.stdout)
	for _, g := range gateways {
		a := waitForStatus(t, http.StatusUnauthorized, key.caller(), g)
		requireProblem(t, a, http.StatusUnauthorized, "INVALID_CREDENTIALS")
	}
}

func TestRevocationWithoutRedisTakesEffectAfterTheTTL(t *testing.T) {
	t.Parallel()
	w := newVaultEnvironment(t, vaulttest.Options{})
	const ttl = 3 * time.Second
	g := w.gateway(t, "cache {\n\t\t\tttl 3s\n\t\t\t"+longVaultTimeout+"\n\t\t}")
	long := w.gateway(t, "cache {\n\t\t\tttl 1h\n\t\t\t"+longVaultTimeout+"\n\t\t}")
	requireReady(t, g)
	requireReady(t, long)
	require.NoError(t, w.redis.Kill())
	key, other := w.keys.issue(t), w.keys.issue(t)
	require.Equal(t, http.StatusOK, key.caller().Get(t, g.URL, "/api/v1/me").Status)
	require.Equal(t, http.StatusOK, key.caller().Get(t, long.URL, "/api/v1/me").Status)
	o := w.keys.run(t, "revoke", key.PublicKey).requireOK(t)
	revoked := time.Now()
	const note = "until their cache's TTL ends: they could not be notified through Redis"
	require.Contains(t, o.stdout, note)
	for { // the last lookup that has found the key began before it was revoked
		sent := time.Now()
		a := key.caller().Get(t, g.URL, "/api/v1/me")
		if a.Status == http.StatusUnauthorized {
			break
		}
		require.Equal(t, http.StatusOK, a.Status, "body: %s", a.Body)
		require.Less(t, sent.Sub(revoked), ttl, "the key is accepted for longer than the TTL")
		require.True(t, load.Wait(t.Context(), sent.Add(100*time.Millisecond)))
	}
	for _, change := range [][]string{{"rotate", other.PublicKey, "--grace", "0"}, {"update", other.PublicKey, "--status", "inactive"}} {
		assert.Contains(t, w.keys.run(t, change...).requireOK(t).stdout, note, "%s must not look effective", change[0])
		var printed struct{ Invalidated *bool }
		w.keys.json(t, &printed, change...)
		assert.Equal(t, new(false), printed.Invalidated, change[0])
	}

	// when Redis is back, every key is looked up again
	require.Equal(t, http.StatusOK, key.caller().Get(t, long.URL, "/api/v1/me").Status, "the documented worst case")
	require.NoError(t, w.redis.Restart())
	waitForStatus(t, http.StatusUnauthorized, key.caller(), long)
}

// A slow Vault is not unavailable: the first request of an idle key after the TTL waits for it. Slow lookups of some keys do not delay the
// revocation of others.
func TestIdleRevokedKeyIsRejectedDespiteASlowVault(t *testing.T) {
	t.Parallel()
	w := newVaultEnvironment(t, vaulttest.Options{})
	slow := netfault.NewLink(t, strings.TrimPrefix(w.vault.Addr, "http://"))
	const ttl = 2 * time.Second
	o := w.options(fmt.Sprintf("cache {\n\t\t\tttl %s\n\t\t\t%s\n\t\t}", ttl, longVaultTimeout))
	o.Global = strings.ReplaceAll(o.Global, w.proxy.URL, "http://"+slow.Addr)
	g := gatewaytest.Start(t, o)
	requireReady(t, g)
	keys := w.addKeys(t, 4, 2)
	for _, k := range keys {
		assert.Equal(t, http.StatusOK, k.Get(t, g.URL, "/api/v1/me").Status)
	}
	for _, k := range keys { // without notifying the gateway
		require.NoError(t, w.vault.Client(t).KVv2("kv").DeleteMetadata(t.Context(), "gateway/keys/"+k.PublicKey))
	}
	slow.Slow(0, 400*time.Millisecond)
	<-time.After(ttl)
	for _, k := range keys {
		requireProblem(t, k.Get(t, g.URL, "/api/v1/me"), http.StatusUnauthorized, "INVALID_CREDENTIALS")
	}
	require.Zero(t, g.Metric(t, "gatehouse_credential_events_total", `event="stale"`))
}

// A configuration is cleaned up while its servers finish their requests.
func TestReloadWithOtherSettingsServesRequestsInProgress(t *testing.T) {
	t.Parallel()
	for _, waitsFor := range []string{"Vault", "forward_auth"} {
		t.Run("that wait for "+waitsFor, func(t *testing.T) {
			t.Parallel()
			w := newVaultEnvironment(t, vaulttest.Options{})
			o := w.options("cache {\n\t\t\tlookup_timeout 5m\n\t\t}")
			asked, answer := make(chan struct{}, 1), make(chan struct{})
			release := sync.OnceFunc(func() { close(answer) })
			if waitsFor == "forward_auth" {
				authority := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					asked <- struct{}{}
					select {
					case <-answer:
					case <-r.Context().Done():
					}
				}))
				t.Cleanup(authority.Close)
				o.Site = strings.Replace(o.Site, "gatehouse_api {", "forward_auth "+authority.Listener.Addr().String()+" {\n\t\turi /\n\t}\n\tgatehouse_api {", 1)
			}
			g := gatewaytest.Start(t, o)
			key := w.keys.issue(t)
			isHeld := func() bool { return len(asked) == 1 }
			if waitsFor == "Vault" {
				requireReady(t, g)
				release = w.proxy.hold(key.PublicKey)
				isHeld = func() bool {
					now, _ := w.proxy.held()
					return now == 1
				}
			}
			defer release()
			var (
				a      gatewaytest.Response
				err    error
				served = make(chan struct{})
			)
			go func() {
				defer close(served)
				a, err = key.caller().Try(t.Context(), http.MethodGet, g.URL, "/api/v1/me", nil)
			}()
			require.Eventually(t, isHeld, patience, 10*time.Millisecond)
			config, readErr := os.ReadFile(g.Config)
			require.NoError(t, readErr)
			changed := strings.NewReplacer("lookup_timeout 5m", "lookup_timeout 6m", longRedisTimeout, "timeout 6s").Replace(string(config))
			require.NoError(t, os.WriteFile(g.Config, []byte(changed), 0o600))
			g.Load(t)
			release()
			<-served
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, a.Status, a.Body)
			require.Contains(t, a.Header, "Ratelimit")
		})
	}
}

func TestLimitedClientIPCausesNoLookups(t *testing.T) {
	t.Parallel()
	w := newVaultEnvironment(t, vaulttest.Options{})
	o := w.options("")
	o.Servers = trustLoopback
	g := gatewaytest.Start(t, o)
	requireReady(t, g)
	w.requireListening(t, 1)
	withinWindow(t, func(attempt int) func() {
		before := len(w.proxy.seen())
		header := func(key string) http.Header {
			return withClientIP("203.0.113."+strconv.Itoa(attempt), invalidSignature(key))
		}
		invented := func(i int) http.Header { return header(fmt.Sprintf("pk_live_invented_%d_%d", attempt, i)) }
		counts := statuses(140, func(i int) gatewaytest.Response { return send(t, g, "/api/v1/me", invented(i)) })
		lookups := w.proxy.seen()
		inParallel(50, 50, func(i int) {
			_, _ = anonymous().Send(t.Context(), "GET", g.URL, "/api/v1/me", invented(140+i), nil)
		})
		send(t, g, "/api/v1/me", header("../../sys/seal-status")) // an invalid public key is not looked up
		after := w.proxy.seen()
		return func() {
			require.Equal(t, map[int]int{http.StatusUnauthorized: 120, http.StatusTooManyRequests: 20}, counts)
			distinct := slices.Compact(slices.Sorted(slices.Values(lookups[before:]))) // a lookup that an invalidation overtakes is repeated
			require.Len(t, distinct, 120, "more lookups than the limit")
			require.Len(t, after, len(lookups))
		}
	})
}

// A key is looked up when the body has arrived, or else slow bodies would take up all lookups of their client IP.
func TestSlowBodiesDelayNoLookups(t *testing.T) {
	t.Parallel()
	const slow = 2 * authsigner.DefaultMaxLookups / 8
	w := newVaultEnvironment(t, vaulttest.Options{})
	o := w.options("")
	o.Site = strings.Replace(o.Site, "gatehouse_api {", "gatehouse_api {\n\t\tbody_timeout 5m", 1)
	g := gatewaytest.Start(t, o)
	requireReady(t, g)
	w.requireListening(t, 1)
	keys := w.addKeys(t, slow+1, 1)
	for i, k := range keys[:slow] {
		key := k.Caller
		if i%2 == 0 {
			key.PublicKey = "pk_live_invented_" + strconv.Itoa(i)
		}
		conn := dial(t, g.Addr, "GET /api/v1/me HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n"+
			signedLines(key, http.MethodGet, "/api/v1/me", strings.Repeat("b", 1000))+"\r\n")
		line, err := conn.r.ReadString('\n') // the gateway waits for the body
		require.NoError(t, err)
		assert.Contains(t, line, "100 Continue")
	}
	require.Equal(t, http.StatusOK, keys[slow].Get(t, g.URL, "/api/v1/me").Status)
}

// What headers or timestamp deny does not wait for the body, also if the key is not cached.
func TestUncachedKeysAreDeniedBeforeTheirBody(t *testing.T) {
	t.Parallel()
	const target = "/api/v1/me"
	g := newEnvironment(t, nil).start(t, "", "body_timeout 5m") // longer than a response is waited for
	signed := func(at time.Time) []field {
		return signedAt(gatewaytest.Caller{PublicKey: "pk_live_invented", PrivateKey: "x"}, at, http.MethodGet, target, "")
	}
	for what, fields := range map[string][]field{"expired": signed(time.Now().Add(-time.Hour)), "without a signature": signed(time.Now())[:2]} {
		conn := dial(t, g.Addr, "GET "+target+" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"+linesOf(fields)+"\r\n")
		a, err := readResponse(conn.r, http.MethodGet)
		require.NoError(t, err, what)
		require.Equal(t, http.StatusUnauthorized, a.Status, what)
	}
}

// Concurrent requests cannot pass their client IP's limit before any is counted, nor use up the concurrent lookups of other client IPs.
func TestFloodOfInventedKeysDelaysNoOtherClientIP(t *testing.T) {
	t.Parallel()
	const flood, share, limit = 300, authsigner.DefaultMaxLookups / 8, 120
	w := newVaultEnvironment(t, vaulttest.Options{})
	o := w.options("cache {\n\t\t\tlookup_timeout 1m\n\t\t}")
	o.Servers = trustLoopback
	g := gatewaytest.Start(t, o)
	requireReady(t, g)
	w.requireListening(t, 1)
	fresh := w.addKeys(t, 1, 1)[0]

	const invented = "pk_live_invented_"
	release := w.proxy.hold(invented)
	defer release()
	var mu sync.Mutex
	sent, counts := 0, map[int]int{}
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
		mu.Lock()
		defer mu.Unlock()
		sent++
	}})
	var wg sync.WaitGroup
	for i := range flood {
		wg.Go(func() {
			a, err := anonymous().Send(ctx, http.MethodGet, g.URL, "/api/v1/me", withClientIP("203.0.113.7", invalidSignature(invented+strconv.Itoa(i))), nil)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				counts[a.Status]++
			}
		})
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		now, _ := w.proxy.held()
		return sent >= flood && now >= share
	}, patience, 10*time.Millisecond)

	require.Equal(t, http.StatusOK, fresh.Get(t, g.URL, "/api/v1/me").Status, "a new key of another client IP")
	release()
	wg.Wait()
	_, most := w.proxy.held()
	require.Equal(t, share, most, "looked up at once")
	asked := 0
	for _, key := range w.proxy.seen() {
		if strings.HasPrefix(key, invented) {
			asked++
		}
	}
	assert.GreaterOrEqual(t, asked, limit)
	assert.Less(t, asked, limit+share)
	assert.Equal(t, map[int]int{http.StatusUnauthorized: limit, http.StatusTooManyRequests: flood - limit}, counts)
}

func TestPlaceholderSecretsAppearNowhere(t *testing.T) {
	t.Parallel()
	w := newVaultEnvironment(t, vaulttest.Options{})
	w.redis = redistest.Start(t, redistest.WithUser("gateway", "canary-redis-password", "~* &* +@all"))
	w.setMount(t, "kv")
	w.keys.env = append(w.keys.env, "TEST_REDIS_PASSWORD=canary-redis-password")
	token := w.vault.RootToken
	tokenFile := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(tokenFile, []byte(token), 0o600))
	passwordFile := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(passwordFile, []byte("canary-redis-password"), 0o600))
	for name, source := range map[string]struct {
		auth, password string
		env            []string
	}{
		"env":        {"auth token {env.TEST_TOKEN}", "password {env.TEST_PASSWORD}", []string{"TEST_TOKEN=" + token, "TEST_PASSWORD=canary-redis-password"}},
		"file":       {"auth token {file." + tokenFile + "}", "password {file." + passwordFile + "}", nil},
		"token file": {"auth token_file " + tokenFile, "password {file." + passwordFile + "}", nil},
	} {
		o := w.options("")
		o.Env = source.env
		o.Global = fmt.Sprintf("gatehouse {\n\t\tredis redis://%s {\n\t\t\tusername gateway\n\t\t\t%s\n\t\t\t%s\n\t\t}\n\t\tcache {\n\t\t\t%s\n\t\t}\n"+
			"\t\tcredentials vault %s {\n\t\t\t%s\n\t\t\ttimeout 10s\n\t\t}\n\t}",
			w.redis.Addr, source.password, longRedisTimeout, longVaultTimeout, w.vault.Addr, source.auth)
		g := gatewaytest.Start(t, o)
		requireReady(t, g)
		key := w.keys.issue(t)
		require.Equal(t, http.StatusOK, key.caller().Get(t, g.URL, "/api/v1/me").Status, name)
		send(t, g, "/api/v1/me", invalidSignature(key.PublicKey))
		g.Reload(t)
		require.Equal(t, http.StatusOK, key.caller().Get(t, g.URL, "/api/v1/me").Status, name)
		adapted := cli(t, source.env, "adapt", "--config", g.Config, "--adapter", "caddyfile").requireOK(t)
		gatewaytest.RequireNowhere(t, g.Everything(t)+adapted.stdout+adapted.stderr, token, key.PrivateKey, "canary-redis-password")
	}
}

func TestGatewayStartsWhileItsStoresAreUnavailable(t *testing.T) {
	t.Parallel()
	w := newVaultEnvironment(t, vaulttest.Options{Persistent: true})
	key := w.keys.issue(t)
	w.vault.Kill(t)
	require.NoError(t, w.redis.Kill())
	g := w.gateway(t, "")

	require.Equal(t, http.StatusOK, anonymous().Get(t, g.URL, "/healthz").Status)
	a := anonymous().Get(t, g.URL, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, a.Status, a.Body)
	require.Contains(t, a.Body, `"credentials":"unavailable"`)
	require.NotContains(t, a.Body, "127.0.0.1", "causes are for operators")
	// the log reports it without any request
	require.Eventually(t, func() bool {
		out := g.Output()
		return strings.Contains(out, "vault login failed, retrying") && strings.Contains(out, "redis unavailable at startup")
	}, patience, 50*time.Millisecond, "the log does not report that Vault and Redis are unavailable")
	require.Eventually(t, func() bool {
		return anonymous().Get(t, g.URL, "/readyz").Body == `{"status":"unavailable","checks":{"credentials":"unavailable","limits":"degraded"}}`
	}, patience, 50*time.Millisecond)

	require.Equal(t, http.StatusOK, anonymous().Get(t, g.URL, "/api/v1/status").Status, "unsigned resources are served")
	requireProblem(t, key.caller().Get(t, g.URL, "/api/v1/me"), http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")

	w.vault.Restart(t)
	require.NoError(t, w.redis.Restart())
	requireReady(t, g)
	waitForStatus(t, http.StatusOK, key.caller(), g)
	// invalidations arrive again
	w.keys.run(t, "revoke", key.PublicKey).requireOK(t)
	waitForStatus(t, http.StatusUnauthorized, key.caller(), g)
}

// Without Vault and without a cached key, a gateway stays in service if it serves more than signed requests.
func TestGatewayThatServesMoreThanSignedRequestsStaysInServiceWithoutVault(t *testing.T) {
	t.Parallel()
	w := newVaultEnvironment(t, vaulttest.Options{})
	document := filepath.Join(t.TempDir(), "shop.yaml")
	require.NoError(t, os.WriteFile(document, []byte("openapi: 3.1.0\ninfo: {title: Shop, version: '1'}\nservers: [{url: /v1}]\npaths:\n  /prices:\n    get:\n"+
		"      x-gatehouse-public: true\n      x-gatehouse-tenant: none\n      responses: {'200': {description: x, content: {application/json: {schema: "+
		"{type: object, properties: {fee: {type: string}}}}}}}\n"), 0o600))
	start := func(site string) *gatewaytest.Gateway {
		o := w.options("")
		o.Site = site + o.Site
		g := gatewaytest.Start(t, o)
		requireReady(t, g)
		return g
	}
	const unavailable = `{"status":"unavailable","checks":{"credentials":"unavailable","limits":"ok"}}`
	const degraded = `{"status":"degraded","checks":{"credentials":"degraded","limits":"ok"}}`
	states := map[*gatewaytest.Gateway]string{
		start(""): unavailable, // its own status is not worth it
		start("gatehouse_connect {\n\t\tissuer http://localhost\n\t\tupstream " + w.dataURL + "\n\t}\n\t"):            degraded,
		start("gatehouse_api /v1/* {\n\t\tdefinition shop " + document + "\n\t\tupstream " + w.dataURL + "\n\t}\n\t"): degraded,
	}
	w.vault.Kill(t)
	for g, want := range states {
		require.Eventually(t, func() bool {
			send(t, g, "/api/v1/me", invalidSignature("pk_live_"+strings.Repeat("x", 10))) // a gateway asks for keys that it does not know
			return anonymous().Get(t, g.URL, "/readyz").Body == want
		}, patience, 50*time.Millisecond, want)
	}
}

// The configurations of TestInvalidConfigurationsDoNotLoad, of which each fails in another phase, end the process as they should.
func TestInvalidConfigurationDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
		return name
	}
	empty := write("keys.json", `{"keys":{}}`)
	noJSON := write("no.json", "canary: not a key")
	const redis = "redis redis://127.0.0.1:1\n\t\t"
	keys := "credentials file " + empty
	const api = "gatehouse_api {\n\t\tupstream http://127.0.0.1:1\n\t}"
	vault := func(address, block string) string {
		return redis + "credentials vault " + address + " {\n\t\t\t" + block + "\n\t\t}"
	}
	for name, tc := range map[string]struct {
		app, site string
		words     []string
	}{
		"a placeholder without value":             {vault("http://127.0.0.1:1", "auth token {env.TEST_IS_NOT_SET}"), api, []string{"env.TEST_IS_NOT_SET"}},
		"a credential file that is not JSON":      {redis + "credentials file " + noJSON, api, []string{"credential file", "JSON"}},
		"published keys without an assertion key": {redis + keys, "gatehouse_jwks\n\t" + api, []string{"assertion"}},
		"an unknown option, with what there is":   {redis + keys + "\n\t\tcash", api, []string{"Caddyfile:", "cash", "cache"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := filepath.Join(t.TempDir(), "Caddyfile")
			caddyfile := gatewaytest.Options{Global: "gatehouse {\n\t\t" + tc.app + "\n\t}", Site: tc.site}.
				Caddyfile(gatewaytest.FreeAddr(t), gatewaytest.FreeAddr(t))
			require.NoError(t, os.WriteFile(config, []byte(caddyfile), 0o600))
			o := cli(t, nil, "run", "--config", config, "--adapter", "caddyfile")
			o.requireError(t, tc.words...)
			gatewaytest.RequireNowhere(t, o.stderr, "canary")
			// `gatehouse validate` reports the same
			v := cli(t, nil, "validate", "--config", config, "--adapter", "caddyfile")
			v.requireError(t, tc.words...)
		})
	}
}
