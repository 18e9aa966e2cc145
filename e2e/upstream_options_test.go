package e2e_test

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// backends starts data services that count what they receive.
func backends(t *testing.T, n int) (services []*recorder, addresses []string) {
	t.Helper()
	for range n {
		r := &recorder{}
		srv := httptest.NewServer(r)
		t.Cleanup(srv.Close)
		services, addresses = append(services, r), append(addresses, srv.URL)
	}
	return services, addresses
}

// upstreamTo starts a gateway whose events come from an upstream with options. Its timeout is too long for a test to reach.
func (w *environment) upstreamTo(t *testing.T, addresses, options string, env ...string) *gatewaytest.Gateway {
	t.Helper()
	o := w.options(highLimits, "timeout 10m\n\t\tupstream events "+addresses+" {\n\t\t\t"+options+"\n\t\t}")
	o.Env = env
	return gatewaytest.Start(t, o)
}

func counts(services []*recorder) []int {
	n := make([]int, len(services))
	for i, s := range services {
		n[i] = s.count()
	}
	return n
}

func TestSelectionPolicies(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, &recorder{})
	const requests = 60
	one := func(n []int) bool { return n[0]+n[1]+n[2] == requests && max(n[0], n[1], n[2]) == requests }
	all := func(n []int) bool { return min(n[0], n[1], n[2]) > 0 }
	for policy, ok := range map[string]func([]int) bool{
		"":                           all,
		"random":                     all,
		"random_choose 2":            all,
		"least_conn":                 all,
		"round_robin":                func(n []int) bool { return n[0] == 20 && n[1] == 20 && n[2] == 20 },
		"weighted_round_robin 3 2 1": func(n []int) bool { return n[0] == 30 && n[1] == 20 && n[2] == 10 },
		"weighted_round_robin 1 0 1": func(n []int) bool { return n[0] == 30 && n[1] == 0 && n[2] == 30 },
		"first":                      func(n []int) bool { return n[0] == requests },
		"ip_hash":                    one,
		"client_ip_hash":             one,
		"uri_hash":                   one,
		"query count":                one,
		"header User-Agent":          one,
	} {
		t.Run(cmp.Or(policy, "default"), func(t *testing.T) {
			t.Parallel()
			services, addresses := backends(t, 3)
			option := ""
			if policy != "" {
				option = "lb_policy " + policy
			}
			g := w.upstreamTo(t, strings.Join(addresses, " "), option)
			for range requests {
				a := w.acme.Get(t, g.URL, eventsPath+"?count=3")
				requireJSON(t, a)
			}
			require.True(t, ok(counts(services)), "%v", counts(services))
		})
	}
}

// A key's limit of requests a minute says nothing of how many may be in progress.
func TestKeyWithTooManyCallsInProgressGets429(t *testing.T) {
	t.Parallel()
	services, addresses := backends(t, 1)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	w := newEnvironment(t, &recorder{})
	g := gatewaytest.Start(t, w.options("limits {\n\t\t\tin_flight 1\n\t\t}", "timeout 10m\n\t\tupstream events "+addresses[0]))
	services[0].setResponse(func(http.ResponseWriter, *http.Request) { <-stop })
	go func() { _, _ = w.acme.Try(t.Context(), http.MethodGet, g.URL, eventsPath, nil) }()
	require.Eventually(t, func() bool { return services[0].count() == 1 }, patience, time.Millisecond)

	denied := w.acme.Get(t, g.URL, eventsPath)
	p := requireProblem(t, denied, http.StatusTooManyRequests, "RATE_LIMITED")
	assert.Contains(t, p.Error, "in progress")
	assert.Equal(t, "1", denied.Header.Get("Retry-After"))
	assert.NotEmpty(t, denied.Header.Get("RateLimit"))
	requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/me")) // the gateway's own responses need no call
	assert.Equal(t, 1, services[0].count())
}

func TestBusyAddressIsAvoided(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, &recorder{})
	services, addresses := backends(t, 2)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) }) // closing the services waits for their requests
	services[0].setResponse(func(http.ResponseWriter, *http.Request) { <-stop })
	for _, policy := range []string{"lb_policy least_conn", "lb_policy random_choose 2", "max_fails 1\n\t\t\tunhealthy_request_count 1"} {
		g := w.upstreamTo(t, strings.Join(addresses, " "), policy)
		before := services[0].count()
		for services[0].count() == before { // one request after the other, until one waits there
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = w.acme.Try(t.Context(), http.MethodGet, g.URL, eventsPath, nil)
			}()
			require.Eventually(t, func() bool {
				select {
				case <-done:
					return true
				default:
					return services[0].count() > before
				}
			}, patience, time.Millisecond)
		}
		held := services[0].count()
		for range 30 {
			requireJSON(t, w.acme.Get(t, g.URL, eventsPath))
		}
		assert.Equal(t, held, services[0].count(), policy)
	}
}

