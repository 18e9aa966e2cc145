package e2e_test

import (
	"crypto/tls"
	"debug/buildinfo"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

func TestProbesAreNotRateLimited(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.gateway(t)
	requireReady(t, g)
	for range 30 {
		assert.Equal(t, http.StatusOK, anonymous().Get(t, g.URL, "/healthz").Status)
		assert.Equal(t, http.StatusOK, anonymous().Get(t, g.URL, "/readyz").Status)
	}
	w.replay(t, "probes", g.Addr)
}

func TestAdminAPIShowsCausesOfDegradation(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.gateway(t)
	requireReady(t, g)
	require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status)
	a := anonymous().Get(t, g.AdminURL, "/gatehouse/ready")
	assert.Equal(t, http.StatusOK, a.Status)
	assert.JSONEq(t, `{"status":"ok","checks":{"credentials":"ok","limits":"ok"},"credentials_cached":1}`,
		regexp.MustCompile(`,"version":"[^"]+"`).ReplaceAllString(a.Body, ""))
	assert.Equal(t, http.StatusMethodNotAllowed, anonymous().Do(t, http.MethodPost, g.AdminURL, "/gatehouse/ready", nil).Status)

	require.NoError(t, w.redis.Kill())
	assert.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status)
	require.Eventually(t, func() bool {
		_ = w.acme.Get(t, g.URL, "/api/v1/me")
		a = anonymous().Get(t, g.AdminURL, "/gatehouse/ready")
		return strings.Contains(a.Body, `"limits":"degraded"`)
	}, patience, 100*time.Millisecond)
	assert.Equal(t, http.StatusOK, a.Status)
	assert.Contains(t, a.Body, `"causes":{"limits":`)
	assert.NotContains(t, anonymous().Get(t, g.URL, "/readyz").Body, "causes")
}

// All gateways that read the file would leave the load balancer at once.
func TestGatewayWithoutTrafficStaysReadyIfItsCredentialFileBecomesInvalid(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.gateway(t)
	requireReady(t, g)
	require.NoError(t, os.WriteFile(w.keyFile, []byte("{"), 0o600))
	require.Eventually(t, func() bool {
		a := anonymous().Get(t, g.URL, "/readyz")
		return a.Status == http.StatusOK && a.Body == `{"status":"degraded","checks":{"credentials":"degraded","limits":"ok"}}`
	}, patience, 50*time.Millisecond)
	require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status, "keys of the last valid file")
	body := anonymous().Get(t, g.AdminURL, "/metrics").Body
	for _, line := range []string{"gatehouse_ready 1", "gatehouse_credentials_ready 1", "gatehouse_credential_file_valid 0"} {
		require.Contains(t, body, line+"\n")
	}
}

// mixedLoad sends requests of all kinds, with canaries wherever a caller can put text.
func mixedLoad(t *testing.T, w *environment, g *gatewaytest.Gateway) []gatewaytest.Response {
	t.Helper()
	var responses []gatewaytest.Response
	for _, target := range []string{
		"/api/v1/me", "/api/v1/events?count=3&unknown=canary-unknown", "/api/v1/contacts?status=canary-status&per_page=2",
		"/api/v1/jobs?page=canary-page", "/api/v1/canary-path", "/api/v1/invoices?%63anary=canary-encoded",
	} {
		responses = append(responses, w.acme.Get(t, g.URL, target), w.other.Get(t, g.URL, target), anonymous().Get(t, g.URL, target))
	}
	responses = append(responses, w.inactive.Get(t, g.URL, "/api/v1/me"), w.acme.Do(t, "CANARYMETHOD", g.URL, "/api/v1/me", nil))
	h := invalidSignature(w.acme.PublicKey)
	h.Set("Authorization", "Bearer canary-authorization")
	h.Set("Cookie", "session=canary-cookie")
	h.Set("X-Canary", "canary-header")
	h.Set("User-Agent", "canary-agent")
	h.Set("X-Request-Id", "canary-request-id")
	h.Set("Referer", "http://canary-referer/")
	h.Set("Traceparent", "canary-trace")
	responses = append(responses, send(t, g, "/api/v1/me", h))
	_, err := anonymous().Send(t.Context(), http.MethodPost, g.URL, "/healthz?token=canary-probe", h, []byte("canary-body"))
	require.NoError(t, err)
	a, err := w.acme.Try(t.Context(), http.MethodGet, g.URL, "/api/v1/me", []byte("canary-body"))
	require.NoError(t, err)
	return append(responses, a)
}

