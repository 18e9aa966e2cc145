package dataservice

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
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
		"dynamic addresses":    {`"dynamic_upstreams":{"source":"a","name":"localhost","port":"1"}`, 2, 256, 5 * time.Second, 10 * time.Second},
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
			s := loaded(t, `{"handler":"reverse_proxy",`+c.handler+`}`)
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

// exchange sets Host as Caddy's transport would by these operations. If an update of Caddy adds one, exchange must learn it.
func TestTransportHasNoOtherHeaderOperations(t *testing.T) {
	assert.Nil(t, new(reverseproxy.HTTPTransport).RequestHeaderOps())
	assert.Equal(t, &headers.HeaderOps{Set: http.Header{"Host": {"{http.reverse_proxy.upstream.hostport}"}}},
		(&reverseproxy.HTTPTransport{TLS: new(reverseproxy.TLSConfig)}).RequestHeaderOps())
}

// A Location may have each of them.
func TestResponseHasTheHostsUnderWhichTheServiceWasCalled(t *testing.T) {
	var got *http.Request
	note := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }) // calls are made one after the other
	plain, secure := httptest.NewServer(note), httptest.NewTLSServer(note)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	for name, c := range map[string]struct {
		server          *httptest.Server
		options         string
		host, forwarded string // that are sent; empty: the address
	}{
		"cleartext":              {plain, "", "lb.internal", "api.example.com"},
		"TLS":                    {secure, "", "", "api.example.com"},
		"a Host set":             {plain, `,"headers":{"request":{"set":{"Host":["shop.internal"]}}}`, "shop.internal", "api.example.com"},
		"a Host set, TLS":        {secure, `,"headers":{"request":{"set":{"Host":["shop.internal"]}}}`, "shop.internal", "api.example.com"},
		"X-Forwarded-Host set":   {plain, `,"headers":{"request":{"set":{"X-Forwarded-Host":["www.example.com"]}}}`, "lb.internal", "www.example.com"},
		"the address, by a name": {plain, `,"headers":{"request":{"set":{"Host":["{http.reverse_proxy.upstream.hostport}"]}}}`, "", "api.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.server == secure {
				c.options += `,"transport":{"protocol":"http","tls":{"insecure_skip_verify":true}}`
			}
			address := c.server.Listener.Addr().String()
			s := loaded(t, `{"handler":"reverse_proxy","upstreams":[{"dial":"`+address+`"}]`+c.options+`}`)
			request := call()
			request.Host, request.Header = "lb.internal", http.Header{"X-Forwarded-Host": {"api.example.com"}}
			res, err := s.Do(t.Context(), request)
			require.NoError(t, err)
			defer res.Release()
			assert.Equal(t, cmp.Or(c.host, address), got.Host)
			assert.Equal(t, []string{c.forwarded}, got.Header["X-Forwarded-Host"])
			assert.Equal(t, [...]string{address, "lb.internal", got.Host, c.forwarded}, res.Hosts)
		})
	}
}

