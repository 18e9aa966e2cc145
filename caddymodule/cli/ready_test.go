package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadySaysWhyTheGatewayCannotServe(t *testing.T) {
	t.Parallel()
	version, _ := caddy.Version()
	for name, test := range map[string]struct {
		status        int
		response      string
		stdout, error string
	}{
		"ok": {
			status: 200, response: `{"status":"ok","checks":{"limits":"ok","credentials":"ok"},"credentials_cached":3,"version":"` + version + `"}`,
			stdout: "ok\n  credentials: ok\n  limits: ok\n",
		},
		"degraded": {
			status: 200, response: `{"status":"degraded","checks":{"limits":"degraded"},"causes":{"limits":"no \u001b[2J route"},"version":"` + version + `"}`,
			stdout: "degraded\n  limits: degraded: no \\u001b[2J route\n",
		},
		"unavailable": {
			status: 503, response: `{"status":"unavailable","checks":{"credentials":"unavailable"},"causes":{"credentials":"Vault is sealed"},"version":"` + version + `"}` + "\n",
			error: "the gateway cannot serve signed requests: unavailable\n  credentials: unavailable: Vault is sealed",
		},
		"of another version": {
			status: 200, response: `{"status":"ok","checks":{"limits":"ok"},"version":"v0.0.9"}`,
			stdout: "ok\n  the gateway runs version v0.0.9, and this program is " + version + ": restart the gateway\n  limits: ok\n",
		},
		"no gateway is configured": {status: 404, response: `{"error":"no gateway is configured"}`, error: "asking the gateway: no gateway is configured"},
		"another server":           {status: 503, response: `busy`, error: "asking the gateway: caddy responded with error: HTTP 503: busy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "/gatehouse/ready", r.URL.Path)
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.response))
			}))
			defer server.Close()
			stdout, err := ready(&adminAPI{address: strings.TrimPrefix(server.URL, "http://")})
			if test.error != "" {
				require.EqualError(t, err, test.error)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.stdout, stdout)
		})
	}
}
