package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// malformed returns requests that are invalid HTTP/1.1 or that no client library sends, with canaries that a server may quote.
func malformed(c gatewaytest.Caller) []string {
	signed := signedLines(c, "GET", eventsPath, "")
	return []string{
		"GET /canary-caller\r\n\r\n", "canary-caller\r\n\r\n", "\x16\x03\x01\x02\x00\x01canary-caller", "GET " + eventsPath + "%canary-caller HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET " + eventsPath + " HTTP/canary-caller\r\nHost: x\r\n\r\n", "GET " + eventsPath + " HTTP/1.1\r\nHost: canary-caller\r\nHost: canary-caller\r\n\r\n",
		"GET " + eventsPath + " HTTP/1.1\r\nHost: <canary-caller>\r\n" + signed + "\r\n", "GET " + eventsPath + " HTTP/1.1\r\ncanary-caller\r\n\r\n",
		"GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\nX: canary-caller\x00\r\n" + signed + "\r\n", "GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\nX canary-caller: x\r\n\r\n",
		"GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\nContent-Length: canary-caller\r\n\r\n", "GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: canary-caller\r\n\r\n",
		"GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + signed + "\r\ncanary-caller\r\n", "GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\nExpect: canary-caller\r\n\r\n",
		"CANARY-CALLER " + eventsPath + " HTTP/1.1\r\nHost: x\r\n" + signed + "\r\n", "CONNECT canary-caller:443 HTTP/1.1\r\nHost: x\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\nOrigin: https://canary-caller\r\n\r\n",
		"TRACE " + eventsPath + " HTTP/1.1\r\nHost: x\r\nX-Canary: canary-caller\r\n" + signed + "\r\n", "GET http://canary-caller/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: canary-caller\r\n" + signed + "\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ncanary-caller", "GET /" + strings.Repeat("canary-caller", 5000) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /debug/pprof/ HTTP/1.1\r\nHost: x\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "GET /config/ HTTP/1.1\r\nHost: localhost:2019\r\n\r\n",
		"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "GET /gatehouse/ready HTTP/1.1\r\nHost: x\r\n\r\n",
	}
}

// exchangeBytes sends bytes and returns everything received.
func exchangeBytes(t *testing.T, addr, request string) string {
	t.Helper()
	conn := dial(t, addr, "")
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, request) // the server may close it early
	if tcp, ok := conn.Conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // the server closes the connection after its response, if not before
	}
	response, err := io.ReadAll(conn)
	require.False(t, isTimeout(err), "%.80q", request)
	return string(response)
}

// faultyDataService returns a different invalid response to each request, with canaries in headers and bodies.
func faultyDataService() http.HandlerFunc {
	const trace = "panic: canary-trace\n\ngoroutine 1 [running]:\nmain.main()\n\t/srv/canary-path/main.go:42"
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, name := range []string{"Server", "X-Powered-By", "X-Internal-Host", "X-Debug", "Www-Authenticate", "Set-Cookie", "Location", "Link", "Via", "X-Request-Id", "Etag"} {
			h.Set(name, "canary-banner=1")
		}
		h.Set("Content-Type", "application/json")
		switch n.Add(1) % 10 {
		case 0:
			http.Error(w, trace, http.StatusInternalServerError)
		case 1:
			h.Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<h1>canary-html at 10.1.2.3</h1>")
		case 2:
			_, _ = io.WriteString(w, `{"events":[{"id":"canary-record","business_id":"`+r.Header.Get("X-Business-Id")+`","trace":"canary-trace"}]}`)
		case 3:
			_, _ = io.WriteString(w, `{"events":[],"debug":{"sql":"canary-sql"}}`)
		case 4:
			abortsInBody(w, r)
		case 5:
			h.Set("Location", "http://canary-host/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		case 6:
			h.Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, trace)
		case 7:
			_, _ = io.WriteString(w, `{"error":"canary-error","code":"`+trace+`"`)
		case 8:
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nServer: canary-banner\r\n\r\ncanary-html")
				_ = conn.Close()
			}
		default:
			panic(http.ErrAbortHandler)
		}
	}
}

