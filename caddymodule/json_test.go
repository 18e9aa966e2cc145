package caddymodule_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
)

// A panic while a configuration loads would leave Caddy's locks behind, so that no later one loads.
func TestNullsAndImpossibleNumbersInJSONAreErrors(t *testing.T) {
	const (
		proxy  = `{"handler":"reverse_proxy","upstreams":[{"dial":"127.0.0.1:1"}]}`
		config = `{"admin":{"disabled":true},"apps":{"gatehouse":{"redis":{"urls":["redis://127.0.0.1:1"]REDIS},"credentials":{"source":"file","path":"KEYS"}},"http":{"servers":{"s":{` +
			`"listen":["127.0.0.1:0"],"routes":[{"handle":[HANDLER]}]}}}}}`
		api     = `{"handler":"gatehouse_api","upstreams":[UPSTREAM]}`
		connect = `{"handler":"gatehouse_connect","issuer":"http://localhost","upstream":UPSTREAM}`
	)
	keys := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(keys, []byte(`{"keys":{}}`), 0o600))
	for name, c := range map[string]struct{ redis, handler, upstream, want string }{
		"nothing wrong":              {"", api, `{"handler":` + proxy + `}`, ""},
		"a negative pool":            {`,"pool_size":-1`, api, `{"handler":` + proxy + `}`, "must be between 0 and 100000"},
		"a pool that is too large":   {`,"pool_size":3000000000`, api, `{"handler":` + proxy + `}`, "must be between 0 and 100000"},
		"an upstream":                {"", api, "null", "upstream: must not be null"},
		"a handler":                  {"", api, `{"handler":null}`, "must not be null"},
		"an address":                 {"", api, `{"handler":{"handler":"reverse_proxy","upstreams":[null]}}`, "must not be null"},
		"the upstream of assistants": {"", connect, "null", "must not be null"},
	} {
		t.Run(name, func(t *testing.T) {
			var cfg *caddy.Config
			text := strings.NewReplacer("REDIS", c.redis, "KEYS", keys, "HANDLER", strings.Replace(c.handler, "UPSTREAM", c.upstream, 1)).Replace(config)
			require.NoError(t, caddy.StrictUnmarshalJSON([]byte(text), &cfg))
			err := caddy.Validate(cfg)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}