func TestRequestDataIsNotLogged(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	key := writeAssertionKey(t)
	for _, more := range []string{"", "debug\n\t"} {
		o := w.options("assertion "+key, "")
		o.Global = more + o.Global
		g := gatewaytest.Start(t, o)
		var signatures []string
		for _, a := range mixedLoad(t, w, g) {
			if s := a.Request.Header.Get(authsigner.HeaderSignature); s != "" {
				signatures = append(signatures, s)
			}
		}
		all := g.Everything(t)
		gatewaytest.RequireNowhere(t, all, signatures...)
		gatewaytest.RequireNowhere(t, all, w.acme.PrivateKey.Reveal(), w.other.PrivateKey.Reveal(), w.inactive.PrivateKey.Reveal(),
			"canary-authorization", "canary-cookie", "canary-body")
		if more == "" { // the debug log contains requests to data services
			gatewaytest.RequireNowhere(t, all, "canary")
		}
	}
}

func TestMetricsHaveBoundedLabels(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.gateway(t)
	requireReady(t, g)
	sent := len(mixedLoad(t, w, g))
	// A response may arrive before it is counted.
	require.Eventually(t, func() bool { return requestsServed(t, g) == sent }, patience, 10*time.Millisecond)
	requireCheck(t, g, "limits", true)
	body := anonymous().Get(t, g.AdminURL, "/metrics").Body
	for _, line := range []string{
		`gatehouse_requests_total{code="",operation="getMe",route="api",status="200"} 3`,
		`gatehouse_requests_total{code="INVALID_CREDENTIALS",operation="getMe",route="api",status="401"} 1`,
		`gatehouse_requests_total{code="ACCOUNT_INACTIVE",operation="getMe",route="api",status="403"} 1`,
		`gatehouse_requests_total{code="METHOD_NOT_ALLOWED",operation="getMe",route="api",status="405"} 1`,
		`gatehouse_authentications_total{result="inactive"} 1`,
		`gatehouse_ready 1`,
		`gatehouse_limits_shared 1`,
		`gatehouse_limiter_queue_length 0`,
		`gatehouse_credentials_ready 1`,
		`gatehouse_credential_file_valid 1`,
		`gatehouse_credentials_cached 3`,
	} {
		assert.Contains(t, body, line+"\n")
	}
	for _, name := range []string{
		"gatehouse_request_duration_seconds_bucket", "gatehouse_upstream_duration_seconds_count", "gatehouse_limit_decisions_total",
		"gatehouse_upstream_responses_total", "gatehouse_credential_events_total", "gatehouse_limiter_round_trips_total",
		"gatehouse_limiter_queue_wait_seconds_count",
	} {
		assert.Contains(t, body, name)
	}
	gatewaytest.RequireNowhere(t, body, w.acme.PublicKey, w.other.PublicKey, w.inactive.PublicKey, w.acmeID, w.otherID, "canary", "CANARY", w.redis.Addr, w.keyFile)
	// our labels are words or numbers, and ten times the load adds almost none
	before := ourSeries(t, body)
	for i := range 20 {
		send(t, g, "/api/v1/nothing-"+strconv.Itoa(i), invalidSignature("pk_live_invented_"+strconv.Itoa(i)))
		send(t, g, "/api/v1/canary-path", http.Header{"X-Public-Key": {"x"}})
	}
	require.Eventually(t, func() bool { return requestsServed(t, g) == sent+40 }, patience, 10*time.Millisecond)
	added := 0
	for series := range ourSeries(t, anonymous().Get(t, g.AdminURL, "/metrics").Body) {
		if !before[series] {
			added++
		}
	}
	require.LessOrEqual(t, added, 8)
}

// ourSeries returns the names of our time series with their labels.
func ourSeries(t *testing.T, metrics string) map[string]bool {
	t.Helper()
	series := map[string]bool{}
	label := regexp.MustCompile(`="([^"]*)"`)
	bounded := regexp.MustCompile(`^([A-Za-z_-]*|[1-5][0-9][0-9]|[1-5]xx|[0-9.]+|\+Inf)$`)
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, "gatehouse_") || strings.HasPrefix(line, "gatehouse_build_info") { // whose labels are versions
			continue
		}
		name := line[:strings.LastIndexByte(line, ' ')]
		series[name] = true
		for _, m := range label.FindAllStringSubmatch(name, -1) {
			require.Regexp(t, bounded, m[1], name)
		}
	}
	require.NotEmpty(t, series)
	return series
}