func TestUnhealthyAddressIsAvoidedUntilItRecovers(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, &recorder{})
	for name, tc := range map[string]struct {
		options  string
		response http.HandlerFunc
	}{
		"passive": {"fail_duration 1s\n\t\t\tlb_retries 1", aborts},
		"status":  {"fail_duration 5s\n\t\t\tunhealthy_status 5xx\n\t\t\tlb_retries 1", respondWith(500, "application/json", "{}")},
		"latency": {"fail_duration 5s\n\t\t\tunhealthy_latency 3s", func(w http.ResponseWriter, r *http.Request) {
			<-time.After(3500 * time.Millisecond)
			respondWith(200, "application/json", `{"events":[]}`)(w, r)
		}},
		"active":            {"health_uri /healthz\n\t\t\thealth_interval 50ms\n\t\t\tlb_retries 1", aborts},
		"active, by status": {"health_uri /healthz\n\t\t\thealth_interval 50ms\n\t\t\thealth_status 200", respondWith(503, "text/plain", "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			services, addresses := backends(t, 2)
			g := w.upstreamTo(t, strings.Join(addresses, " "), "lb_policy first\n\t\t\t"+tc.options)
			requireJSON(t, w.acme.Get(t, g.URL, eventsPath))
			services[0].setResponse(tc.response)
			require.Eventually(t, func() bool { // noticed, by a request or a check
				w.acme.Get(t, g.URL, eventsPath)
				return asked(services[1]) > 0
			}, patience, 10*time.Millisecond)
			require.Eventually(t, func() bool { // on a slow machine, its time may be over before the next request
				first, second := asked(services[0]), asked(services[1])
				a := w.acme.Get(t, g.URL, eventsPath)
				return a.Status == http.StatusOK && asked(services[0]) == first && asked(services[1]) == second+1
			}, patience, 10*time.Millisecond, "it is avoided")
			services[0].setResponse(nil)
			require.Eventually(t, func() bool {
				before := asked(services[1])
				requireJSON(t, w.acme.Get(t, g.URL, eventsPath))
				return before == asked(services[1])
			}, patience, 50*time.Millisecond, "it comes back")
		})
	}
}

// asked returns the number of requests for events, without health checks.
func asked(r *recorder) int {
	return len(slices.DeleteFunc(slices.Clone(r.all()), func(req *http.Request) bool { return req.URL.Path != eventsPath }))
}

func TestRetryOptions(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, &recorder{})
	services, addresses := backends(t, 2)
	services[0].setResponse(aborts)
	down := "http://" + gatewaytest.FreeAddr(t)
	for name, tc := range map[string]struct {
		addresses, options string
		status             int
	}{
		"by default, broken":      {addresses[0] + " " + addresses[1], "lb_policy round_robin", 200},
		"by default, unreachable": {down + " " + addresses[1], "lb_policy first", 200},
		"for a time":              {addresses[0] + " " + addresses[1], "lb_policy round_robin\n\t\t\tlb_try_duration 5s\n\t\t\tlb_try_interval 1ms", 200},
		"no other address":        {addresses[0], "lb_retries 3", 502},
		"unreachable":             {down, "lb_retries 3", 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := w.upstreamTo(t, tc.addresses, tc.options)
			for range 4 {
				assert.Equal(t, tc.status, w.acme.Get(t, g.URL, eventsPath).Status)
			}
		})
	}
}

func TestDynamicPlaceholderAndSocketAddresses(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, &recorder{})
	socket := filepath.Join(t.TempDir(), "s")
	for name, tc := range map[string]struct {
		network, addresses, options string
	}{
		"dynamic":     {"tcp", "", "dynamic a {\n\t\t\t\tname localhost\n\t\t\t\tport %s\n\t\t\t\tversions ipv4\n\t\t\t}"},
		"placeholder": {"tcp", "{env.DATA_SERVICE}", ""},
		"socket":      {"unix", "unix/" + socket, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := &recorder{}
			address := "127.0.0.1:0"
			if tc.network == "unix" {
				address = socket
			}
			ln, err := net.Listen(tc.network, address)
			require.NoError(t, err)
			srv := &httptest.Server{Listener: ln, Config: &http.Server{Handler: service}}
			srv.Start()
			t.Cleanup(srv.Close)
			_, port, _ := strings.Cut(ln.Addr().String(), ":")
			options := tc.options
			if strings.Contains(options, "%s") {
				options = fmt.Sprintf(options, port)
			}
			g := w.upstreamTo(t, tc.addresses, options, "DATA_SERVICE="+ln.Addr().String())
			for range 3 {
				requireJSON(t, w.acme.Get(t, g.URL, eventsPath))
			}
			require.Equal(t, 3, service.count())
		})
	}
}