// Only GET requests share connections. A connection for another request saves the asymmetric cryptography of a full handshake.
func TestNewConnectionsResumeTLSSessions(t *testing.T) {
	var resumed []bool
	srv := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		resumed = append(resumed, r.TLS.DidResume) // calls are made one after the other
	}))
	t.Cleanup(srv.Close)
	s := loaded(t, `{"handler":"reverse_proxy","upstreams":[{"dial":"`+srv.Listener.Addr().String()+`"}],
		"transport":{"protocol":"http","tls":{"insecure_skip_verify":true}}}`)
	for range 3 {
		c := call()
		c.Method = http.MethodPost
		res, err := s.Do(t.Context(), c)
		require.NoError(t, err)
		res.Release()
	}
	assert.Equal(t, []bool{false, true, true}, resumed)
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
	s := loaded(t, `{"handler":"reverse_proxy","upstreams":[`+strings.Join(upstreams, ",")+`],
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
			res, err := s.Do(ctx, call())
			if assert.NoError(t, err) {
				res.Release()
			}
		})
	}
	done.Wait()
}

// Caddy stores what {http.request.uuid} is at its first use in a map of the inbound request, which the calls of one tool call share.
func TestPlaceholdersLeaveTheInboundRequestUnchanged(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "req_1", r.Header.Get("X-Correlation-Id"))
	}))
	t.Cleanup(srv.Close)
	s := loaded(t, `{"handler":"reverse_proxy","upstreams":[{"dial":"`+srv.Listener.Addr().String()+`"}],
		"headers":{"request":{"set":{"X-Correlation-Id":["{http.request.uuid}"]}}}}`)
	inbound := caddyhttp.PrepareRequest(httptest.NewRequest(http.MethodPost, "/mcp", nil), caddy.NewReplacer(), discardWriter{}, new(caddyhttp.Server))
	res, err := s.Do(inbound.Context(), call())
	require.NoError(t, err)
	res.Release()
	assert.Nil(t, caddyhttp.GetVar(inbound.Context(), "uuid"))

	for _, ops := range []string{`"add":{"X-Body":["{http.request.body}"]}`, `"set":{"X-Body":["{http.request.body_base64}"]}`, `"replace":{"X-Body":[{"search":"a","replace":"{http.request.body}"}]}`} {
		_, err := tryLoad(t, `{"handler":"reverse_proxy","upstreams":[{"dial":"localhost:1"}],"headers":{"request":{`+ops+`}}}`)
		assert.ErrorContains(t, err, "header_up must not have {http.request.body}", ops)
	}
}

// holder is a module with an upstream.
type holder struct {
	HandlerRaw json.RawMessage `caddy:"namespace=http.handlers inline_key=handler"`
}

// Callers share the connections to an address.
func TestCallersCannotChooseTheNameInTheCertificate(t *testing.T) {
	for name, ok := range map[string]bool{
		"data.internal": true, "{env.NAME}": true, "{http.reverse_proxy.upstream.host}": true, "{http.request.host}": false,
		"api.{http.reverse_proxy.upstream.host}": false, "{http.reverse_proxy.upstream.hostport}": false, "{tenant}.internal": false,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tryLoad(t, `{"handler":"reverse_proxy","upstreams":[{"dial":"localhost:1"}],"transport":{"protocol":"http","tls":{"server_name":"`+name+`"}}}`)
			if ok {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "invalid tls_server_name "+name)
			}
		})
	}
}

// load returns the data service of a reverse_proxy handler.
func loaded(t *testing.T, handler string, change ...func(*Options)) *Service {
	t.Helper()
	s, err := tryLoad(t, handler, change...)
	require.NoError(t, err)
	return s
}

func tryLoad(t *testing.T, handler string, change ...func(*Options)) (*Service, error) {
	t.Helper()
	var config caddy.Config
	require.NoError(t, json.Unmarshal([]byte(`{
		"admin": {"disabled": true, "config": {"persist": false}},
		"logging": {"logs": {"default": {"writer": {"output": "discard"}}}}
	}`), &config))
	ctx, err := caddy.ProvisionContext(&config)
	require.NoError(t, err)
	o := Options{Shares: NewShares(0), Observe: func(context.Context, string, time.Duration) {}}
	for _, f := range change {
		f(&o)
	}
	h := &holder{json.RawMessage(handler)}
	s, err := Load(ctx, h, "HandlerRaw", &h.HandlerRaw, o)
	t.Cleanup(s.Close)
	return s, err
}

// call returns a call for a list.
func call() upstream.Call {
	return upstream.Call{
		BusinessID: "biz_1", RequestID: "req_1", Share: "pk_1", Resource: "events", Method: http.MethodGet, Path: "/events",
		Host: "api.example.com", Deadline: time.Now().Add(time.Minute), MaxResponse: 8 << 20,
	}
}

func TestResponseHeadersAreBoundedBeforeHealthChecksBegin(t *testing.T) {
	t.Parallel()
	const others = `"keep_alive":{"enabled":false,"max_idle_conns_per_host":256},"protocol":"http","versions":["1.1"],"network_proxy":{"from":"none"}`
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