// logLine is the log line of a request.
type logLine struct {
	Level          string   `json:"level"`
	Msg            string   `json:"msg"`
	RequestID      string   `json:"request_id"`
	Method         string   `json:"method"`
	Route          string   `json:"route"`
	Operation      string   `json:"operation"`
	Status         int      `json:"status"`
	Code           string   `json:"code"`
	Business       string   `json:"business"`
	PublicKey      string   `json:"public_key"`
	Authentication string   `json:"authentication"`
	Claimed        string   `json:"claimed_public_key"`
	Reason         string   `json:"reason"`
	SecondsLate    int64    `json:"seconds_late"`
	ClientIP       string   `json:"client_ip"`
	Duration       *float64 `json:"duration"`
	Verify         *float64 `json:"verify"`
	Limit          *float64 `json:"limit"`
	Upstream       *float64 `json:"upstream"`
	Cause          string   `json:"cause"`
}

// logLineOf waits for the log line of a request.
func logLineOf(t *testing.T, g *gatewaytest.Gateway, requestID string) logLine {
	t.Helper()
	var found []logLine
	require.Eventually(t, func() bool {
		found = requestLines(g, requestID)
		return len(found) > 0
	}, patience, 10*time.Millisecond)
	require.Len(t, found, 1)
	return found[0]
}

// requestLines returns the log lines of requests that contain a text.
func requestLines(g *gatewaytest.Gateway, text string) (found []logLine) {
	for l := range strings.Lines(g.Output()) {
		var line logLine
		if strings.Contains(l, text) && json.Unmarshal([]byte(l), &line) == nil && line.Msg == "request" {
			found = append(found, line)
		}
	}
	return found
}

// requireOneLogLineEach stops the gateway, which may log a request after its response, and requires one log line for each of the requests.
func requireOneLogLineEach(t *testing.T, g *gatewaytest.Gateway, requestIDs ...string) {
	t.Helper()
	g.Stop(t)
	lines := map[string]int{}
	for _, line := range requestLines(g, "") {
		lines[line.RequestID]++
	}
	for _, id := range requestIDs {
		require.Equal(t, 1, lines[id], "log lines of %s", id)
	}
}

func TestLogHasOneLinePerRequest(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.gateway(t)

	a := w.acme.Get(t, g.URL, "/api/v1/events?count=1")
	line := logLineOf(t, g, a.Header.Get("X-Request-Id"))
	require.Equal(t, "info", line.Level)
	require.Equal(t, "GET", line.Method)
	require.Equal(t, "api", line.Route)
	require.Equal(t, "listEvents", line.Operation)
	require.Equal(t, http.StatusOK, line.Status)
	require.Equal(t, w.acmeID, line.Business)
	require.Equal(t, w.acme.PublicKey, line.PublicKey)
	require.Equal(t, "verified", line.Authentication)
	require.Equal(t, "127.0.0.1", line.ClientIP)
	for name, d := range map[string]*float64{"duration": line.Duration, "verify": line.Verify, "limit": line.Limit, "upstream": line.Upstream} {
		require.NotNil(t, d, name)
		assert.Positive(t, *d, name)
		assert.LessOrEqual(t, *d, *line.Duration, name)
	}

	first := line.RequestID
	a = send(t, g, "/api/v1/me", invalidSignature(w.acme.PublicKey))
	line = logLineOf(t, g, a.Header.Get("X-Request-Id"))
	require.Equal(t, "INVALID_CREDENTIALS", line.Code)
	require.Equal(t, "invalid", line.Authentication)
	require.Empty(t, line.Business, "an unverified business")
	require.Empty(t, line.PublicKey)
	requireOneLogLineEach(t, g, first, line.RequestID)

	w.dataURL = "http://" + gatewaytest.FreeAddr(t)
	broken := w.gateway(t)
	a = w.acme.Get(t, broken.URL, "/api/v1/events")
	line = logLineOf(t, broken, a.Header.Get("X-Request-Id"))
	assert.Equal(t, "error", line.Level)
	assert.Equal(t, "SERVICE_UNAVAILABLE", line.Code)
	assert.Contains(t, line.Cause, "connection refused", "the cause is in the log")
	assert.NotContains(t, a.Body, "refused", "and not in the response")
	requireOneLogLineEach(t, broken, line.RequestID)
}

