package caddymodule

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An upstream has the same defaults whether it is configured in JSON or in a Caddyfile. Caddy can provision one configuration at a
// time.
func TestUpstreamInJSONHasDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		handler                   string
		retries, idle             int
		tryDuration, failDuration time.Duration
	}{
		"one address":          {`"upstreams":[{"dial":"localhost:1"}]`, 0, 256, 0, 0},
		"two addresses":        {`"upstreams":[{"dial":"localhost:1"},{"dial":"localhost:2"}]`, 2, 256, 5 * time.Second, 10 * time.Second},
		"a number of retries":  {`"upstreams":[{"dial":"localhost:1"},{"dial":"localhost:2"}],"load_balancing":{"retries":7}`, 7, 256, 0, 10 * time.Second},
		"no retries":           {`"upstreams":[{"dial":"localhost:1"},{"dial":"localhost:2"}],"load_balancing":{"retries":0}`, 0, 256, 0, 10 * time.Second},
		"a time for retries":   {`"upstreams":[{"dial":"localhost:1"},{"dial":"localhost:2"}],"load_balancing":{"try_duration":"1m"}`, 0, 256, time.Minute, 10 * time.Second},
		"a policy":             {`"upstreams":[{"dial":"localhost:1"},{"dial":"localhost:2"}],"load_balancing":{"selection_policy":{"policy":"first"}}`, 2, 256, 5 * time.Second, 10 * time.Second},
		"passive checks":       {`"upstreams":[{"dial":"localhost:1"},{"dial":"localhost:2"}],"health_checks":{"passive":{"fail_duration":"1s"}}`, 2, 256, 5 * time.Second, time.Second},
		"active checks":        {`"upstreams":[{"dial":"localhost:1"},{"dial":"localhost:2"}],"health_checks":{"active":{}}`, 2, 256, 5 * time.Second, 10 * time.Second},
		"some idle conns":      {`"upstreams":[{"dial":"localhost:1"}],"transport":{"protocol":"http","keep_alive":{"max_idle_conns_per_host":3}}`, 0, 3, 0, 0},
		"other keep-alive":     {`"upstreams":[{"dial":"localhost:1"}],"transport":{"protocol":"http","keep_alive":{"idle_timeout":"1s"}}`, 0, 256, 0, 0},
		"names in other cases": {`"Upstreams":[{"dial":"localhost:1"},{"dial":"localhost:2"}],"Load_Balancing":{"Retries":7},"Transport":{"protocol":"http","Keep_Alive":{"Max_Idle_Conns_Per_Host":3}}`, 7, 3, 0, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := provisionedUpstream(t, `{"handler":"reverse_proxy",`+c.handler+`}`)
			assert.Equal(t, c.retries, s.proxy.LoadBalancing.Retries)
			assert.Equal(t, caddy.Duration(c.tryDuration), s.proxy.LoadBalancing.TryDuration)
			assert.Equal(t, c.idle, s.transport.KeepAlive.MaxIdleConnsPerHost)
			var failDuration caddy.Duration
			if checks := s.proxy.HealthChecks; checks != nil && checks.Passive != nil {
				failDuration = checks.Passive.FailDuration
			}
			assert.Equal(t, caddy.Duration(c.failDuration), failDuration)
		})
	}
}

// The calls of one tool call run concurrently and share the replacer of its request.
func TestConcurrentRequestsHaveTheirOwnPlaceholders(t *testing.T) {
	var upstreams []string
	for range 2 {
		var address string
		srv := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			assert.Equal(t, address, r.Host)
			assert.Equal(t, "acme", r.Header.Get("X-Tenant"))
		}))
		t.Cleanup(srv.Close)
		address = srv.Listener.Addr().String()
		upstreams = append(upstreams, `{"dial":"`+address+`"}`)
	}
	s := provisionedUpstream(t, `{"handler":"reverse_proxy","upstreams":[`+strings.Join(upstreams, ",")+`],
		"load_balancing":{"selection_policy":{"policy":"round_robin"},"retries":0},
		"transport":{"protocol":"http","tls":{"insecure_skip_verify":true}},
		"headers":{"request":{"set":{"Host":["{wait}{http.reverse_proxy.upstream.hostport}"],"X-Tenant":["{tenant}"]}}}}`)

	repl := caddy.NewReplacer()
	repl.Set("tenant", "acme")
	var selected, done sync.WaitGroup
	selected.Add(len(upstreams))
	repl.Map(func(key string) (any, bool) {
		if key == "wait" { // until each request has an address
			selected.Done()
			selected.Wait()
		}
		return "", key == "wait"
	})
	ctx := context.WithValue(t.Context(), caddy.ReplacerCtxKey, repl)
	for range upstreams {
		done.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service/events", http.NoBody)
			if assert.NoError(t, err) {
				assert.NoError(t, s.do(req, time.Now().Add(time.Minute), &upstreamResponse{maxSize: 1}))
			}
		})
	}
	done.Wait()
}

