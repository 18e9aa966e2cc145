package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/connect"
	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/accounttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// A fleet of two gateways gets traffic and faults. Each alert must become active, and each query of each dashboard must return
// data, which for counters is not always 0.
func TestAlertsAndDashboardsWithRealPrometheus(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	p := startPrometheus(t, f.gateway, f.small)
	p.await(t, `count(up == 1) == 2`)
	p.await(t, `count(rate(gatehouse_build_info[10s])) == 2`) // two scrapes of each gateway

	f.connect(t)
	for range 3 { // a series that begins with an event shows only later ones
		f.traffic(t)
		p.await(t, fmt.Sprintf(`sum(gatehouse_authentications_total{instance=%q}) >= %v`, f.instance(), f.gateway.Metric(t, "gatehouse_authentications_total")))
	}
	f.guessPasswords(t)

	// Redis loses its data, and then does not respond. A loss that begins and ends while a slow Redis counts as unavailable is not noticed:
	// the gateway sends all that it allowed anyway.
	p.awaitAlert(t, "GatehouseRedisDataLost", func() {
		f.requests(t, "/api/v1/me", 1)
		require.NoError(t, f.redis.Client(t).FlushAll(t.Context()).Err())
		f.requests(t, "/api/v1/me", 1)
	})
	require.NoError(t, f.redis.Pause())
	p.awaitAlert(t, "GatehouseRedisPoolExhausted", func() {
		inParallel(8, func() { f.call(t, "business_get") })
		inParallel(8, func() { f.requests(t, "/api/v1/me", 1) })
	})
	p.awaitAlert(t, "GatehouseLimitsNotShared", func() { f.requests(t, "/api/v1/me", 50) })
	decisions := func(by string) float64 { return f.gateway.Metric(t, "gatehouse_limit_decisions_total", `by="`+by+`"`) }
	for start := time.Now(); decisions("local") < 2*decisions("redis"); {
		require.Less(t, time.Since(start), patience, "Redis does not respond, and too few requests are decided locally")
		f.requests(t, "/api/v1/me", 50)
	}
	require.NoError(t, f.redis.Resume())
	p.awaitAlert(t, "GatehouseLimitsDecidedLocally", func() {})

	f.vault.Kill(t)
	unknown := func(g *gatewaytest.Gateway) {
		caller := gatewaytest.Caller{PublicKey: "pk_test_" + strconv.FormatInt(time.Now().UnixNano(), 10), PrivateKey: "sk_test"}
		caller.Get(t, g.URL, "/api/v1/me")
	}
	p.awaitAlert(t, "GatehouseCredentialsUnavailable", func() { unknown(f.gateway) })
	p.awaitAlert(t, "GatehouseNotReady", func() { unknown(f.small) }) // which has looked up no key before
	status, text := send(t, anyone, http.MethodPost, f.gateway.AdminURL+"/load", `{"admin":{"listen":"`+f.instance()+`"},"apps":{"http":1}}`,
		http.Header{"Content-Type": {"application/json"}})
	require.Equal(t, http.StatusBadRequest, status, text)
	p.awaitAlert(t, "GatehouseReloadFailed", func() {})
	f.small.Kill(t)
	p.awaitAlert(t, "GatehouseDown", func() {})

	p.requireRules(t)
	p.requireDashboards(t)
	requireRunbookQueries(t, f.gateway.Output())
}

// requireRunbookQueries requires that every jq filter of docs/runbooks.md finds lines in the fleet's log, and that each field
// that it prints is in one of them.
func requireRunbookQueries(t *testing.T, log string) {
	t.Helper()
	jq, err := exec.LookPath("jq")
	require.NoError(t, err, "install Debian's package jq (make test does)")
	runbooks, err := os.ReadFile("../docs/runbooks.md")
	require.NoError(t, err)
	queries := regexp.MustCompile(`(?m)^jq -cR '([^']+)' gatehouse\.log\b`).FindAllStringSubmatch(string(runbooks), -1)
	require.NotEmpty(t, queries)
	require.Len(t, queries, strings.Count(string(runbooks), "jq -"), "a query of another form")
	for _, query := range queries {
		cmd := exec.CommandContext(t.Context(), jq, "-cR", query[1])
		cmd.Stdin = strings.NewReader(log)
		out, err := cmd.Output()
		require.NoError(t, err, query[1])
		require.NotEmpty(t, out, "%s finds nothing", query[1])
		found := map[int]bool{} // by position in the list that the filter prints
		columns := 0
		for line := range bytes.Lines(out) {
			var values []any
			if json.Unmarshal(line, &values) != nil {
				continue // the whole line of the log, or one value
			}
			columns = len(values)
			for i, v := range values {
				found[i] = found[i] || v != nil
			}
		}
		for i := range columns {
			require.True(t, found[i], "%s: no line has field %d", query[1], i+1)
		}
	}
}

