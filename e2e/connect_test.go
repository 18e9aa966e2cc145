package e2e_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// longConnectTimeout replaces the default timeout of 15 s, which checking a password exceeds on a busy machine.
const longConnectTimeout = "timeout 1m"

// connectSite returns the connection server's part of a site.
func (w *environment) connectSite(g *gatewaytest.Gateway) string {
	return "gatehouse_connect {\n\t\tissuer " + g.URL + "\n\t\tupstream " + w.dataURL + "\n\t\t" + longConnectTimeout + "\n\t\tmanage_keys\n\t}\n\t"
}

// connectedTo starts a gateway with the connection server, by default with the demo's data service.
func connectedTo(t *testing.T, data http.Handler, app string) (*environment, *gatewaytest.Gateway) {
	t.Helper()
	w := newEnvironment(t, data)
	return w, w.startConnect(t, w.options(app, ""))
}

// startConnect starts a gateway with the connection server.
func (w *environment) startConnect(t *testing.T, o gatewaytest.Options) *gatewaytest.Gateway {
	t.Helper()
	g := gatewaytest.New(t, o)
	o.Site = w.connectSite(g) + o.Site
	startWith(t, g, o)
	return g
}

// owner signs in as the owner of acme.
func (w *environment) owner(t *testing.T, g *gatewaytest.Gateway) *browser {
	t.Helper()
	p := newBrowser(t, g.URL)
	p.signIn(accountOf(t, w.acmeID, demo.RoleOwner))
	return p
}

// approved returns an assistant that an owner has approved.
func approved(t *testing.T, owner *browser, scope string, allow ...string) *assistant {
	t.Helper()
	a := register(t, owner.base, "Test Assistant")
	a.connect(t, owner, scope, allow...)
	return a
}

func TestAssistantWorksUntilDisconnected(t *testing.T) {
	t.Parallel()
	w, g := connectedTo(t, nil, "")
	owner := w.owner(t, g)
	a := approved(t, owner, "mcp:use", "contacts:write")
	require.NotContains(t, a.Scope, "receptionist:write", "a scope that was not approved")

	status, response := a.call(t, "business_get", `{}`)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(response.Result.StructuredContent), "fernhollow-landscape")
	status, response = a.call(t, "contacts_create", `{"first_name":"Ada","last_name":"Lindqvist","email":"ada@example.com"}`)
	require.Equal(t, http.StatusOK, status)
	require.False(t, response.Result.IsError, "%v", response.Result.Content)
	_, response = a.call(t, "contacts_search", `{"query":"Lindqvist"}`)
	require.Contains(t, string(response.Result.StructuredContent), "ada@example.com")
	status, _ = a.call(t, "receptionist_faq_upsert", `{"question":"Open on Sundays?","answer":"No."}`)
	require.Equal(t, http.StatusForbidden, status, "a scope that was not granted")

	at := owner.open("/settings/connected-apps")
	require.Contains(t, at.Text, "Test Assistant")
	nowhere := owner.open("/settings/nowhere")
	require.Equal(t, http.StatusNotFound, nowhere.Status)
	require.Contains(t, nowhere.Text, "<title>", "an HTML page")
	activity := owner.open("/settings/activity")
	require.Contains(t, activity.Text, "Added the contact Ada Lindqvist<")

	link := regexp.MustCompile(`href="([^"]*)">Disconnect`).FindStringSubmatch(at.Text)
	require.NotNil(t, link, at.Text)
	at = owner.send(owner.open(html.UnescapeString(link[1])), "connection", nil)
	require.Equal(t, http.StatusOK, at.Status)
	status, _ = a.call(t, "business_get", `{}`)
	require.Equal(t, http.StatusUnauthorized, status, "the connection has ended")
	status, err := a.refresh(t)
	assert.Equal(t, http.StatusBadRequest, status)
	require.ErrorContains(t, err, "invalid_grant")
}