// No response contains a secret, a token, an internal address, a stack trace, a banner of a backend or parts of the request, whatever is
// sent and whichever backend fails. Logs, metrics, admin API and arguments contain no secret, no signature and nothing that callers or
// data services have sent.
func TestAttacksRevealNoSecretAddressTraceOrBanner(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newVaultEnvironment(t, vaulttest.Options{})
	data.setResponse(faultyDataService())
	w.environment = newEnvironment(t, data)
	w.redis = redistest.Start(t, redistest.WithUser("gateway", "canary-redis-password", "~* &* +@all"))
	w.keys.env = append(w.keys.env, "TEST_REDIS_PASSWORD=canary-redis-password")
	w.setMount(t, "kv")
	key := w.keys.issue(t)
	acme := key.caller()
	assertion := writeAssertionKey(t)
	pem, err := os.ReadFile(assertion)
	require.NoError(t, err)

	o := w.environment.options(highLimits+"\n\t\tassertion "+assertion, "timeout 2s\n\t\tbody_timeout 1s")
	o.Global = fmt.Sprintf("gatehouse {\n\t\tredis redis://%s {\n\t\t\tusername gateway\n\t\t\tpassword {env.TEST_PASSWORD}\n\t\t\ttimeout 1s\n\t\t}\n"+
		"\t\tcredentials vault %s {\n\t\t\tauth token {env.TEST_TOKEN}\n\t\t\ttimeout 1s\n\t\t}\n\t\t%s\n\t\tassertion %s\n\t}", w.redis.Addr, w.vault.Addr, highLimits, assertion)
	o.Env = []string{"TEST_PASSWORD=canary-redis-password", "TEST_TOKEN=" + w.vault.RootToken}
	o.Servers = trustLoopback
	attacked := &attack{environment: w.environment}
	attacked.serve(t, o)
	g, all := attacked.g, attacked.over
	requireReady(t, g)
	require.NotZero(t, acme.Get(t, g.URL, "/api/v1/me").Status)

	_, dataPort, _ := net.SplitHostPort(strings.TrimPrefix(w.dataURL, "http://"))
	_, vaultPort, _ := net.SplitHostPort(strings.TrimPrefix(w.vault.Addr, "http://"))
	_, redisPort, _ := net.SplitHostPort(w.redis.Addr)
	secrets := []string{
		key.PrivateKey, w.acme.PrivateKey.Reveal(), "canary-redis-password", w.vault.RootToken, strings.Split(string(pem), "\n")[1],
		"canary-caller", "canary-banner", "canary-trace", "canary-html", "canary-record", "canary-sql", "canary-host", "canary-error", "canary-path",
	}
	public := append([]string{
		"127.0.0.1", ":" + dataPort, ":" + vaultPort, ":" + redisPort, "10.1.2.3", "goroutine ", ".go:", "panic", "runtime error", "redis", "vault", "Caddy", "caddy",
	}, secrets...)

	var (
		from       clientIPs
		signatures []string
		responses  int
	)
	attack := func(phase string) {
		for protocol, send := range all {
			try := func(method, target string, fields []field) {
				for _, f := range fields {
					if strings.EqualFold(f.name, authsigner.HeaderSignature) && len(f.value) == 64 {
						signatures = append(signatures, f.value)
					}
				}
				a := send(method, target, from.from(fields))
				if a.Status != 0 {
					responses++
				}
				gatewaytest.RequireNowhere(t, fmt.Sprint(a.Status, a.Header, a.Body), public...)
				require.Empty(t, a.Header.Get("Server"), "%s, %s %s %.80q", phase, protocol, method, target)
			}
			for i, target := range append(similarTargets("events"), eventsPath, eventsPath+"?count=3", eventsPath+"?count=canary-caller", "/api/v1/me", "/api/v1/status", "/canary-caller", "/") {
				try("GET", target, signedFields(acme, "GET", target, ""))
				if i%5 == 0 {
					try("GET", target, nil)
					try("POST", target, signedFields(acme, "POST", target, ""))
				}
			}
			for range 20 { // each of the data service's faults, twice
				try("GET", eventsPath, signedFields(acme, "GET", eventsPath, ""))
			}
			hostile := []field{{"X-Request-Id", "canary-caller"}, {"User-Agent", "canary-caller"}, {"Cookie", "canary-caller"}, {"Authorization", "Bearer canary-caller"}, {"Referer", "http://canary-caller/"}, {"Origin", "http://canary-caller"}}
			try("GET", eventsPath, append(hostile, signedFields(acme, "GET", eventsPath, "")...))
			// The log names well-formed public keys. This one could be a private key that is sent by mistake.
			for _, k := range []string{"../canary-caller", "sk_live_canary-caller", strings.Repeat("k", 4096), acme.PublicKey} {
				forged := gatewaytest.Caller{PublicKey: k, PrivateKey: "canary-caller"}
				try("GET", "/api/v1/me", append(hostile, signedFields(forged, "GET", "/api/v1/me", "")...))
			}
		}
		for _, request := range malformed(acme) {
			response := exchangeBytes(t, g.Addr, request)
			if response != "" {
				responses++
			}
			gatewaytest.RequireNowhere(t, strings.ReplaceAll(response, "HTTP/1.1", ""), public...)
		}
	}
	attack("faulty data service")
	require.NoError(t, w.redis.Kill())
	w.vault.Kill(t)
	attack("stores unavailable")
	t.Logf("%d responses searched", responses)
	require.Greater(t, responses, 1000)

	seen := g.Everything(t)
	gatewaytest.RequireNowhere(t, seen, secrets...)
	gatewaytest.RequireNowhere(t, seen, signatures...)
	// no label of our metrics contains an address
	for line := range strings.Lines(anonymous().Get(t, g.AdminURL, "/metrics").Body) {
		if strings.HasPrefix(line, "gatehouse_") {
			series := line[:strings.LastIndexByte(line, ' ')] // a value may be 10.5
			gatewaytest.RequireNowhere(t, series, "127.0.0.1", "10.", acme.PublicKey)
		}
	}
}