func TestLogSaysWhyCredentialsAreInvalid(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	const unknown = "pk_live_nobody_has_this_one"
	change := func(name, value string) func(h http.Header) { return func(h http.Header) { h.Set(name, value) } }
	sentAt := func(off time.Duration) func(h http.Header) { // the subtest may begin minutes later
		return func(h http.Header) {
			h.Set(authsigner.HeaderTimestamp, strconv.FormatInt(time.Now().Add(off).Unix(), 10))
		}
	}
	for name, c := range map[string]struct {
		change         func(h http.Header)
		claimed        string
		reason, detail string
	}{
		"wrong signature":       {func(http.Header) {}, w.acme.PublicKey, "wrong_signature", ""},
		"unknown key":           {change(authsigner.HeaderPublicKey, unknown), unknown, "unknown_key", ""},
		"private key as public": {change(authsigner.HeaderPublicKey, "sk_live_canary"), "", "unknown_key", ""},
		"malformed key":         {change(authsigner.HeaderPublicKey, "canary!"), "", "malformed_key", "X-Public-Key must be 8 to 128 letters, digits, hyphens and underscores"},
		"fraction":              {change(authsigner.HeaderTimestamp, "1760000000.5"), w.acme.PublicKey, "malformed_timestamp", "X-Timestamp must be Unix time in whole seconds, decimal digits only"},
		"base64":                {change(authsigner.HeaderSignature, "canary+base64="), w.acme.PublicKey, "malformed_signature", "X-Signature must be 64 hexadecimal digits"},
		"base64, unknown key": {func(h http.Header) {
			h.Set(authsigner.HeaderSignature, "canary+base64=")
			h.Set(authsigner.HeaderPublicKey, unknown)
		}, unknown, "malformed_signature", "X-Signature must be 64 hexadecimal digits"},
		"expired": {sentAt(-time.Hour), w.acme.PublicKey, "expired", ""},
		"ahead":   {sentAt(time.Hour), w.acme.PublicKey, "expired", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := invalidSignature(w.acme.PublicKey)
			c.change(h)
			code := "INVALID_CREDENTIALS"
			if c.reason == "expired" {
				code = "REQUEST_EXPIRED"
			}
			p := requireProblem(t, send(t, g, "/api/v1/me", h), http.StatusUnauthorized, code)
			require.Equal(t, c.detail, p.Detail)
			line := logLineOf(t, g, p.RequestID)
			require.Equal(t, c.reason, line.Reason)
			require.Equal(t, c.claimed, line.Claimed)
			require.Empty(t, line.PublicKey, "an unverified key")
			switch name {
			case "expired":
				require.InDelta(t, 3600, line.SecondsLate, 60)
			case "ahead":
				require.InDelta(t, -3600, line.SecondsLate, 60)
			default:
				require.Zero(t, line.SecondsLate)
			}
			gatewaytest.RequireNowhere(t, g.Everything(t), "canary")
		})
	}
}

func TestRequestsBeforeAReloadStillCount(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	keys := w.addKeys(t, windowAttempts, 1)
	g := w.gateway(t)
	withinWindow(t, func(attempt int) func() {
		caller := keys[attempt].Caller
		for range 3 {
			requireServed(t, g, caller, load.KeyLimit/3)
			g.Load(t) // faster than the command
		}
		a := caller.Get(t, g.URL, "/api/v1/me")
		return func() { requireProblem(t, a, http.StatusTooManyRequests, "RATE_LIMITED") }
	})
}