func TestConnectionSurvivesReloadAndRestart(t *testing.T) {
	t.Parallel()
	w, g := connectedTo(t, nil, "")
	owner := w.owner(t, g)
	a := approved(t, owner, "mcp:read")
	for range 3 {
		g.Reload(t)
		_, response := a.call(t, "business_get", `{}`)
		assert.Contains(t, string(response.Result.StructuredContent), "fernhollow-landscape")
	}
	g.Kill(t)
	g.Run(t)
	status, _ := a.call(t, "business_get", `{}`)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, http.StatusOK, owner.open("/settings/connected-apps").Status, "the owner is still signed in")
	gatewaytest.RequireNowhere(t, g.Output(), a.Access, a.Refresh, accountOf(t, w.acmeID, demo.RoleOwner).Password)
}

// The grace period of the tests' gateways is shorter than the wait.
func TestStoppingGatewayCutsNoCallOffThatWaitsForARun(t *testing.T) {
	t.Parallel()
	data, err := demo.Open(t.Context(), demo.Memory, demo.Options{Pace: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, data.Close()) })
	polled := make(chan struct{}, 100)
	w, g := connectedTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data.Handler().ServeHTTP(w, r)
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/automation-runs/") {
			polled <- struct{}{}
		}
	}), "")
	a := approved(t, w.owner(t, g), "mcp:use", "automations:run")
	var response string
	done := make(chan error, 1)
	go func() {
		var err error
		response, err = a.raw(t.Context(), onceClient(), "automations_run", `{"automation_id":"overdue-reminders","dry_run":true,"wait_seconds":45}`)
		done <- err
	}()
	select {
	case <-polled:
	case err := <-done:
		require.Fail(t, "the call does not wait", "%v %s", err, response)
	}
	g.Signal(t, syscall.SIGTERM)
	require.NoError(t, <-done)
	assert.Contains(t, response, "has not ended. Poll it")
	require.Zero(t, g.ExitCode(t))
}

func TestSwitchedOffAreaIsGoneAfterAReload(t *testing.T) {
	t.Parallel()
	w, g := connectedTo(t, nil, "")
	owner := w.owner(t, g)
	a := approved(t, owner, "mcp:use", "contacts:write", "automations:run")
	only := approved(t, owner, "automations:run", "automations:run")
	late := register(t, g.URL, "Late Assistant")
	form := owner.open(late.authorizeURL("mcp:use"))
	require.Contains(t, form.Text, "Run your automations")
	require.Contains(t, a.tools(t), "automations_run")
	status, response := a.call(t, "automations_list", `{}`)
	require.Equal(t, http.StatusOK, status)
	require.NotEmpty(t, response.Result.StructuredContent)

	config, err := os.ReadFile(g.Config)
	require.NoError(t, err)
	g.Write(t, strings.Replace(string(config), "\tmanage_keys\n", "\tmanage_keys\n\t\texcept_areas automations\n", 1))
	g.Reload(t)

	tools := a.tools(t)
	assert.Contains(t, tools, "contacts_create")
	assert.NotContains(t, tools, "utomation")
	for _, tool := range []string{"automations_list", "automations_run_get", "automations_run"} {
		_, response = a.call(t, tool, `{"automation_id":"overdue-reminders"}`)
		assert.Contains(t, string(response.Error), "unknown tool", tool)
	}
	status, _ = a.call(t, "contacts_create", `{"first_name":"Ada"}`)
	assert.Equal(t, http.StatusOK, status)
	status, err = a.refresh(t)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.NotContains(t, a.Scope, "automations")
	status, _ = only.call(t, "automations_list", `{}`)
	assert.Equal(t, http.StatusUnauthorized, status, "nothing is left")
	_, err = only.refresh(t)
	require.ErrorContains(t, err, "invalid_scope")

	assert.NotContains(t, owner.open(late.authorizeURL("mcp:use")).Text, "utomations")
	assert.NotContains(t, owner.open(late.authorizeURL("mcp:read automations:run")).Text, "Run your automations")
	assert.Contains(t, owner.open("/.well-known/oauth-protected-resource/mcp").Text, `"scopes_supported":["mcp:read","mcp:write"]`)
	answer := owner.send(form, "request", url.Values{
		"allow": {"contacts:read", "automations:read", "automations:run"}, "decision": {"approve"},
	})
	require.NotNil(t, answer.Redirect, answer.Text)
	late.redeem(t, answer.Redirect.Query().Get("code"))
	assert.Equal(t, "contacts:read", late.Scope)
	assert.NotContains(t, owner.open("/settings/connected-apps").Text, "utomations")
	assert.Contains(t, owner.open("/settings/activity").Text, "may run Automations", "what was approved")

	g.Write(t, string(config))
	g.Reload(t)
	status, _ = only.call(t, "automations_list", `{}`)
	assert.Equal(t, http.StatusOK, status)
	status, _ = late.call(t, "automations_list", `{}`)
	assert.Equal(t, http.StatusForbidden, status, "never approved")
	_, err = a.refresh(t)
	require.NoError(t, err)
	status, _ = a.call(t, "automations_list", `{}`)
	assert.Equal(t, http.StatusOK, status)
}