const canaryRecord = `{"contacts":[{"email":"canary-record@example.com"}]}`

// twiceService is a service that sends more than a response while twice is set.
type twiceService struct {
	addr          string
	seen          atomic.Int64 // requests that were answered twice
	twice, reused atomic.Bool
}

func newTwiceService(t *testing.T) *twiceService {
	t.Helper()
	s := &twiceService{}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr = ln.Addr().String()
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = conn.Close() }()
				r := bufio.NewReader(conn)
				for surplus := false; ; {
					if _, err := http.ReadRequest(r); err != nil {
						return // the gateway has closed the connection
					}
					if surplus {
						s.reused.Store(true)
					}
					response := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
					if surplus = s.twice.Load(); surplus {
						response += canaryRecord
						s.seen.Add(1)
					}
					if _, err := io.WriteString(conn, response); err != nil {
						return
					}
				}
			})
		}
	})
	return s
}

// Libraries quote what they do not expect on a connection: part of a record, if a data service answers twice.
func TestSurplusBytesOfADataServiceAreNotLogged(t *testing.T) {
	t.Parallel()
	s := newTwiceService(t)
	w := newEnvironment(t, nil)
	w.dataURL = "http://" + s.addr + " {\n\t\t\thealth_uri /healthz\n\t\t\thealth_interval 200ms\n\t\t}"
	g := w.gateway(t)
	for range 2 {
		before := s.seen.Load()
		s.twice.Store(true)
		require.Eventually(t, func() bool { return s.seen.Load() > before+5 }, patience, 10*time.Millisecond)
		for range 3 {
			w.acme.Get(t, g.URL, eventsPath)
		}
		s.twice.Store(false)
		g.Reload(t) // Caddy sets up its logs again
	}
	g.Stop(t) // and ends the connections
	require.NotContains(t, g.Output(), "canary-record")
	require.False(t, s.reused.Load(), "a connection is used again")
}

// Caddy sets up its logs before it loads the modules of a configuration, and leaves them like that if the configuration fails.
func TestFailedReloadLeavesSurplusBytesOutOfTheLog(t *testing.T) {
	t.Parallel()
	s := newTwiceService(t)
	s.twice.Store(true)
	p := newProtected(t)
	o := p.options(highLimits, "")
	o.Site = "gatehouse_auth shop\n\treverse_proxy " + s.addr
	g := gatewaytest.Start(t, o)
	g.Write(t, "{\n\tadmin "+strings.TrimPrefix(g.AdminURL, "http://")+"\n}\nhttps://localhost:1 {\n\ttls missing.pem missing.key\n}\n")
	out, err := gatewaytest.Command(t, nil, "reload", "--config", g.Config, "--adapter", "caddyfile", "--address", strings.TrimPrefix(g.AdminURL, "http://"))
	require.Error(t, err)
	require.Contains(t, out, "missing.pem")
	require.Equal(t, http.StatusOK, p.reads.Get(t, g.URL, "/orders").Status)
	requireLogged(t, g, "Unsolicited response")
	require.NotContains(t, g.Output(), "canary-record")
}