//nolint:tparallel // the subtests count the connections of one data service
func TestTransportOptions(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, &recorder{})
	dir := t.TempDir()
	service := &recorder{}
	var conns atomic.Int64 // accepted by either server
	count := func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	secure := httptest.NewUnstartedServer(service)
	secure.EnableHTTP2 = true
	secure.Config.ConnState = count
	secure.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	ca := filepath.Join(dir, "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))
	// the client uses the server's certificate
	key, err := x509.MarshalPKCS8PrivateKey(secure.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	keyFile := filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))

	plain := httptest.NewUnstartedServer(service)
	plain.Config.ConnState = count
	plain.Start()
	t.Cleanup(plain.Close)

	trust := "\n\t\t\t\ttls_trust_pool file " + ca + "\n\t\t\t\ttls_server_name example.com"
	for name, tc := range map[string]struct {
		url, transport string
		client, fresh  bool // a client certificate; a connection for each request
	}{
		"TLS":                  {secure.URL, trust, false, false},
		"TLS, HTTP/1.1":        {secure.URL, trust + "\n\t\t\t\tversions 1.1", false, false},
		"a client certificate": {secure.URL, trust + "\n\t\t\t\ttls_client_auth " + ca + " " + keyFile, true, false},
		"TLS, no keepalive":    {secure.URL, trust + "\n\t\t\t\tkeepalive off", false, true},
		"plain":                {plain.URL, "\n\t\t\t\tdial_timeout 1m\n\t\t\t\tread_timeout 1m\n\t\t\t\twrite_timeout 1m\n\t\t\t\tkeepalive 1m", false, false},
		"few connections":      {plain.URL, "\n\t\t\t\tmax_conns_per_host 1\n\t\t\t\tkeepalive_idle_conns 1", false, false},
		"no keepalive":         {plain.URL, "\n\t\t\t\tkeepalive off", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := w.upstreamTo(t, tc.url, "transport http {"+tc.transport+"\n\t\t\t}")
			before := conns.Load()
			for range 3 {
				requireJSON(t, w.acme.Get(t, g.URL, eventsPath))
			}
			if n := conns.Load() - before; tc.fresh {
				require.EqualValues(t, 3, n)
			} else {
				require.Less(t, n, int64(3), "kept connections; a slow machine may open a second")
			}
			got := service.last(t)
			require.Equal(t, "HTTP/1.1", got.Proto)
			if tc.client {
				require.Len(t, got.TLS.PeerCertificates, 1)
			}
			require.Equal(t, []string{w.acmeID}, got.Header["X-Business-Id"])
		})
	}
	t.Run("an untrusted certificate", func(t *testing.T) {
		before := service.count()
		g := w.upstreamTo(t, secure.URL, "transport http {\n\t\t\t\ttls_server_name example.com\n\t\t\t}")
		require.Equal(t, http.StatusBadGateway, w.acme.Get(t, g.URL, eventsPath).Status)
		require.Equal(t, before, service.count())
		requireLogged(t, g, "certificate signed by unknown authority")
	})
}

func TestHeaderUpAndResponseHeaderTimeout(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, &recorder{})
	services, addresses := backends(t, 1)
	g := w.upstreamTo(t, addresses[0], "header_up X-Tenant main\n\t\t\theader_up Host {upstream_hostport}\n\t\t\theader_up -Accept-Language\n\t\t\t"+
		"transport http {\n\t\t\t\tresponse_header_timeout 3s\n\t\t\t}")
	header := headerOf(append(signedFields(w.acme, http.MethodGet, eventsPath, ""), field{"Accept-Language", "de"}))
	requireJSON(t, send(t, g, eventsPath, header))
	got := services[0].last(t)
	require.Equal(t, "main", got.Header.Get("X-Tenant"))
	require.Equal(t, strings.TrimPrefix(addresses[0], "http://"), got.Host)
	require.Empty(t, got.Header.Values("Accept-Language"))
	require.Equal(t, []string{w.acmeID}, got.Header["X-Business-Id"])
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	services[0].setResponse(func(http.ResponseWriter, *http.Request) { <-stop })
	requireProblem(t, w.acme.Get(t, g.URL, eventsPath), http.StatusGatewayTimeout, "UPSTREAM_TIMEOUT")
}

// Caddy's header directive replaces text of header values in place, so responses must not share values.
func TestHeaderDirectiveChangesOnlyItsResponse(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, &recorder{})
	o := w.options(highLimits, "")
	o.Site = "header {\n\t\tdefer\n\t\tContent-Type json \"json {http.request.header.X-Probe}\"\n" +
		"\t\tCache-Control no-store \"no-store {http.request.header.X-Probe}\"\n" +
		"\t\tX-Content-Type-Options nosniff \"nosniff {http.request.header.X-Probe}\"\n\t}\n\t" + o.Site
	g := gatewaytest.Start(t, o)
	for _, path := range []string{"/healthz", "/api/v1/status", "/api/v1/nothing"} {
		for i := range 3 {
			probe := fmt.Sprint("probe-", i)
			res := send(t, g, path, http.Header{"X-Probe": {probe}})
			assert.Equal(t, "application/json "+probe, res.Header.Get("Content-Type"), path)
			assert.Equal(t, "no-store "+probe, res.Header.Get("Cache-Control"), path)
			assert.Equal(t, "nosniff "+probe, res.Header.Get("X-Content-Type-Options"), path)
		}
	}
}