func TestDataServiceGetsNoAssistantToken(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 64)
	data := demoService(t).Handler()
	w, g := connectedTo(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		data.ServeHTTP(rw, r)
	}), "assertion "+writeAssertionKey(t))
	account := accountOf(t, w.acmeID, demo.RoleOwner)
	owner := w.owner(t, g)
	a := approved(t, owner, "mcp:read")
	status, _ := a.call(t, "contacts_search", `{}`)
	require.Equal(t, http.StatusOK, status)
	var last http.Header
	for len(seen) > 0 {
		last = <-seen
		require.NotEmpty(t, last.Get("X-Gateway-Assertion"))
		for name, values := range last {
			assert.NotContains(t, strings.Join(values, " "), a.Access, name)
			assert.NotContains(t, strings.Join(values, " "), account.Password, name)
		}
		require.Empty(t, last.Get("Authorization"))
		require.Empty(t, last.Get("Cookie"))
	}
	require.Equal(t, w.acmeID, last.Get("X-Business-Id"))
	require.Equal(t, account.ID, last.Get("X-Account-Id"))
	jwt := strings.Split(last.Get("X-Gateway-Assertion"), ".")
	require.Len(t, jwt, 3)
	raw, err := base64.RawURLEncoding.DecodeString(jwt[1])
	require.NoError(t, err)
	var claims map[string]any
	require.NoError(t, json.Unmarshal(raw, &claims))
	assert.Equal(t, "connect", claims["aud"])
	assert.Equal(t, w.acmeID, claims["sub"])
}

func TestOwnersManageOnlyTheirOwnKeys(t *testing.T) {
	t.Parallel()
	w, g := connectedTo(t, nil, "")
	owner := w.owner(t, g)
	at := owner.open("/settings/api")
	require.Contains(t, at.Text, w.acme.PublicKey)
	require.NotContains(t, at.Text, w.other.PublicKey, "another business's")
	require.NotContains(t, at.Text, w.acme.PrivateKey.Reveal())

	issued := owner.send(at, "action", url.Values{"kind": {"live"}})
	require.Equal(t, http.StatusOK, issued.Status)
	caller := keysOn(t, issued)
	require.Equal(t, http.StatusOK, caller.Get(t, g.URL, "/api/v1/me").Status, "the new key works at once")
	require.NotContains(t, owner.open("/settings/api").Text, caller.PrivateKey.Reveal(), "shown once")

	// rotated at once: the old private key ends when the page says so
	link := regexp.MustCompile(`href="([^"]*)">Rotate<span class="unseen"> ` + caller.PublicKey).FindStringSubmatch(owner.open("/settings/api").Text)
	require.NotNil(t, link)
	at = owner.open(html.UnescapeString(link[1]))
	rotated := keysOn(t, owner.send(at, "grace", url.Values{"grace": {"0"}}))
	require.Equal(t, caller.PublicKey, rotated.PublicKey)
	require.Equal(t, http.StatusUnauthorized, caller.Get(t, g.URL, "/api/v1/me").Status)
	require.Equal(t, http.StatusOK, rotated.Get(t, g.URL, "/api/v1/me").Status)

	// another business's key in the form is not found
	stolen := owner.send(owner.open(html.UnescapeString(link[1])), "grace", url.Values{"grace": {"0"}, "key": {w.other.PublicKey}})
	require.Equal(t, http.StatusNotFound, stolen.Status, stolen.Text)
	require.Equal(t, http.StatusOK, w.other.Get(t, g.URL, "/api/v1/me").Status)

	member := newBrowser(t, g.URL)
	member.signIn(accountOf(t, w.acmeID, demo.RoleMember))
	require.Equal(t, http.StatusForbidden, member.open("/settings/api").Status)
	gatewaytest.RequireNowhere(t, g.Everything(t), caller.PrivateKey.Reveal(), rotated.PrivateKey.Reveal())
}