// prometheus is a running Prometheus.
type prometheus struct {
	url   string
	start time.Time
}

// startPrometheus starts a Prometheus with the rules of this directory, which scrapes gateways every second.
func startPrometheus(t *testing.T, gateways ...*gatewaytest.Gateway) *prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	require.NoError(t, err, "install Debian's package prometheus (make test does)")
	rules, err := filepath.Abs("prometheus-rules.yaml")
	require.NoError(t, err)
	dir, addr := t.TempDir(), gatewaytest.FreeAddr(t)
	config := "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [" + rules + "]\nscrape_configs:\n" +
		"- job_name: gatehouse\n  static_configs:\n  - targets:\n"
	for _, g := range gateways {
		config += "    - " + strings.TrimPrefix(g.AdminURL, "http://") + "\n"
	}
	file := filepath.Join(dir, "prometheus.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	var log bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "--config.file="+file, "--storage.tsdb.path="+dir, "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = &log, &log
	process, err := processtest.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			t.Logf("the log of Prometheus:\n%s", log.String())
		}
	})
	p := &prometheus{url: "http://" + addr, start: time.Now()}
	require.Eventually(t, func() bool {
		res, err := anyone.Get(p.url + "/-/ready")
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	}, patience, 50*time.Millisecond)
	return p
}

// get queries Prometheus's API.
func (p *prometheus) get(t *testing.T, path string, query url.Values, data any) {
	t.Helper()
	body := get(t, p.url+path+"?"+query.Encode())
	var response struct {
		Status, Error string
		Data          json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(body), &response), body)
	require.Equal(t, "success", response.Status, "%s: %s", query.Get("query"), response.Error)
	require.NoError(t, json.Unmarshal(response.Data, data), body)
}

// await waits until a query returns data.
func (p *prometheus) await(t *testing.T, query string) {
	t.Helper()
	p.awaitWhile(t, query, func() {})
}

// awaitAlert calls cause repeatedly until an alert is active.
func (p *prometheus) awaitAlert(t *testing.T, name string, cause func()) {
	t.Helper()
	p.awaitWhile(t, fmt.Sprintf("ALERTS{alertname=%q}", name), cause)
}

func (p *prometheus) awaitWhile(t *testing.T, query string, do func()) {
	t.Helper()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-poll.C {
		var data struct{ Result []any }
		p.get(t, "/api/v1/query", url.Values{"query": {query}}, &data)
		if len(data.Result) > 0 {
			return
		}
		do()
	}
	require.Fail(t, "no data", "%s", query)
}

// values returns all values of a query since the start, also those that held only between two scrapes less than a second apart.
func (p *prometheus) values(t *testing.T, query string) (all []string) {
	t.Helper()
	var data struct {
		Result []struct{ Values [][2]any }
	}
	p.get(t, "/api/v1/query_range", url.Values{
		"query": {query}, "step": {"0.1"},
		"start": {strconv.FormatInt(p.start.Unix(), 10)}, "end": {strconv.FormatInt(time.Now().Unix(), 10)},
	}, &data)
	for _, series := range data.Result {
		for _, sample := range series.Values {
			if value := fmt.Sprint(sample[1]); value != "NaN" {
				all = append(all, value)
			}
		}
	}
	return all
}