func TestInvalidConfigurationKeepsTheOldOne(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	requireReady(t, g)
	good, err := os.ReadFile(g.Config)
	require.NoError(t, err)
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/events"))
	// A response may arrive before it is counted.
	require.Eventually(t, func() bool { return requestsServed(t, g) == 1 }, patience, 10*time.Millisecond)

	for name, broken := range map[string]string{
		"unknown option":          strings.Replace(string(good), "gatehouse_api {", "gatehouse_api {\n\t\tno_such_option", 1),
		"missing credential file": strings.Replace(string(good), "credentials file "+w.keyFile, "credentials file "+w.keyFile+"-none", 1),
		"no Redis":                strings.Replace(string(good), w.redisLine(), "", 1),
		"address in use":          string(good) + "\nhttp://" + taken.Addr().String() + " {\n\tbind 127.0.0.1\n\trespond hi\n}\n",
		"invalid other site":      string(good) + "\nhttps://broken.test {\n\ttls /none.pem /none.key\n}\n",
	} {
		counted := requestsServed(t, g)
		config := anonymous().Get(t, g.AdminURL, "/config/").Body
		g.Write(t, broken)
		o := cli(t, nil, "reload", "--config", g.Config, "--adapter", "caddyfile", "--address", strings.TrimPrefix(g.AdminURL, "http://"), "--force")
		require.Positive(t, o.code, name)
		require.NotEmpty(t, errorLine(o.stderr), name)
		g.AwaitReload(t)

		requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/events"))
		require.Equal(t, config, anonymous().Get(t, g.AdminURL, "/config/").Body, name)
		a := anonymous().Get(t, g.AdminURL, "/gatehouse/ready")
		assert.Equal(t, http.StatusOK, a.Status, "%s: %s", name, a.Body)
		assert.Contains(t, a.Body, `"status":"ok"`, name)
		require.Eventually(t, func() bool { return requestsServed(t, g) == counted+1 }, patience, 10*time.Millisecond,
			"%s: the metrics have stopped counting", name)
	}
	// events of the stores still reach the log and the metrics
	outages := func() float64 { return g.Metric(t, "gatehouse_limiter_events_total", `event="unavailable"`) }
	before := outages()
	require.NoError(t, w.redis.Kill())
	require.Eventually(t, func() bool {
		_ = w.acme.Get(t, g.URL, "/api/v1/me")
		return outages() > before
	}, patience, 100*time.Millisecond)
	requireLogged(t, g, "redis unavailable, applying on_outage")
	require.NoError(t, w.redis.Restart())

	g.Write(t, string(good))
	g.Reload(t)
	requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/events"))
	requireReady(t, g)
}

// requestsServed returns the number of requests without probes, from the metrics.
func requestsServed(t *testing.T, g *gatewaytest.Gateway) int {
	t.Helper()
	const total = "gatehouse_requests_total"
	return int(g.Metric(t, total) - g.Metric(t, total, `route="health"`))
}

// productionCaddyfile returns the repository's Caddyfile with secrets in a temporary folder and on free ports.
func productionCaddyfile(t *testing.T) (name, httpAddr, httpsPort, admin string) {
	t.Helper()
	root, err := processtest.Root()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, "Caddyfile"))
	require.NoError(t, err)
	dir := t.TempDir()
	for _, secret := range []string{"vault-role-id", "vault-secret-id", "redis-password"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, secret), []byte("canary-"+secret), 0o600))
	}
	httpAddr, admin = gatewaytest.FreeAddr(t), gatewaytest.FreeAddr(t)
	text := strings.ReplaceAll(string(content), "{$GATEHOUSE_SECRETS:/run/secrets}", dir)
	_, port, err := net.SplitHostPort(httpAddr)
	require.NoError(t, err)
	_, httpsPort, err = net.SplitHostPort(gatewaytest.FreeAddr(t))
	require.NoError(t, err)
	const place = "{$GATEHOUSE_ADMIN:localhost:2019}"
	require.Contains(t, text, place)
	text = strings.Replace(text, place, admin+"\n\thttp_port "+port+"\n\thttps_port "+httpsPort+"\n\tskip_install_trust\n\tpersist_config off", 1)
	name = filepath.Join(dir, "Caddyfile")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name, httpAddr, httpsPort, admin
}