// keysOn returns the key pair that a page shows.
func keysOn(t *testing.T, at page) gatewaytest.Caller {
	t.Helper()
	value := func(id string) string {
		m := regexp.MustCompile(`id="` + id + `"[^>]*(?: value="|>)([ps]k_[A-Za-z0-9_-]+)["<]`).FindStringSubmatch(at.Text)
		require.NotNil(t, m, "%d %s", at.Status, at.Text)
		return m[1]
	}
	return gatewaytest.Caller{PublicKey: value("public-key"), PrivateKey: authsigner.Secret(value("private-key"))}
}

// A client that receives invalid_token or invalid_grant deletes its tokens, so an outage must not cause these errors.
func TestRedisOutageEndsNoConnection(t *testing.T) {
	t.Parallel()
	w, g := connectedTo(t, nil, "")
	owner := w.owner(t, g)
	a := approved(t, owner, "mcp:read")

	require.NoError(t, w.redis.Pause())
	status, _ := a.call(t, "business_get", `{}`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	status, err := a.refresh(t)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.NotContains(t, err.Error(), "invalid")
	at := owner.open("/settings/connected-apps")
	assert.Equal(t, http.StatusServiceUnavailable, at.Status)
	assert.NotContains(t, at.Text, w.redis.Addr)

	require.NoError(t, w.redis.Resume())
	require.Eventually(t, func() bool {
		status, _ := a.call(t, "business_get", `{}`)
		return status == http.StatusOK
	}, patience, 100*time.Millisecond)
	assert.Equal(t, http.StatusOK, owner.open("/settings/connected-apps").Status)
}

func TestDataServiceOutageIsAToolErrorAndDeniesSignIn(t *testing.T) {
	t.Parallel()
	data := httptest.NewServer(demoService(t).Handler())
	t.Cleanup(data.Close)
	target, err := url.Parse(data.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	w, g := connectedTo(t, proxy, "")
	account := accountOf(t, w.acmeID, demo.RoleOwner)
	owner := w.owner(t, g)
	a := approved(t, owner, "mcp:read")
	data.Close()

	status, response := a.call(t, "contacts_search", `{}`)
	require.Equal(t, http.StatusOK, status)
	require.True(t, response.Result.IsError)
	text, err := json.Marshal(response)
	require.NoError(t, err)
	gatewaytest.RequireNowhere(t, string(text), target.Host, "goroutine ", "connection refused")
	other := newBrowser(t, g.URL)
	at := other.send(other.open("/sign-in"), "password", url.Values{"email": {account.Email}, "password": {account.Password}})
	require.Equal(t, http.StatusServiceUnavailable, at.Status)
	gatewaytest.RequireNowhere(t, at.Text, target.Host, account.Password)
}

// The ACL of docs/connect.md suffices for everything that the gateway does.
func TestDocumentedRedisACLSuffices(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "connect.md"))
	require.NoError(t, err)
	line := regexp.MustCompile(`user gateway on >… (.*)`).FindSubmatch(text)
	require.NotNil(t, line)
	w := newEnvironment(t, nil)
	args := []any{"ACL", "SETUSER", "gateway", "reset", "on", ">made-up"}
	for rule := range strings.FieldsSeq(string(line[1])) {
		args = append(args, rule)
	}
	require.NoError(t, w.redis.Client(t).Do(t.Context(), args...).Err())
	o := w.options("", "")
	o.Global = strings.Replace(o.Global, w.redisLine(),
		"redis "+w.redis.URL()+" {\n\t\t\tusername gateway\n\t\t\tpassword made-up\n\t\t\t"+longRedisTimeout+"\n\t\t}", 1)
	g := w.startConnect(t, o)
	owner := w.owner(t, g)
	a := approved(t, owner, "mcp:use", "contacts:write")
	status, response := a.call(t, "contacts_create", `{"first_name":"Grace","last_name":"Okafor"}`)
	require.Equal(t, http.StatusOK, status)
	require.False(t, response.Result.IsError, "%v", response.Result.Content)
	status, err = a.refresh(t)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	for path, text := range map[string]string{
		"/settings/connected-apps": "Test Assistant", "/settings/activity": "Added the contact Grace Okafor<", "/settings/api": w.acme.PublicKey,
	} {
		at := owner.open(path)
		assert.Equal(t, http.StatusOK, at.Status, path)
		assert.Contains(t, at.Text, text)
	}
	require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status)
	at := owner.send(owner.open("/sign-out"), "csrf", nil)
	require.Equal(t, http.StatusOK, at.Status)
	require.Equal(t, "/sign-in", owner.open("/settings/connected-apps").URL.Path)
	gatewaytest.RequireNowhere(t, g.Output(), "NOPERM")
	log, err := w.redis.Client(t).Do(t.Context(), "ACL", "LOG").Slice()
	require.NoError(t, err)
	assert.Empty(t, log, "commands that Redis denied")
}