// requireRules waits until each alert has been active, and requires each recording rule to have data.
func (p *prometheus) requireRules(t *testing.T) {
	t.Helper()
	for _, r := range rules(t) {
		if r.Record != "" {
			require.NotEmpty(t, p.values(t, r.Record), r.Record)
			continue
		}
		p.await(t, fmt.Sprintf("last_over_time(ALERTS{alertname=%q}[10m])", r.Alert))
		if r.Alert != "GatehouseDown" {
			require.NotEmpty(t, p.values(t, r.Expr), r.Alert)
		}
	}
	var active struct {
		Alerts []struct{ Annotations map[string]string }
	}
	p.get(t, "/api/v1/alerts", nil, &active)
	require.NotEmpty(t, active.Alerts)
	for _, alert := range active.Alerts {
		require.NotContains(t, fmt.Sprint(alert.Annotations), "<error")
		require.NotContains(t, fmt.Sprint(alert.Annotations), "<no value>")
	}
	// The operations that the objective covers.
	requests := rules(t)[slices.IndexFunc(rules(t), func(r rule) bool { return r.Record == "gatehouse:api_requests:rate5m" })].Expr
	selector := regexp.MustCompile(`gatehouse_\w+\{.*?\}`).FindString(requests)
	var data struct {
		Result []struct{ Metric map[string]string }
	}
	p.get(t, "/api/v1/query", url.Values{"query": {"count by (operation) (" + selector + ")"}}, &data)
	operations := []string{}
	for _, series := range data.Result {
		operations = append(operations, series.Metric["operation"])
	}
	require.ElementsMatch(t, []string{
		"getStatus", "getMe", "getBusiness", "listContacts", "listEquipment", "listEstimates", "listInvoices", "listJobs", "listOfferings", "listEvents",
		"reports/listReports",
	}, operations)
}

// requireDashboards requires data for each query and each variable of the dashboards.
func (p *prometheus) requireDashboards(t *testing.T) {
	t.Helper()
	substitute := strings.NewReplacer("$__rate_interval", "10s", "$__range", "5m", "$instance", ".*", "$resource", ".*", "$tool", ".*")
	counter := regexp.MustCompile(`\b(rate|increase)\(`)
	label := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	for file, d := range dashboards(t) {
		for _, v := range d.Templating.List[1:] {
			m := label.FindStringSubmatch(v.Query)
			require.NotNil(t, m, "%s: %s", file, v.Query)
			require.NotEmpty(t, p.values(t, fmt.Sprintf("%s{%s!=\"\"}", m[1], m[2])), "%s: %s", file, v.Query)
		}
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				query := substitute.Replace(target.Expr)
				values := p.values(t, query)
				if !assertSome(t, values, "no data", file, panel.Title, query) || !counter.MatchString(query) {
					continue
				}
				assertSome(t, slices.DeleteFunc(values, func(v string) bool { return v == "0" }), "only 0", file, panel.Title, query)
			}
		}
	}
}

func assertSome(t *testing.T, values []string, what, file, title, query string) bool {
	t.Helper()
	if len(values) == 0 {
		t.Errorf("%s, %s: %s for %s", file, title, what, query)
	}
	return len(values) > 0
}

// fleet is two gateways with their stores.
type fleet struct {
	redis   *redistest.Server
	vault   *vaulttest.Server
	gateway *gatewaytest.Gateway
	small   *gatewaytest.Gateway // with too little memory, and limits in shadow mode

	business, malformed gatewaytest.Caller
	reports             gatewaytest.Caller // of an API, at whose first address nothing listens
	unfit               gatewaytest.Caller // of a business whose ID cannot be part of a path
	first               demo.Business
	owner               demo.Account
	assistant           string // its access token
}

var anyone = &http.Client{Timeout: patience}

func startFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{redis: redistest.Start(t), vault: vaulttest.Start(t, vaulttest.Options{})}
	source, err := vault.New(t.Context(), vault.Options{Address: f.vault.Addr, Timeout: patience, Auth: vault.Auth{Token: authsigner.Secret(f.vault.RootToken)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, source.Close()) })
	require.Eventually(t, func() bool { return source.Ready() == nil }, patience, 20*time.Millisecond)
	first, other := demo.Businesses()[0], demo.Businesses()[1].ID
	f.first = first
	f.owner = demo.Accounts()[slices.IndexFunc(demo.Accounts(), func(a demo.Account) bool { return a.BusinessID == first.ID && a.Role == demo.RoleOwner })]
	issue := func(resources ...string) gatewaytest.Caller {
		cred, err := authsigner.Issue(t.Context(), source, authsigner.IssueOptions{BusinessID: first.ID, BusinessName: first.Name, BusinessSlug: first.Slug, Resources: resources})
		require.NoError(t, err)
		return gatewaytest.Caller{PublicKey: cred.PublicKey, PrivateKey: cred.PrivateKey}
	}
	f.business, f.malformed, f.reports = issue(), issue(), issue("reports")
	unfit, err := authsigner.Issue(t.Context(), source, authsigner.IssueOptions{BusinessID: "a/b", BusinessName: "A", BusinessSlug: "a", Resources: []string{"reports"}})
	require.NoError(t, err)
	f.unfit = gatewaytest.Caller{PublicKey: unfit.PublicKey, PrivateKey: unfit.PrivateKey}
	reports := filepath.Join(t.TempDir(), "reports.yaml")
	require.NoError(t, os.WriteFile(reports, []byte(`{openapi: 3.1.0, info: {title: Reports, version: "1"}, servers: [{url: /reports/v1}], paths: {/all: {get: {operationId: listReports,
		x-gatehouse-tenant: request, x-gatehouse-upstream: {path: "/v2/{business}/reports"}, responses: {"200": {description: "",
		content: {application/json: {schema: {type: object, properties: {count: {type: integer}}}}}}}}}}}`), 0o600))
	_, err = f.vault.Client(t).KVv2("kv").Put(t.Context(), "gateway/keys/"+f.malformed.PublicKey, map[string]any{"private_key": 1})
	require.NoError(t, err)

	service, err := demo.Open(t.Context(), demo.Memory, demo.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, service.Close()) })
	good := service.Handler()
	var signIns atomic.Int32
	data := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v1/contacts":
			panic(http.ErrAbortHandler)
		case r.URL.Path == "/api/v1/equipment":
			r.Header.Set("X-Business-Id", other)
		case r.URL.Path == "/api/v1/jobs": // with an id that is not a UUID
			answer := httptest.NewRecorder()
			good.ServeHTTP(answer, r)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(bytes.Replace(answer.Body.Bytes(), []byte(`"id":"`), []byte(`"id":"J-`), 1))
			return
		case r.URL.Path == "/api/v1/estimates":
			<-r.Context().Done()
			return
		case r.URL.Path == "/api/v1/invoices", strings.HasPrefix(r.URL.Path, "/connect/v1/contacts"):
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{}`)
			return
		case r.URL.Path == "/connect/v1/sign-in" && signIns.Add(1) == 1: // with the response to somebody else's
			_, _ = fmt.Fprintf(w, `{"account":{"id":%q,"email":%q,"role":"owner","business":{"id":%q,"name":"x","slug":"x"}}}`,
				f.owner.ID, f.owner.Email, first.ID)
			return
		}
		good.ServeHTTP(w, r)
	}))
	t.Cleanup(data.Close)

	options := func(limits string) gatewaytest.Options {
		return gatewaytest.Options{
			Global: fmt.Sprintf(`gatehouse {
		redis %s {
			timeout 1s
			pool_size 2
		}
		credentials vault %s {
			auth token {env.VAULT_ROOT_TOKEN}
			timeout 10s
		}
		cache {
			lookup_timeout 10s
		}
		limits {
			per_key 1000000
			%s
		}
	}`, f.redis.URL(), f.vault.Addr, limits),
			Site: "gatehouse_health\n\tgatehouse_api {\n\t\tdefinition {\n\t\t\tenforce members\n\t\t}\n\t\tupstream " + data.URL + "\n\t\ttimeout 1500ms\n\t}" +
				"\n\thandle /reports/* {\n\t\tgatehouse_api {\n\t\t\tdefinition reports " + reports +
				"\n\t\t\tupstream http://" + gatewaytest.FreeAddr(t) + " " + data.URL + " {\n\t\t\t\tlb_policy first\n\t\t\t}\n\t\t}\n\t}",
			Env: []string{"VAULT_ROOT_TOKEN=" + f.vault.RootToken},
		}
	}
	o := options("per_ip 5")
	f.gateway = gatewaytest.New(t, o)
	o.Site = "gatehouse_connect {\n\t\tissuer " + f.gateway.URL + "\n\t\tupstream " + data.URL + "\n\t}\n\t" + o.Site
	f.gateway.Write(t, o.Caddyfile(f.gateway.Addr, f.instance()))
	f.gateway.Run(t)
	o = options("per_ip 1\n\t\t\tshadow")
	o.Env = append(o.Env, "GOMEMLIMIT=8MiB")
	f.small = gatewaytest.Start(t, o)
	return f
}

// instance is the label of the gateway with the connection server.
func (f *fleet) instance() string { return strings.TrimPrefix(f.gateway.AdminURL, "http://") }

// requests sends n signed requests.
func (f *fleet) requests(t *testing.T, target string, n int) {
	t.Helper()
	for range n {
		_, err := f.business.Try(t.Context(), http.MethodGet, f.gateway.URL, target, nil)
		require.NoError(t, err)
	}
}

// traffic sends requests that are allowed, denied, and fail in every way.
func (f *fleet) traffic(t *testing.T) {
	t.Helper()
	for _, name := range []string{"me", "business", "contacts", "equipment", "estimates", "invoices", "jobs", "offerings", "events"} {
		f.requests(t, "/api/v1/"+name, 1)
	}
	for range 10 {
		get(t, f.gateway.URL+"/api/v1/status")
		get(t, f.small.URL+"/api/v1/status")
	}
	wrong := gatewaytest.Caller{PublicKey: f.business.PublicKey, PrivateKey: "sk_wrong"}
	for range 5 {
		wrong.Get(t, f.gateway.URL, "/api/v1/me")
	}
	send(t, anyone, http.MethodGet, f.gateway.URL+"/api/v1/me", "", http.Header{ // expired
		authsigner.HeaderPublicKey: {f.business.PublicKey}, authsigner.HeaderTimestamp: {"1"}, authsigner.HeaderSignature: {strings.Repeat("0", 64)},
	})
	f.malformed.Get(t, f.gateway.URL, "/api/v1/me")
	f.reports.Get(t, f.gateway.URL, "/reports/v1/all") // whose first address refuses connections
	unfit := f.unfit.Get(t, f.gateway.URL, "/reports/v1/all")
	require.Equal(t, http.StatusInternalServerError, unfit.Status, "%s", unfit.Body)

	f.call(t, "business_get")
	f.call(t, "contacts_search")
	send(t, anyone, http.MethodPost, f.gateway.URL+"/oauth/token", "grant_type=refresh_token&refresh_token=invalid",
		http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
}

func (f *fleet) guessPasswords(t *testing.T) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	guest, target := &http.Client{Jar: jar, Timeout: patience}, f.gateway.URL+"/sign-in"
	_, page := send(t, guest, http.MethodGet, target, "", nil)
	csrf := regexp.MustCompile(`name="csrf" value="([^"]*)"`).FindStringSubmatch(page)
	require.NotNil(t, csrf, page)
	for i := range 25 {
		form := url.Values{"csrf": {html.UnescapeString(csrf[1])}, "email": {fmt.Sprintf("nobody-%d@example.com", i)}, "password": {"a guess"}}
		send(t, guest, http.MethodPost, target, form.Encode(), http.Header{
			"Content-Type": {"application/x-www-form-urlencoded"}, "Origin": {f.gateway.URL}, "Sec-Fetch-Site": {"same-origin"},
		})
	}
}

