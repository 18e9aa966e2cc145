package check

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/docs"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// The texts of the rules come from the table in docs/check.md.
func TestRulesAreComplete(t *testing.T) {
	t.Parallel()
	all := rules()
	require.Len(t, all, strings.Count(docs.Check, "\n| GH"))
	seen := map[string]bool{}
	for _, r := range all {
		require.False(t, seen[r.id], r.id)
		seen[r.id] = true
		assert.Regexp(t, `^GH\d{3}$`, r.id)
		assert.Contains(t, []string{SeverityError, SeverityWarning}, r.severity)
		require.NotEmpty(t, r.title)
		assert.NotRegexp(t, `[.`+"`"+`]$|&|^$`, r.fix, "%s: the fix is printed as plain text, without a full stop", r.id)
		assert.NotRegexp(t, `(^| )docs/`, r.fix, "%s: packages do not have the pages", r.id)
	}
}

func unused(context.Context, upstream.Call) (*upstream.Response, error) {
	return nil, errors.New("not expected")
}

// The requests that gatehouse_connect must serve are those that it serves.
func TestSamplesAreServed(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: unreachableAddr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	server, err := connect.New(connect.Options{
		Issuer: "https://api.example.com", Do: unused, Redis: client, Log: zap.NewNop(),
		Pages: pages.Options{Keys: struct{ pages.Keys }{}, HomePage: true},
	})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	served := server.Operations()
	for _, sample := range (Defaults{}).sampleRequests(map[string]any{"handler": connectName, "manage_keys": true, "home_page": true}) {
		_, path, _ := strings.Cut(sample, " ")
		op := server.Operation(path)
		require.NotNil(t, op, path)
		served = slices.DeleteFunc(served, func(other *connect.Operation) bool { return other == op })
	}
	require.Len(t, served, 1, "only that of unknown settings pages is left")
}

// Of the calls of the connection server, all that read and need no ID are made.
func TestConnectCallsAreThoseOfTheDefinition(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../connect/definition.yaml")
	require.NoError(t, err)
	d, err := definition.Load(definition.File{Name: "definition.yaml", Text: text}, definition.Options{})
	require.NoError(t, err)
	want := []string{"/connect/v1/accounts/" + checkAccount}
	for _, op := range d.API.Operations() {
		if op.Method == http.MethodGet && len(op.PathParams) == 0 {
			want = append(want, op.Path)
		}
	}
	require.Greater(t, len(want), 10)
	assert.ElementsMatch(t, want, connectPaths(t))
}

// connectPaths returns the paths of the calls of a connection server without areas.
func connectPaths(t *testing.T, exceptAreas ...string) (paths []string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: unreachableAddr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	server, err := connect.New(connect.Options{
		Issuer: "https://api.example.com", Do: unused, Redis: client, ExceptAreas: exceptAreas, Log: zap.NewNop(),
	})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	for _, c := range connectCalls(server.Reads()) {
		paths = append(paths, c.path)
	}
	return paths
}

func TestConnectCallsLeaveOutSwitchedOffAreas(t *testing.T) {
	t.Parallel()
	all := connectPaths(t)
	assert.Contains(t, all, "/connect/v1/invoices")
	left := connectPaths(t, "sales")
	assert.NotContains(t, left, "/connect/v1/invoices")
	assert.Len(t, left, len(all)-3, "invoices, estimates and jobs")
}

// A health check has its own timeout, not that of calls.
func TestHealthCallHasTheTimeoutOfHealthChecks(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 5*time.Second, healthCall(new(reverseproxy.ActiveHealthChecks)).timeout)
	assert.Equal(t, time.Minute, healthCall(&reverseproxy.ActiveHealthChecks{Timeout: caddy.Duration(time.Minute)}).timeout)
}