func TestProductionCaddyfileServesOnlyItsHost(t *testing.T) {
	t.Parallel()
	root, err := processtest.Root()
	require.NoError(t, err)
	shipped := cli(t, []string{"GATEHOUSE_DOMAIN=api.example.com", "GATEHOUSE_REDIS=rediss://redis.test:6380", "GATEHOUSE_VAULT=https://vault.test:8200"},
		"adapt", "--config", filepath.Join(root, "Caddyfile"), "--adapter", "caddyfile").requireOK(t)
	require.NotContains(t, shipped.stderr, "not formatted")
	require.Contains(t, shipped.stdout, "api.example.com")
	require.Contains(t, shipped.stdout, "rediss://redis.test:6380")

	w := newEnvironment(t, nil)
	config, addr, httpsPort, admin := productionCaddyfile(t)
	env := []string{
		"GATEHOUSE_DOMAIN=http://api.test", "GATEHOUSE_ORIGIN=https://api.test", "GATEHOUSE_UPSTREAM=" + w.dataURL, "GATEHOUSE_REDIS=" + w.redis.URL(),
		"GATEHOUSE_VAULT=http://127.0.0.1:1",
	}
	valid := cli(t, env, "validate", "--config", config, "--adapter", "caddyfile").requireOK(t)
	gatewaytest.RequireNowhere(t, valid.stdout+valid.stderr, "canary-")

	g := gatewaytest.New(t, gatewaytest.Options{Env: env})
	content, err := os.ReadFile(config)
	require.NoError(t, err)
	g.Write(t, string(content))
	g.Addr, g.URL, g.AdminURL = addr, "http://"+addr, "http://"+admin
	g.Run(t)
	w.replay(t, "hosts", addr)
	gatewaytest.RequireNowhere(t, g.Output()+anonymous().Get(t, g.AdminURL, "/config/").Body, "canary-")
	g.Stop(t)

	// over TLS too: the names in the handshake and in the request may differ
	secure := gatewaytest.New(t, gatewaytest.Options{Env: append(env, "GATEHOUSE_DOMAIN=localhost")})
	secure.Write(t, string(content))
	secure.Addr, secure.AdminURL = addr, "http://"+admin
	secure.Run(t)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, // its own authority's
	}}
	defer client.CloseIdleConnections()
	for host, status := range map[string]int{"localhost": http.StatusOK, "other.test": http.StatusNotFound} {
		var res *http.Response
		require.Eventually(t, func() bool { // the certificate is made in the background
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost:"+httpsPort+"/api/v1/status", nil)
			if err != nil {
				return false
			}
			req.Host = host
			res, err = client.Do(req) //nolint:bodyclose // below
			return err == nil
		}, patience, 50*time.Millisecond)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, status, res.StatusCode, host)
		assert.Equal(t, "application/json", res.Header.Get("Content-Type"))
		assert.Empty(t, res.Header.Get("Server"))
	}
}

func TestSignCommand(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	env := []string{"GATEHOUSE_KEY=" + w.acme.PublicKey, "GATEHOUSE_SECRET=" + w.acme.PrivateKey.Reveal()}
	url := g.URL + "/api/v1/events?count=2"

	o := cli(t, env, "sign", "GET", url).requireOK(t)
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	require.Len(t, lines, 3)
	header := http.Header{}
	for _, l := range lines {
		name, value, ok := strings.Cut(l, ": ")
		require.True(t, ok, l)
		header[name] = []string{value}
	}
	requireJSON(t, send(t, g, "/api/v1/events?count=2", header))
	gatewaytest.RequireNowhere(t, o.stdout+o.stderr, w.acme.PrivateKey.Reveal())

	secretFile := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secretFile, []byte(w.acme.PrivateKey.Reveal()+"\n"), 0o600))
	bodyFile := filepath.Join(t.TempDir(), "it's a body")
	require.NoError(t, os.WriteFile(bodyFile, []byte("line\nline\x00\xff"), 0o600))
	for name, tc := range map[string]struct {
		args   []string
		status int
	}{
		"a plain GET":           {[]string{"GET", url}, http.StatusOK},
		"a lower-case method":   {[]string{"get", url}, http.StatusOK},
		"quotes and brackets":   {[]string{"GET", g.URL + "/api/v1/contacts?status=it's{a,b}[1-3]&x=$HOME`id`"}, http.StatusOK},
		"dot segments":          {[]string{"GET", g.URL + "/api/v1/../v1/me"}, http.StatusNotFound},
		"a body":                {[]string{"--data", "it's @ a body", "GET", g.URL + "/api/v1/me"}, http.StatusOK},
		"a body that is a file": {[]string{"--data", "@/etc/hostname", "GET", g.URL + "/api/v1/me"}, http.StatusOK},
		"a file's body":         {[]string{"--data-file", bodyFile, "GET", g.URL + "/api/v1/me"}, http.StatusOK},
		"another method":        {[]string{"DELETE", url}, http.StatusMethodNotAllowed},
		"an old timestamp":      {[]string{"--timestamp", "1000000000", "GET", url}, http.StatusUnauthorized},
		"a secret in a file":    {[]string{"--secret-file", secretFile, "GET", url}, http.StatusOK},
		"another key":           {[]string{"--key", w.other.PublicKey, "GET", url}, http.StatusUnauthorized},
	} {
		o := cli(t, env, append([]string{"sign", "--curl"}, tc.args...)...).requireOK(t)
		require.Equal(t, 1, strings.Count(o.stdout, "\n"), "one command")
		requireHTTP(t, shell(t, strings.TrimSuffix(o.stdout, "\n")+" -i"), tc.status)
		gatewaytest.RequireNowhere(t, o.stdout+o.stderr, w.acme.PrivateKey.Reveal())

		o = cli(t, env, append([]string{"sign", "--send"}, tc.args...)...)
		if tc.status == http.StatusOK {
			o.requireOK(t)
		} else {
			require.Equal(t, tc.status/100, o.code, name)
		}
		assert.Contains(t, o.stdout, "HTTP/1.1 "+strconv.Itoa(tc.status), name)
		assert.Contains(t, o.stdout, "X-Request-Id: ", name)
	}
	o = cli(t, env, "sign", "--curl", "HEAD", g.URL+"/api/v1/me").requireOK(t)
	require.Contains(t, shell(t, o.stdout), "200 OK")

	for name, tc := range map[string]struct {
		env, args, words []string
	}{
		"no key":             {nil, []string{"GET", url}, []string{"public key", "GATEHOUSE_KEY"}},
		"no secret":          {env[:1], []string{"GET", url}, []string{"GATEHOUSE_SECRET"}},
		"another empty name": {env, []string{"--secret-env", "TEST_NONE", "GET", url}, []string{"TEST_NONE"}},
		"no URL":             {env, []string{"GET"}, []string{"arg"}},
		"a path only":        {env, []string{"GET", "/api/v1/me"}, []string{"https://host/path"}},
		"no such file":       {env, []string{"--secret-file", "/none", "GET", url}, []string{"/none"}},
		"curl and send":      {env, []string{"--curl", "--send", "GET", url}, []string{"curl", "send"}},
		"nothing listens":    {env, []string{"--send", "GET", "http://" + gatewaytest.FreeAddr(t) + "/api/v1/me"}, []string{"sending", "refused"}},
		"another base path":  {env, []string{"--base-path", "/gw", "GET", url}, []string{"/gw"}},
	} {
		o := cli(t, tc.env, append([]string{"sign"}, tc.args...)...)
		require.Positive(t, o.code, name)
		o.requireError(t, tc.words...)
		gatewaytest.RequireNowhere(t, o.stderr, w.acme.PrivateKey.Reveal())
	}
}