// send sends a request and returns the response's status and body.
func send(t *testing.T, client *http.Client, method, target, body string, header http.Header) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	require.NoError(t, err)
	maps.Copy(req.Header, header)
	res, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(content)
}

func get(t *testing.T, target string) string {
	t.Helper()
	_, text := send(t, anyone, http.MethodGet, target, "", nil)
	return text
}

// connect connects an assistant to the gateway. The owner approves it in the gateway's Redis, without the pages.
func (f *fleet) connect(t *testing.T) {
	t.Helper()
	owner := account.Account{
		ID: f.owner.ID, Email: f.owner.Email, Name: f.owner.Name, Role: account.RoleOwner,
		Business: account.Business{BusinessID: f.first.ID, BusinessName: f.first.Name, BusinessSlug: f.first.Slug},
	}
	log, err := audit.New(audit.Options{Redis: f.redis.Client(t), Log: zap.NewNop()})
	require.NoError(t, err)
	server, err := oauth.New(oauth.Options{
		Issuer: f.gateway.URL, Redis: f.redis.Client(t), Accounts: accounttest.New(owner), Audit: log, Areas: scope.New(connect.Definition().Areas),
	})
	require.NoError(t, err)
	gateway, err := url.Parse(f.gateway.URL)
	require.NoError(t, err)
	client := oauthtest.Register(t, server)
	client.Handler = &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(gateway) }}
	f.assistant = client.Connect(owner, "mcp:read").Access
}

// call calls a tool as the assistant.
func (f *fleet) call(t *testing.T, tool string) {
	t.Helper()
	send(t, anyone, http.MethodPost, f.gateway.URL+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{}}}`, http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"},
		"Authorization": {"Bearer " + f.assistant},
	})
}

// inParallel calls do n times concurrently.
func inParallel(n int, do func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(do)
	}
	wg.Wait()
}