// provisionedUpstream returns the data service of a reverse_proxy handler in a JSON configuration.
func provisionedUpstream(t *testing.T, handler string) *dataService {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(keys, []byte(`{"keys":{}}`), 0o600))
	var config caddy.Config
	require.NoError(t, json.Unmarshal([]byte(`{
		"admin": {"disabled": true, "config": {"persist": false}},
		"logging": {"logs": {"default": {"writer": {"output": "discard"}}}},
		"apps": {
			"gatehouse": {"redis": {"urls": ["redis://127.0.0.1:1"]}, "credentials": {"source": "file", "path": "`+keys+`"}},
			"http": {"servers": {"api": {"listen": ["127.0.0.1:0"], "automatic_https": {"disable": true}, "routes": [
				{"handle": [{"handler": "gatehouse_api", "upstreams": [{"handler": `+handler+`}]}]}
			]}}}
		}
	}`), &config))
	ctx, err := caddy.ProvisionContext(&config)
	require.NoError(t, err)
	app, err := ctx.App("http")
	require.NoError(t, err)
	servers, ok := app.(*caddyhttp.App)
	require.True(t, ok)
	api, ok := servers.Servers["api"].Routes[0].Handlers[0].(*API)
	require.True(t, ok)
	t.Cleanup(func() {
		assert.NoError(t, api.Cleanup())
		assert.NoError(t, api.app.Cleanup())
	})
	return api.Upstreams[0].service
}

func TestLimitOfAllIdleConnectionsNeedsCaddysTransport(t *testing.T) {
	for keepAlive, plain := range map[string]bool{`{}`: true, `{"max_idle_conns_per_host":3}`: true, `{"max_idle_conns":3}`: false} {
		s := provisionedUpstream(t, `{"handler":"reverse_proxy","upstreams":[{"dial":"localhost:1"}],
			"transport":{"protocol":"http","keep_alive":`+keepAlive+`}}`)
		assert.Equal(t, plain, s.static[0].client != nil, keepAlive)
	}
}

func TestResponseHeadersAreBoundedBeforeHealthChecksBegin(t *testing.T) {
	t.Parallel()
	const others = `"keep_alive":{"max_idle_conns_per_host":256},"protocol":"http"`
	for name, c := range map[string]struct{ handler, want string }{
		"no transport":      {`{}`, `{"transport":{"max_response_header_size":65536,` + others + `}}`},
		"null":              {`{"transport":null}`, `{"transport":{"max_response_header_size":65536,` + others + `}}`},
		"other settings":    {`{"transport":{"protocol":"http","tls":{}}}`, `{"transport":{"max_response_header_size":65536,` + others + `,"tls":{}}}`},
		"another spelling":  {`{"Transport":{"protocol":"http","tls":{}}}`, `{"Transport":{"max_response_header_size":65536,` + others + `,"tls":{}}}`},
		"a bound":           {`{"transport":{"max_response_header_size":1,"protocol":"http"}}`, `{"transport":{"max_response_header_size":1,` + others + `}}`},
		"another transport": {`{"transport":{"protocol":"fastcgi"}}`, `{"transport":{"protocol":"fastcgi"}}`},
		"no object":         {`{"transport":1}`, `{"transport":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := withDefaults(json.RawMessage(c.handler))
			require.NoError(t, err)
			assert.JSONEq(t, c.want, string(got))
		})
	}
}