func TestBinaryListsVersionModulesAndCommands(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, strings.TrimSpace(cli(t, nil, "version").requireOK(t).stdout))
	modules := strings.Fields(cli(t, nil, "list-modules").requireOK(t).stdout)
	for _, id := range []string{
		"gatehouse", "gatehouse.credentials.vault", "gatehouse.credentials.file", "admin.api.gatehouse", "http.handlers.gatehouse_api", "http.handlers.gatehouse_errors",
		"http.handlers.gatehouse_health", "http.handlers.gatehouse_jwks", "http.handlers.reverse_proxy",
	} {
		assert.True(t, slices.Contains(modules, id), id)
	}
	help := cli(t, nil, "help").requireOK(t).stdout
	for _, command := range []string{"keys", "sign", "run", "adapt", "validate", "reload", "fmt"} {
		assert.Contains(t, help, "\n  "+command+" ")
	}
}

// Dependencies that only the demo needs would add attack surface in production.
func TestProductContainsNoDemoDependency(t *testing.T) {
	t.Parallel()
	product, err := buildinfo.ReadFile(gatewaytest.Binary(t))
	require.NoError(t, err)
	demo, err := buildinfo.ReadFile(gatewaytest.Program(t, "./cmd/gatehouse-demo"))
	require.NoError(t, err)
	for _, module := range []string{"modernc.org/sqlite", "github.com/alicebob/miniredis/v2"} {
		is := func(m *debug.Module) bool { return m.Path == module }
		assert.False(t, slices.ContainsFunc(product.Deps, is), module)
		assert.True(t, slices.ContainsFunc(demo.Deps, is), module)
	}
	require.NotContains(t, strings.Fields(cli(t, nil, "help").requireOK(t).stdout), "demo")
}