// A thousand connections (60 in the short form) call concurrently through one gateway, each with its own token.
func TestFleetOfAssistantsOnOneGateway(t *testing.T) {
	t.Parallel()
	n, rounds := 60, 3
	if chaosScale(t).long {
		n, rounds = 1000, 20
	}
	// The demo data service is too slow for a thousand at once.
	rest := demoService(t).Handler()
	w := newEnvironment(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/connect/v1/business" {
			rest.ServeHTTP(rw, r)
			return
		}
		id := r.Header.Get("X-Business-Id")
		rw.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(rw, `{"business":{"business_id":%q,"id":%q,"name":"A business","slug":"a-business","email":null,`+
			`"phone":null,"website_url":null,"time_zone":"UTC","account_status":"active","version":1,`+
			`"updated_at":"2026-03-05T14:30:00Z"}}`, id, id)
	}))
	o := w.options("", "")
	o.Servers = "trusted_proxies static 127.0.0.0/8" // the approvals come from many client IPs
	g := w.startConnect(t, o)
	owner := w.owner(t, g)
	first := register(t, g.URL, "Test Assistant")
	assistants := make([]*assistant, n)
	for i := range assistants {
		owner.address = fmt.Sprintf("198.51.%d.%d", 100+i/100, 1+i%100)
		a := *first
		a.verifier = rand.Text() + rand.Text()
		a.connect(t, owner, "mcp:read")
		assistants[i] = &a
	}
	before, _ := g.Memory(t)

	took := make([]time.Duration, n*rounds)
	client := protocolClient(t, false, 0)
	start := time.Now()
	inParallel(n, n*rounds, func(i int) {
		sent := time.Now()
		text, err := assistants[i%n].raw(t.Context(), client, "business_get", `{}`)
		took[i] = time.Since(sent)
		if err != nil || !strings.Contains(text, `\"slug\":`) {
			t.Error(err, text)
		}
	})
	all := time.Since(start)
	slices.Sort(took)
	require.False(t, t.Failed())
	_, peak := g.Memory(t)
	t.Logf("figure: %d connections in use at once, %d calls, wrong responses: 0, %.0f calls/s, p50=%s p99=%s, memory %d -> %d MiB at most",
		n, len(took), float64(len(took))/all.Seconds(), took[len(took)/2].Round(time.Microsecond),
		took[len(took)*99/100].Round(time.Microsecond), before>>20, peak>>20)

	at := owner.open("/settings/connected-apps")
	assert.Equal(t, http.StatusOK, at.Status)
	assert.GreaterOrEqual(t, strings.Count(at.Text, "Test Assistant"), n)
}
