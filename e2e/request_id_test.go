package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// linesAbout are a gateway's log lines with a request ID, at level info or above and without the audit log's.
func linesAbout(t *testing.T, g *gatewaytest.Gateway, requestID string) []map[string]any {
	t.Helper()
	require.NotEmpty(t, requestID)
	var found []map[string]any
	require.Eventually(t, func() bool {
		found = nil
		for l := range strings.Lines(g.Output()) {
			line := map[string]any{}
			if json.Unmarshal([]byte(l), &line) == nil && line["request_id"] == requestID && line["msg"] != "audit" && line["level"] != "debug" {
				found = append(found, line)
			}
		}
		return len(found) > 0
	}, patience, 10*time.Millisecond)
	return found
}

// toolRequestID is the request ID that a tool's error tells the assistant.
func toolRequestID(t *testing.T, a toolResponse) string {
	t.Helper()
	require.True(t, a.Result.IsError)
	id := regexp.MustCompile(`Request id, for support: (\S+)`).FindStringSubmatch(a.Result.Content[0].Text)
	require.NotNil(t, id, a.Result.Content[0].Text)
	return id[1]
}

// A caller, an assistant's user and a person in a browser each quote the ID that they were shown.
func TestRequestIDLeadsToOneLogLineWithTheCause(t *testing.T) { //nolint:tparallel // the parts share a data service that changes
	t.Parallel()
	data := demoService(t).Handler()
	service := &recorder{}
	service.setResponse(data.ServeHTTP)
	w, g := connectedTo(t, service, "")
	owner := w.owner(t, g)
	assistant := approved(t, owner, "mcp:use", "contacts:write")
	member := newBrowser(t, g.URL)
	address := strings.TrimPrefix(w.dataURL, "http://")

	requireLine := func(t *testing.T, id string, want map[string]any) map[string]any {
		t.Helper()
		lines := linesAbout(t, g, id)
		require.Len(t, lines, 1, "%v", lines)
		require.Equal(t, "request", lines[0]["msg"])
		for name, value := range want {
			assert.Equal(t, value, lines[0][name], "%s of %v", name, lines[0])
		}
		for _, name := range []string{"code", "cause", "route", "operation", "duration"} {
			assert.NotEmpty(t, lines[0][name], "%s of %v", name, lines[0])
		}
		return lines[0]
	}
	ofTool := func(tool, code, outcome string) map[string]any {
		return map[string]any{
			"route": "connect", "operation": "mcp", "mcp_method": "tools/call", "tool": tool, "outcome": outcome, "code": code, "business": w.acmeID,
			"client_name": "Test Assistant", "client_id": assistant.clientID,
		}
	}

	t.Run("rejected API request", func(t *testing.T) { //nolint:paralleltest // the parts share a data service that changes
		a := w.acme.Get(t, g.URL, "/api/v1/contacts?status="+strings.Repeat("canary-query", 20))
		require.Equal(t, http.StatusBadRequest, a.Status)
		var body struct {
			RequestID string `json:"request_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(a.Body), &body))
		requireLine(t, body.RequestID, map[string]any{"level": "info", "code": "INVALID_PARAMETER", "business": w.acmeID, "public_key": w.acme.PublicKey})
	})
	t.Run("invalid tool arguments", func(t *testing.T) { //nolint:paralleltest // as above
		_, a := assistant.call(t, "contacts_get", `{"id":987654321}`)
		line := requireLine(t, toolRequestID(t, a), ofTool("contacts_get", "NOT_FOUND", "rejected"))
		require.Equal(t, "info", line["level"])
		require.Equal(t, address, line["upstream_address"])
		for _, step := range []string{"verify", "limit", "upstream"} {
			assert.Positive(t, line[step], step)
		}
		require.NotEmpty(t, line["grant_id"])

		_, a = assistant.call(t, "contacts_create", `{"first_name":[7],"canary-name":"canary-value"}`)
		line = requireLine(t, toolRequestID(t, a), ofTool("contacts_create", "INVALID_ARGUMENTS", "rejected"))
		require.Equal(t, "first_name is not valid; unknown argument", line["cause"])
	})
	t.Run("call without its scope, a token or a valid message", func(t *testing.T) { //nolint:paralleltest // as above
		id := func(bearer, body string) string {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/mcp", strings.NewReader(body))
			require.NoError(t, err)
			req.Header = http.Header{
				"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"},
				"Authorization": {"Bearer " + bearer},
			}
			res, err := onceClient().Do(req)
			require.NoError(t, err)
			defer func() { require.NoError(t, res.Body.Close()) }()
			return res.Header.Get("X-Request-Id")
		}
		call := func(params string) string {
			return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
		}
		requireLine(t, id(assistant.Access, call(`{"name":"receptionist_faq_upsert","arguments":{"question":"a","response":"b"}}`)),
			ofTool("receptionist_faq_upsert", "INSUFFICIENT_SCOPE", "rejected"))
		requireLine(t, id("gat_canary-token", call(`{}`)), map[string]any{"code": "invalid_token", "operation": "mcp", "status": 401.0})
		for body, code := range map[string]string{
			call(`{"name":"canary-tool"}`):                              "INVALID_PARAMS",
			`{"jsonrpc":"2.0","id":1,"method":"canary/method"}`:         "METHOD_NOT_FOUND",
			`{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`:          "METHOD_NOT_FOUND",
			`{"jsonrpc":"2.0","canary":1}`:                              "INVALID_REQUEST",
			`{"jsonrpc":"2.0",canary}`:                                  "PARSE_ERROR",
			call(`{"name":"contacts_get","arguments":"canary-string"}`): "INVALID_PARAMS",
		} {
			requireLine(t, id(assistant.Access, body), map[string]any{"code": code, "business": w.acmeID})
		}
	})
	t.Run("pages and the token endpoint", func(t *testing.T) { //nolint:paralleltest // as above
		shown := func(at page) string {
			id := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).FindString(at.Text)
			require.NotEmpty(t, id, at.Text)
			return id
		}
		logged := func(part string) {
			require.Eventually(t, func() bool { return strings.Contains(g.Output(), part) }, patience, 10*time.Millisecond, part)
		}
		requireLine(t, shown(owner.open("/settings/nowhere?canary=canary-query")), map[string]any{"operation": "pages", "code": "NOT_FOUND", "level": "info"})
		requireLine(t, shown(owner.open("/oauth/approve?request=grq_canary")), map[string]any{"page": "/oauth/approve", "code": "NOT_FOUND"})
		at := member.open("/sign-in")
		member.send(at, "password", url.Values{"email": {"canary@example.com"}, "password": {"canary-password"}})
		logged(`"code":"WRONG_CREDENTIALS","page":"/sign-in","outcome":"wrong_credentials"`)
		_, err := assistant.token(t, url.Values{
			"grant_type": {"refresh_token"}, "refresh_token": {"grt_canary"}, "client_id": {assistant.clientID},
		})
		require.ErrorContains(t, err, "invalid_grant")
		logged(`"code":"invalid_grant","grant_type":"refresh_token"`)
	})
	t.Run("failing data service", func(t *testing.T) { //nolint:paralleltest // as above
		service.setResponse(aborts)
		a := w.acme.Get(t, g.URL, "/api/v1/contacts?status=canary-query")
		line := requireLine(t, a.Header.Get("X-Request-Id"), map[string]any{"level": "error", "code": "UPSTREAM_FAILED", "upstream_address": address})
		require.Contains(t, line["cause"], "EOF")
		_, response := assistant.call(t, "contacts_search", `{"query":"canary-query"}`)
		line = requireLine(t, toolRequestID(t, response), ofTool("contacts_search", "DATA_SERVICE_UNAVAILABLE", "failed"))
		require.Equal(t, "warn", line["level"])
		require.Equal(t, address, line["upstream_address"])
		service.setResponse(respondWith(http.StatusUnauthorized, "application/json", `{"code":"UNAUTHORIZED"}`))
		line = requireLine(t, w.acme.Get(t, g.URL, "/api/v1/contacts").Header.Get("X-Request-Id"), map[string]any{"code": "UPSTREAM_FAILED"})
		require.Contains(t, line["cause"], "assertion")
		_, response = assistant.call(t, "contacts_search", `{"query":"canary-query"}`)
		line = requireLine(t, toolRequestID(t, response), map[string]any{"tool": "contacts_search", "outcome": "failed"})
		require.Contains(t, line["cause"], "assertion")
		service.setResponse(respondWith(http.StatusOK, "application/json", `{"canary-member":1}`))
		_, response = assistant.call(t, "contacts_search", `{"query":"canary-query"}`)
		line = requireLine(t, toolRequestID(t, response), ofTool("contacts_search", "DATA_SERVICE_INVALID_RESPONSE", "failed"))
		require.Equal(t, "error", line["level"])
		require.Positive(t, g.Metric(t, "gatehouse_upstream_responses_total", `resource="connect"`, `outcome="invalid_response"`))
		service.setResponse(data.ServeHTTP)
	})

	require.InDelta(t, 3, g.Metric(t, "gatehouse_tool_calls_total", `tool="contacts_search"`, `outcome="failed"`), 0)
	require.InDelta(t, 1, g.Metric(t, "gatehouse_sign_ins_total", `outcome="ok"`), 0)
	require.InDelta(t, 1, g.Metric(t, "gatehouse_sign_ins_total", `outcome="wrong_credentials"`), 0)
	all := g.Everything(t)
	account := accountOf(t, w.acmeID, demo.RoleOwner)
	gatewaytest.RequireNowhere(t, all, "canary", assistant.Access, assistant.Refresh, assistant.verifier, account.Email, account.Password,
		w.acme.PrivateKey.Reveal())
	ourSeries(t, anonymous().Get(t, g.AdminURL, "/metrics").Body)
}

// Other programs read the log: while stores fail, libraries must not write lines of their own between the gateway's.
func TestEveryLineIsJSONWhileStoresFail(t *testing.T) {
	t.Parallel()
	w := newVaultEnvironment(t, vaulttest.Options{})
	w.setMount(t, "kv")
	key := w.keys.issue(t)
	o := w.environment.options("", "")
	o.Global = fmt.Sprintf("gatehouse {\n\t\t%s\n\t\tcache {\n\t\t\t%s\n\t\t}\n\t\tcredentials vault %s {\n\t\t\tauth token {env.TEST_TOKEN}\n\t\t\ttimeout 10s\n\t\t}\n\t}",
		w.redisLine(), longVaultTimeout, w.vault.Addr)
	o.Env = []string{
		"TEST_TOKEN=" + w.vault.RootToken,
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY=50",
		"OTEL_TRACES_SAMPLER=misspelled",
	}
	o.Site = "tracing\n\t" + o.Site
	g := w.startConnect(t, o)
	requireReady(t, g)
	require.Equal(t, http.StatusOK, key.caller().Get(t, g.URL, "/api/v1/me").Status)
	require.NoError(t, w.redis.Kill())
	w.vault.Kill(t)
	require.Eventually(t, func() bool {
		key.caller().Get(t, g.URL, "/api/v1/me")
		send(t, g, "/api/v1/me", invalidSignature("pk_live_unknown_while_down"))
		newBrowser(t, g.URL).open("/oauth/authorize?client_id=gcl_AAAAAAAAAAAAAAAAAAAAAA")
		return strings.Contains(g.Output(), `"logger":"redis"`) && strings.Contains(g.Output(), `"msg":"traces export: `)
	}, patience, 10*time.Millisecond)
	g.Stop(t) // or else the last line may be incomplete
	for line := range strings.Lines(g.Output()) {
		assert.True(t, json.Valid([]byte(line)), line)
	}
}
