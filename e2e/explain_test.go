package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// An operator finds the mistake in a signature by the request ID.
func TestGatewayExplainsDeniedRequests(t *testing.T) {
	t.Parallel()
	const target = "/api/v1/jobs?page=2"
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	admin := strings.TrimPrefix(g.AdminURL, "http://")
	newline := w.acme
	newline.PrivateKey += "\n"
	for name, c := range map[string]struct {
		header func() http.Header // the subtest may begin minutes later
		status int
		prints []string
	}{
		"path without query": {func() http.Header { return headerOf(signedFields(w.acme, "GET", "/api/v1/jobs", "")) }, 1, []string{"wrong_signature", w.acme.PublicKey, "path_query_missing"}},
		"key with a newline": {func() http.Header { return headerOf(signedFields(newline, "GET", target, "")) }, 1, []string{"wrong_signature", "secret_whitespace"}},
		"expired":            {func() http.Header { return headerOf(signedAt(w.acme, time.Now().Add(-time.Hour), "GET", target, "")) }, 1, []string{"expired", "wrong_clock", "behind"}},
		"nothing known":      {func() http.Header { return invalidSignature(w.acme.PublicKey) }, 2, []string{"wrong_signature", "No known mistake"}},
		"unknown key":        {func() http.Header { return invalidSignature("pk_live_nobody_has_this_one") }, 2, []string{"unknown_key", "no such key"}},
		"keys swapped": {
			func() http.Header {
				return headerOf(signedFields(gatewaytest.Caller{PublicKey: "sk_live_canary", PrivateKey: "x"}, "GET", target, ""))
			}, 1,
			[]string{"key none", "keys_swapped"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := send(t, g, target, c.header())
			require.Equal(t, http.StatusUnauthorized, a.Status)
			id := a.Header.Get("X-Request-Id")
			text := cli(t, nil, "explain", "--id", id, "--address", admin)
			require.Equal(t, c.status, text.code, text.stdout+text.stderr)
			for _, part := range append(c.prints, id) {
				assert.Contains(t, text.stdout, part)
			}
			asJSON := cli(t, nil, "explain", "--id", id, "--address", admin, "--json")
			require.Equal(t, c.status, asJSON.code)
			require.True(t, json.Valid([]byte(asJSON.stdout)), asJSON.stdout)
			// Nothing from which a signature follows, and no private key.
			gatewaytest.RequireNowhere(t, text.stdout+text.stderr+asJSON.stdout, w.acme.PrivateKey.Reveal(), "canary",
				a.Request.Header.Get(authsigner.HeaderSignature),
				authsigner.Sign(w.acme.PrivateKey, time.Now().Unix(), "GET", target, nil))
		})
	}
	t.Run("a request with another ID", func(t *testing.T) {
		t.Parallel()
		o := cli(t, nil, "explain", "--id", "nothing", "--address", admin)
		require.Equal(t, 3, o.code)
		o.requireError(t, "asking the gateway: request", "is not among the last")
	})
	t.Run("a request that was served", func(t *testing.T) {
		t.Parallel()
		a := w.acme.Get(t, g.URL, "/api/v1/me")
		assert.Equal(t, http.StatusOK, a.Status)
		assert.Equal(t, 3, cli(t, nil, "explain", "--id", a.Header.Get("X-Request-Id"), "--address", admin).code)
	})
}

// A client cannot make the gateway forget the denied requests of others by sending more than its limit.
func TestRequestsOverTheLimitAreNotKeptForExplain(t *testing.T) {
	t.Parallel()
	const kept = 512
	g := gatewaytest.Start(t, newEnvironment(t, nil).options("", ""))
	first := send(t, g, "/api/v1/me", invalidSignature("pk_live_nobody_has_this_one"))
	require.Equal(t, http.StatusUnauthorized, first.Status)
	counts := statuses(2*kept, func(int) gatewaytest.Response { return send(t, g, "/api/v1/me", invalidSignature("malformed!")) })
	require.Less(t, counts[http.StatusUnauthorized], kept)
	o := cli(t, nil, "explain", "--id", first.Header.Get("X-Request-Id"), "--address", strings.TrimPrefix(g.AdminURL, "http://"))
	require.Contains(t, o.stdout, "unknown_key", o.stderr)
}