func TestRedisTopologies(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) string{
		"password": func(t *testing.T) string {
			t.Helper()
			r := redistest.Start(t)
			require.NoError(t, r.Client(t).ConfigSet(t.Context(), "requirepass", "canary-password").Err())
			return "redis redis://" + r.Addr + " {\n\t\t\tpassword {env.TEST_REDIS_PASSWORD}"
		},
		"ACL user": func(t *testing.T) string {
			t.Helper()
			r := redistest.Start(t, redistest.WithUser("gateway", "canary-password", "~gatehouse:* &gatehouse:* +@all -@admin"))
			return "redis redis://" + r.Addr + "/2 {\n\t\t\tusername gateway\n\t\t\tpassword {env.TEST_REDIS_PASSWORD}"
		},
		"TLS": func(t *testing.T) string {
			t.Helper()
			r := redistest.Start(t, redistest.WithTLS(t), redistest.WithUser("gateway", "canary-password", "~* &* +@all"))
			return "redis rediss://gateway:{env.TEST_REDIS_PASSWORD}@" + r.Addr + " {\n\t\t\ttls {\n\t\t\t\tca " + r.CA.Path + "\n\t\t\t}"
		},
		"cluster": func(t *testing.T) string {
			t.Helper()
			c := redistest.StartCluster(t)
			return "redis redis://" + strings.Join(c.Addrs(), " redis://") + " {\n\t\t\tcluster"
		},
		"one node of a cluster is enough": func(t *testing.T) string {
			t.Helper()
			return "redis redis://" + redistest.StartCluster(t).Addrs()[0] + " {\n\t\t\tcluster"
		},
		"sentinel": func(t *testing.T) string {
			t.Helper()
			s := redistest.StartSentinel(t)
			var urls []string
			for _, p := range s.Sentinels {
				urls = append(urls, "redis://"+p.Addr)
			}
			return "redis " + strings.Join(urls, " ") + " {\n\t\t\tsentinel " + redistest.MasterName
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t, nil)
			o := w.options("", "")
			o.Global = strings.Replace(o.Global, w.redisLine(), start(t)+"\n\t\t\t"+longRedisTimeout+"\n\t\t}", 1)
			o.Env = []string{"TEST_REDIS_PASSWORD=canary-password"}
			g := gatewaytest.Start(t, o)
			requireReady(t, g)
			requireServed(t, g, w.acme, load.KeyLimit)
			requireProblem(t, w.acme.Get(t, g.URL, "/api/v1/me"), http.StatusTooManyRequests, "RATE_LIMITED")
			require.Equal(t, http.StatusOK, w.other.Get(t, g.URL, "/api/v1/me").Status)
			local := decidedLocally(t, g)
			byRedis := int(g.Metric(t, "gatehouse_limit_decisions_total", `by="redis"`, `limit="key"`, `outcome="allowed"`))
			require.Equal(t, 61, byRedis+local)
			require.Positive(t, byRedis)
			gatewaytest.RequireNowhere(t, g.Everything(t), "canary-password")
		})
	}
}

//nolint:tparallel // the subtest is a part of the outage
func TestOnOutageDenyRejectsAndAllowServesAll(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	deny := w.start(t, "limits {\n\t\t\ton_outage deny\n\t\t}", "")
	allow := w.start(t, "limits {\n\t\t\ton_outage allow\n\t\t}", "")
	require.Equal(t, http.StatusOK, w.acme.Get(t, deny.URL, "/api/v1/me").Status)
	require.NoError(t, w.redis.Kill())
	a := waitForStatus(t, http.StatusServiceUnavailable, w.acme, deny)
	requireProblem(t, a, http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	require.Eventually(t, func() bool { // one lost reply is not an outage yet
		_ = w.acme.Get(t, deny.URL, "/api/v1/me")
		return anonymous().Get(t, deny.URL, "/readyz").Status == http.StatusServiceUnavailable
	}, patience, 50*time.Millisecond)
	require.Contains(t, anonymous().Get(t, deny.AdminURL, "/metrics").Body, "gatehouse_ready 0\n")
	t.Run("deny looks up no key that cannot be counted", func(t *testing.T) {
		lookups := func() float64 { return deny.Metric(t, "gatehouse_credential_events_total", `event="unknown"`) }
		before := lookups()
		for i := range 20 {
			stranger := gatewaytest.Caller{PublicKey: "pk_live_invented_" + strconv.Itoa(i), PrivateKey: authsigner.Secret("sk_live_" + strings.Repeat("x", 32))}
			requireProblem(t, stranger.Get(t, deny.URL, "/api/v1/me"), http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")
		}
		require.Zero(t, lookups()-before)
	})
	requireServed(t, allow, w.acme, 70)
	requireCheck(t, allow, "limits", false)
	require.Contains(t, anonymous().Get(t, allow.AdminURL, "/metrics").Body, "gatehouse_ready 1\n")
	require.NoError(t, w.redis.Restart())
	requireReady(t, deny)
	requireLogged(t, deny, "redis available again")
	waitForStatus(t, http.StatusOK, w.other, deny) // acme is limited: requests allowed during the outage count
}
