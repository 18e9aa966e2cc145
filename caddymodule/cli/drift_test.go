package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// runDrift runs `gatehouse api drift` for a gateway whose admin API responds with drift, and returns what it prints and its exit status.
func runDrift(t *testing.T, drift any, args ...string) (stdout, stderr, status string) {
	t.Helper()
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != caddymodule.AdminDriftPath || r.Method != http.MethodGet {
			http.NotFound(w, r)
			return
		}
		assert.NoError(t, json.NewEncoder(w).Encode(drift))
	}))
	t.Cleanup(admin.Close)
	cmd := apiDriftCommand()
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(append([]string{"--address", strings.TrimPrefix(admin.URL, "http://")}, args...))
	status = "0"
	if err := cmd.Execute(); err != nil {
		status = strings.TrimPrefix(err.Error(), "exiting with status ")
	}
	return out.String(), errs.String(), status
}

func someDrift() caddymodule.Drift {
	at := time.Date(2026, 3, 5, 9, 30, 0, 0, time.UTC)
	return caddymodule.Drift{Operations: []caddymodule.OperationDrift{
		{API: "shop", Operation: "listOrders", Enforce: upstream.EnforceTenant, Since: at, Responses: 1204, Others: 1, Entries: []caddymodule.DriftEntry{
			{Pointer: "/data/*/margin", Rule: "undocumented", Count: 1204, FirstSeen: at, LastSeen: at.Add(time.Hour)},
			{Pointer: "/data/*/total", Rule: "format", Count: 7, FirstSeen: at, LastSeen: at},
		}},
		{API: "shop", Operation: "getOrder", Enforce: upstream.EnforceMembers, Since: at, Responses: 1, Entries: []caddymodule.DriftEntry{}},
	}}
}

func TestDriftIsPrintedForEachOperation(t *testing.T) {
	t.Parallel()
	out, _, status := runDrift(t, someDrift())
	require.Equal(t, "0", status)
	require.Equal(t, `shop/listOrders, enforce tenant: 1204 responses of this gateway since 2026-03-05T09:30:00Z, with deviations
  COUNT  RULE          POINTER         FIRST SEEN            LAST SEEN
  1204   undocumented  /data/*/margin  2026-03-05T09:30:00Z  2026-03-05T10:30:00Z
  7      format        /data/*/total   2026-03-05T09:30:00Z  2026-03-05T09:30:00Z
  and 1 other that did not fit into the list

shop/getOrder, enforce members: 1 response of this gateway since 2026-03-05T09:30:00Z, without deviations
`, out)
	page, err := os.ReadFile("../../docs/observe.md")
	require.NoError(t, err)
	require.Contains(t, string(page), out)
	for _, rule := range upstream.DeviationRules() {
		require.Contains(t, string(page), "`"+rule+"`")
	}

	mapped := someDrift()
	mapped.Operations[0].Entries[1].From = "/T/AMT\n"
	out, _, _ = runDrift(t, mapped)
	require.Regexp(t, `(?m)^  COUNT  RULE          POINTER         FROM      FIRST SEEN `, out)
	require.Regexp(t, `(?m)^  1204   undocumented  /data/\*/margin            2026`, out)
	require.Regexp(t, `(?m)^  7      format        /data/\*/total   /T/AMT\\n  2026`, out)

	out, _, status = runDrift(t, caddymodule.Drift{Operations: []caddymodule.OperationDrift{}})
	require.Equal(t, "0", status)
	require.Equal(t, "Everything is enforced: no response may deviate from its definition.\n", out)
}

func TestDriftOfOneOperation(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"getOrder", "shop/getOrder"} {
		out, _, status := runDrift(t, someDrift(), "--operation", name)
		require.Equal(t, "0", status)
		require.True(t, strings.HasPrefix(out, "shop/getOrder, "), out)
		require.NotContains(t, out, "listOrders")
	}
	_, errs, status := runDrift(t, someDrift(), "--operation", "orders/getOrder")
	require.Equal(t, "1", status)
	require.Contains(t, errs, `operation "orders/getOrder" does not exist, or everything of it is enforced`)
}

func TestDriftAsJSON(t *testing.T) {
	t.Parallel()
	out, _, status := runDrift(t, someDrift(), "--json")
	require.Equal(t, "0", status)
	var got caddymodule.Drift
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, someDrift(), got)
}

// Whatever an admin API says, a terminal does not obey it, and lines stay readable.
func TestDriftOutputIsOneLineForEachEntry(t *testing.T) {
	t.Parallel()
	drift := someDrift()
	drift.Operations[0].Entries[0].Pointer = "/a\x1b[2J\n\t" + strings.Repeat("x", 500) + "end"
	out, _, _ := runDrift(t, drift)
	require.NotContains(t, out, "\x1b")
	require.Equal(t, 7, strings.Count(out, "\n"), out)
	require.Contains(t, out, `/a\u001b[2J\n\u0009xx`)
	require.Contains(t, out, "x…x")
	require.Contains(t, out, "end  ")
	for line := range strings.Lines(out) {
		require.Less(t, len(line), 200, line)
	}
	out, _, _ = runDrift(t, drift, "--json")
	require.True(t, json.Valid([]byte(out)), out)
	require.NotContains(t, out, "\x1b")
}

func TestDriftOfAGatewayThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	for name, response := range map[string]any{"no answer of ours": "text", "something else": []int{1}} {
		_, errs, status := runDrift(t, response)
		assert.Equal(t, "1", status, name)
		assert.Contains(t, errs, "Error: asking the gateway: ", name)
	}
	off := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(off, []byte("{\n\tadmin off\n}\n"), 0o600))
	_, errs, status := runDrift(t, nil, "--address", "", "--config", off)
	require.Equal(t, "1", status)
	require.Contains(t, errs, "Error: asking the gateway: "+off+" has admin off")
	_, errs, status = runDrift(t, nil, "--address", "127.0.0.1:1")
	require.Equal(t, "1", status)
	require.Contains(t, errs, "Error: asking the gateway: ")
}

func TestOperationsThatAreNotEnforcedWholeAreListed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "api.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {
		/plain: {get: {operationId: plain, responses: {"204": {description: ""}}}},
		/own: {get: {operationId: own, x-gatehouse-enforce: members, responses: {"204": {description: ""}}}}}}`), 0o600))
	list := func(args ...string) string {
		cmd := apiCheckCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(append([]string{file, "--list"}, args...))
		require.NoError(t, cmd.Execute())
		return out.String()
	}
	require.Regexp(t, `(?m)^plain .*told the business in X-Business-Id only$`, list())
	require.Regexp(t, `(?m)^own .*told the business in X-Business-Id only; enforce members$`, list())
	require.Regexp(t, `(?m)^plain .*told the business in X-Business-Id only; enforce tenant$`, list("--enforce", "tenant"))
}
