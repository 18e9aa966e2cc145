package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

func TestEveryKeyHasItsOwnLimit(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, &recorder{})
	keys := keysCLI{source: []string{"--file", w.keyFile}}
	targets := []string{"/api/v1/me", "/api/v1/events?count=1", "/api/v1/status"}
	withinWindow(t, func(int) func() {
		callers := map[int]gatewaytest.Caller{
			60: keys.issue(t).caller(), 7: keys.issue(t, "--limit", "7").caller(), 90: keys.issue(t, "--limit", "90").caller(),
		}
		g := w.gateway(t)
		responses := map[int][]gatewaytest.Response{}
		for limit, c := range callers {
			for i := range limit + 3 {
				responses[limit] = append(responses[limit], c.Get(t, g.URL, targets[i%len(targets)]))
			}
		}
		other := w.other.Get(t, g.URL, "/api/v1/me")
		return func() {
			for limit, all := range responses {
				for i, a := range all[:limit] {
					assert.Equal(t, http.StatusOK, a.Status, "request %d of %d: %s", i+1, limit, a.Body)
					assert.Equal(t, strconv.Itoa(limit), a.Header.Get("X-RateLimit-Limit"))
					assert.Equal(t, strconv.Itoa(limit-1-i), a.Header.Get("X-RateLimit-Remaining"))
				}
				for _, a := range all[limit:] { // denied requests do not count
					p := requireProblem(t, a, http.StatusTooManyRequests, "RATE_LIMITED")
					assert.Equal(t, strconv.Itoa(p.RetryAfter), a.Header.Get("Retry-After"))
					assert.Positive(t, p.RetryAfter)
					assert.LessOrEqual(t, p.RetryAfter, 60)
					require.NotEmpty(t, p.Message, "existing clients read it")
					assert.Equal(t, "0", a.Header.Get("X-RateLimit-Remaining"))
					assert.Contains(t, a.Header.Get("RateLimit"), "r=0")
				}
			}
			require.Equal(t, http.StatusOK, other.Status, "another business has its own limit")
		}
	})
}

func TestUnsignedRequestsCountAgainstTheClientIP(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.gateway(t)
	for i := range 10 {
		a := anonymous().Get(t, g.URL, "/api/v1/status")
		require.Equal(t, http.StatusOK, a.Status)
		require.Equal(t, strconv.Itoa(9-i), a.Header.Get("X-RateLimit-Remaining"))
	}
	for _, target := range []string{"/api/v1/status", "/api/v1/nothing"} {
		requireProblem(t, anonymous().Get(t, g.URL, target), http.StatusTooManyRequests, "RATE_LIMITED")
	}
	require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status, "a signed request counts against its key")
}

// decidedLocally returns the number of requests that gateways allowed without a timely reply of Redis, as happens on a busy machine.
func decidedLocally(t *testing.T, gateways ...*gatewaytest.Gateway) (n int) {
	t.Helper()
	for _, g := range gateways {
		n += int(g.Metric(t, "gatehouse_limit_decisions_total", `by="local"`, `outcome="allowed"`))
	}
	return n
}

func TestConcurrentRequestsToThreeGatewaysShareOneLimit(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	gateways := []*gatewaytest.Gateway{w.gateway(t), w.gateway(t), w.gateway(t)}
	var counts [600]atomic.Int64
	inParallel(200, 200, func(i int) {
		if a, err := w.acme.Try(t.Context(), http.MethodGet, gateways[i%3].URL, "/api/v1/me", nil); err == nil {
			counts[a.Status].Add(1)
		}
	})
	passed := int(counts[http.StatusOK].Load())
	require.EqualValues(t, 200-passed, counts[http.StatusTooManyRequests].Load())
	if local := decidedLocally(t, gateways...); local > 0 {
		require.LessOrEqual(t, passed, load.KeyLimit+local)
		return
	}
	require.Equal(t, load.KeyLimit, passed)
}

func TestUnverifiedRequestsCountAgainstNoKey(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		addresses, each int
		statuses        map[int]int
	}{
		"from the business's own address": {1, 100, map[int]int{401: 60, 429: 40}},
		"from forty addresses":            {40, 5, map[int]int{401: 200}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := func(i int) string {
				if test.addresses == 1 {
					return "127.0.0.1"
				}
				return "203.0.113." + strconv.Itoa(i%test.addresses+1)
			}
			withinWindow(t, func(int) func() {
				w := newEnvironment(t, nil)
				g := w.behindProxy(t, "", "")
				unverified := statuses(test.addresses*test.each, func(i int) gatewaytest.Response {
					return send(t, g, "/api/v1/me", withClientIP(address(i), invalidSignature(w.acme.PublicKey)))
				})
				requireServed(t, g, w.acme, load.KeyLimit)
				over := w.acme.Get(t, g.URL, "/api/v1/me")
				return func() {
					require.Equal(t, test.statuses, unverified)
					require.Equal(t, http.StatusTooManyRequests, over.Status)
				}
			})
		})
	}
}

func TestInventedKeysCountAgainstTheClientIP(t *testing.T) {
	t.Parallel()
	withinWindow(t, func(int) func() {
		g := newEnvironment(t, nil).gateway(t)
		got := statuses(200, func(i int) gatewaytest.Response {
			return send(t, g, "/api/v1/status", invalidSignature("pk_live_fake_number_"+strconv.Itoa(i)))
		})
		return func() { require.Equal(t, map[int]int{200: 120, 429: 80}, got) }
	})
}

// Only a trusted proxy can name another client IP, and only with the last entry of X-Forwarded-For.
func TestForgedClientIPHeadersDoNotChangeTheClientIP(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	direct, proxied := w.gateway(t), w.behindProxy(t, "", "")
	h2 := dialH2(t, newEnvironment(t, nil).gateway(t).Addr)
	ip := func(i int) string { return "203.0.113." + strconv.Itoa(i+1) }
	spoofed := func(i int) []field {
		return []field{
			{"x-forwarded-for", ip(i)},
			{"forwarded", "for=" + ip(i)},
			{"x-real-ip", ip(i)},
			{"x-client-ip", ip(i)},
			{"cf-connecting-ip", ip(i)},
			{"true-client-ip", ip(i)},
		}
	}
	const target = "/api/v1/status"
	tenOfTwenty := map[int]int{200: 10, 429: 10}
	assert.Equal(t, tenOfTwenty, statuses(20, func(i int) gatewaytest.Response { return send(t, direct, target, headerOf(spoofed(i))) }))
	assert.Equal(t, tenOfTwenty, statuses(20, func(i int) gatewaytest.Response {
		return h2.do("", append(h2Request(http.MethodGet, target), spoofed(i)...)...)
	}), "over HTTP/2")
	assert.Equal(t, tenOfTwenty, statuses(20, func(i int) gatewaytest.Response {
		h := http.Header{"X-Forwarded-For": {ip(i), "198.51.100.9"}} // the last line is the proxy's
		if i%2 == 0 {
			h = headerOf(spoofed(i))
			h.Set("X-Forwarded-For", ip(i)+",rubbish,, 198.51.100.9")
		}
		return send(t, proxied, target, h)
	}), "behind a proxy")
	assert.Equal(t, map[int]int{200: 20, 429: 4}, statuses(24, func(i int) gatewaytest.Response {
		return send(t, proxied, target, withClientIP(ip(i)+", 198.51.100."+strconv.Itoa(i%2+1), nil))
	}), "a trusted proxy names two callers")
}

// A load balancer may write what Caddy cannot read, such as an IPv6 address with a port, or "unknown". What stands to the left of it is the
// caller's.
func TestUnreadableEntryMakesNoForgedClientIPTrusted(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newEnvironment(t, data)
	start := func(servers string) *gatewaytest.Gateway {
		o := w.options(highLimits, "")
		o.Servers = servers
		return gatewaytest.Start(t, o)
	}
	static := "trusted_proxies static 127.0.0.0/8 2001:db8:f::/48"
	strict, first := start(static+"\n\t\ttrusted_proxies_strict"), start(static)
	named := start(static + "\n\t\ttrusted_proxies_strict\n\t\tclient_ip_headers X-Real-IP X-Forwarded-For")
	const forged, peer = "203.0.113.9", "127.0.0.1"
	for _, test := range []struct {
		g      *gatewaytest.Gateway
		lines  []string
		client string
	}{
		{strict, []string{forged + ", [2001:db8::1]:4711"}, "2001:db8::1"},
		{strict, []string{forged, "[2001:db8::1]:4711"}, "2001:db8::1"},
		{strict, []string{forged, " [2001:db8::1]"}, "2001:db8::1"},
		{strict, []string{forged + ",\t[2001:db8::1%eth0]:4711 ,"}, "2001:db8::1"},
		{strict, []string{forged + ", 2001:db8::1%eth0"}, "2001:db8::1"},
		{strict, []string{forged + ", 198.51.100.1:4711"}, "198.51.100.1"},
		{strict, []string{forged + ", 2001:db8::1, 127.0.0.2, [2001:db8:f::1]:443"}, "2001:db8::1"},
		{strict, []string{forged + ", [2001:db8::1]:80, [2001:db8:f::1]:443"}, "2001:db8::1"},
		{strict, []string{forged + ", unknown"}, peer},
		{strict, []string{forged, "unknown", "[2001:db8:f::1]:443"}, peer},
		{strict, []string{forged + ", _hidden, 198.51.100.1"}, "198.51.100.1"},
		{strict, []string{"unknown, [::1, 198.51.100.1"}, "198.51.100.1"},
		{strict, []string{forged + ", 198.51.100.256"}, peer},
		{strict, []string{forged + ", , 198.51.100.1, ,", ""}, "198.51.100.1"},
		{strict, []string{"", ","}, peer},
		{first, []string{"198.51.100.1, [2001:db8::1]:4711", "unknown"}, "198.51.100.1"},
		{first, []string{"[2001:db8::1]:4711, 127.0.0.2"}, "2001:db8::1"},
		{first, []string{"unknown"}, peer},
		{named, []string{"198.51.100.1", "X-Real-IP: " + forged + ", [2001:db8::1]:80"}, "2001:db8::1"},
		{named, []string{forged, "X-Real-IP: unknown"}, peer},
		{named, []string{forged + ", [2001:db8::1]:80", "X-Real-IP: 127.0.0.2"}, "2001:db8::1"},
	} {
		var fields []field
		for _, line := range test.lines {
			name, value, ok := strings.Cut(line, ": ")
			if !ok {
				name, value = "X-Forwarded-For", line
			}
			fields = append(fields, field{name, value})
		}
		a := raw(t, test.g.Addr, "GET "+eventsPath+" HTTP/1.1\r\nHost: x\r\n"+linesOf(append(fields, signedFields(w.acme, "GET", eventsPath, "")...))+"\r\n"+lastRequest)
		require.Equal(t, 200, a.Status, a.Body)
		assert.Equal(t, []string{test.client + ", " + peer}, data.last(t).Header["X-Forwarded-For"], "%q", test.lines)
	}
}

// A customer has a /64 of IPv6: its addresses are one client IP, in every spelling.
func TestIPv6NetworkIsOneClientIP(t *testing.T) {
	t.Parallel()
	network := []string{
		"2001:db8:1:2::%x", "2001:0db8:0001:0002:0000:0000:0000:%x", "2001:DB8:1:2:%x::", "[2001:db8:1:2::%x]:4711", "2001:db8:1:2:ffff:ffff:ffff:%x",
		"2001:db8:1:2::%x%%eth0", "[2001:db8:1:2::%x]",
	}
	from := func(g *gatewaytest.Gateway, n int, spellings []string, target string, header func(i int) http.Header) map[int]int {
		return statuses(n, func(i int) gatewaytest.Response {
			address := spellings[i%len(spellings)]
			if strings.Contains(address, "%") {
				address = fmt.Sprintf(address, i+1)
			}
			return send(t, g, target, withClientIP(address, header(i)))
		})
	}
	none := func(int) http.Header { return nil }
	key := func(i int) http.Header { return invalidSignature("pk_live_fake_number_" + strconv.Itoa(i)) }
	const status = "/api/v1/status"
	mapped := []string{"198.51.100.7", "::ffff:198.51.100.7", "::ffff:c633:6407", "198.51.100.7:1234"}
	invalid := []string{"unknown-%d", "_hidden%d", "2001:db8:9:9:%x", "256.0.0.%d", "0x7f.%d"}
	withinWindow(t, func(int) func() {
		g := newEnvironment(t, nil).behindProxy(t, "", "")
		withKeys, without := from(g, 200, network, "/api/v1/me", key), from(g, 30, network, status, none)
		next := from(g, 1, []string{"2001:db8:1:3::%x"}, status, none)
		asIPv4, asProxy := from(g, 30, mapped, status, none), from(g, 60, invalid, status, none)
		return func() {
			assert.Equal(t, map[int]int{401: 120, 429: 80}, withKeys, "with keys")
			assert.Equal(t, map[int]int{200: 10, 429: 20}, without, "without a key")
			assert.Equal(t, map[int]int{200: 1}, next, "the next network")
			assert.Equal(t, map[int]int{200: 10, 429: 20}, asIPv4, "IPv4 in IPv6")
			assert.Equal(t, map[int]int{200: 10, 429: 50}, asProxy, "invalid addresses count as the proxy")
		}
	})
}

// A request with a key that is aborted in its body counts, because it may have caused a lookup.
func TestAbortedRequestsCount(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.gateway(t)
	w.requireListening(t, 1) // the cache is emptied before that
	for i := range 130 {
		key := gatewaytest.Caller{PublicKey: "pk_live_fake_number_" + strconv.Itoa(i)}
		conn := dial(t, g.Addr, "GET /api/v1/me HTTP/1.1\r\nHost: x\r\n"+signedLines(key, "GET", "/", "")+"Content-Length: 10\r\n\r\n1")
		require.NoError(t, conn.Close())
	}
	// Redis is asked directly, as requests to the gateway would count.
	fleet := limitsIn(t, w.redis.Options())
	group, counters := ratelimit.ForUnverified("", netip.MustParseAddr("127.0.0.1"))
	require.Eventually(t, func() bool {
		res, err := fleet.Peek(t.Context(), group, counters...)
		return err == nil && res.By == ratelimit.ByRedis && !res.Allowed
	}, patience, 50*time.Millisecond)
	assert.Equal(t, http.StatusTooManyRequests, send(t, g, "/api/v1/me", invalidSignature("pk_live_yet_another_one")).Status)
	waitForStatus(t, http.StatusOK, w.acme, g) // its key is cached from now on
	assert.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/status").Status, "aborted requests count against a business")
}

// Requests whose signature was verified count, also if the client has reset their streams by then (rapid reset).
func TestResetRequestsCount(t *testing.T) {
	t.Parallel()
	const least, streams = 4, 500 // connections, and streams of each
	w := newEnvironment(t, nil)
	g := w.gateway(t)
	requireServed(t, g, w.acme, 1)
	verified := func() float64 { return g.Metric(t, "gatehouse_authentications_total", `result="verified"`) }
	connections := 0
	for start := time.Now(); connections < least || verified() <= least*streams/10; connections++ { // on a busy machine, few get that far
		require.Less(t, time.Since(start), patience, "the gateway verifies too few")
		conn := dialH2(t, g.Addr)
		go func() { _, _ = io.Copy(io.Discard, conn.conn) }() // or else the gateway waits
		fields := append(h2Request(http.MethodGet, eventsPath), lowerCase(signedFields(w.acme, http.MethodGet, eventsPath, ""))...)
		for range streams {
			id, err := conn.open(true, fields...)
			require.NoError(t, err)
			require.NoError(t, conn.framer.WriteRSTStream(id, http2.ErrCodeCancel))
		}
	}
	var counted float64
	require.Eventually(t, func() bool {
		counted = g.Metric(t, "gatehouse_limit_decisions_total", `limit="key"`, `outcome="allowed"`) +
			g.Metric(t, "gatehouse_limit_decisions_total", `limit="key"`, `outcome="denied"`)
		return verified() == counted
	}, patience, 50*time.Millisecond, "verified or counted")
	t.Logf("%.0f of %d requests reached the gateway's handlers before their reset, and counted", counted, connections*streams)
}

// A key in use is looked up again from a client IP that has exceeded its unverified limit.
func TestLimitedClientIPUsesCachedKeys(t *testing.T) {
	t.Parallel()
	var w *environment
	var g *gatewaytest.Gateway
	withinWindow(t, func(int) func() {
		w = newEnvironment(t, nil)
		g = w.start(t, highLimits, "")
		w.requireListening(t, 1)
		requireServed(t, g, w.acme, 1)
		got := statuses(130, func(i int) gatewaytest.Response {
			return send(t, g, "/api/v1/me", invalidSignature("pk_live_fake_number_"+strconv.Itoa(i)))
		})
		return func() { require.Equal(t, map[int]int{401: 120, 429: 10}, got) }
	})
	require.InDelta(t, 10, g.Metric(t, "gatehouse_limit_decisions_total", `limit="unverified-ip"`, `outcome="denied"`), 0)
	require.Eventually(t, func() bool { return len(requestLines(g, "RATE_LIMITED")) == 10 }, patience, 10*time.Millisecond)
	for _, line := range requestLines(g, "RATE_LIMITED") {
		require.Contains(t, line.Claimed, "pk_live_fake_number_", "whose callers share the client IP, and with whose keys it is used up")
	}
	requireServed(t, g, w.acme, 1)
	lookups := func() float64 { return g.Metric(t, "gatehouse_credential_events_total", `event="found"`) }
	before := lookups()
	// when the gateway has subscribed again, it looks every key up again
	require.NoError(t, w.redis.Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	status := 0
	require.Eventually(t, func() bool {
		status = w.acme.Get(t, g.URL, "/api/v1/me").Status
		return status != http.StatusOK || lookups() > before
	}, patience, 10*time.Millisecond)
	require.Equal(t, http.StatusOK, status)
}

// Shadow mode does not even deny valid signatures from a client IP that has exceeded its unverified limit.
func TestShadowModeDeniesNothing(t *testing.T) {
	t.Parallel()
	withinWindow(t, func(int) func() {
		w := newEnvironment(t, nil)
		g := w.start(t, "limits {\n\t\t\tshadow\n\t\t}", "")
		require.Equal(t, map[int]int{200: 15}, statuses(15, func(int) gatewaytest.Response { return anonymous().Get(t, g.URL, "/api/v1/status") }))
		require.Equal(t, map[int]int{401: 130}, statuses(130, func(i int) gatewaytest.Response {
			return send(t, g, "/api/v1/me", invalidSignature("pk_live_fake_number_"+strconv.Itoa(i)))
		}))
		requireServed(t, g, w.acme, 70)
		return func() {
			requireLogged(t, g, "not enforced in shadow mode")
			// the first request of acme, whose key was not cached, exceeded the limit of its client IP too
			for limit, requests := range map[string]int{"ip": 5, "unverified-key": 0, "unverified-ip": 11, "key": 10} {
				assert.InDelta(t, requests, g.Metric(t, "gatehouse_limit_shadow_total", `limit="`+limit+`"`), 0, limit)
			}
		}
	})
}

func TestRequestsWaitForRedisUntilTheTimeout(t *testing.T) {
	t.Parallel()
	const delay = time.Second
	w := newEnvironment(t, nil)
	link := netfault.NewLink(t, w.redis.Addr)
	o := w.options("", "")
	o.Global = strings.Replace(o.Global, w.redisLine(), "redis redis://"+link.Addr+" {\n\t\t\ttimeout 1m\n\t\t}", 1)
	g := gatewaytest.Start(t, o)
	requireReady(t, g)
	link.Slow(0, delay)
	began := time.Now()
	requireServed(t, g, w.acme, 1)
	require.GreaterOrEqual(t, time.Since(began), delay)
	require.Zero(t, decidedLocally(t, g))
}

// For 75 s, one business sends steadily to three gateways, also while it is denied. No window of 60 s contains more than 60 allowed
// requests. Because denied requests do not count, the next are allowed when the first leave the window, as Retry-After says.
func TestNoWindowExceedsTheLimitAndDeniedRequestsDoNotCount(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	gateways := []*gatewaytest.Gateway{w.gateway(t), w.gateway(t), w.gateway(t)}
	type decision struct {
		sent, received time.Time     // the decision was made between them
		after          time.Duration // Retry-After
	}
	var (
		mu              sync.Mutex
		allowed, denied []decision
		wg              sync.WaitGroup
	)
	const duration = 75 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	caller := w.acme
	caller.Client = protocolClient(t, false, 0)
	for _, g := range gateways {
		wg.Go(func() {
			for at := time.Now(); load.Wait(ctx, at); at = at.Add(250 * time.Millisecond) {
				d := decision{sent: time.Now()}
				a, err := caller.Try(context.WithoutCancel(ctx), http.MethodGet, g.URL, "/api/v1/me", nil)
				d.received = time.Now()
				seconds, _ := strconv.Atoi(a.Header.Get("Retry-After"))
				d.after = time.Duration(seconds) * time.Second
				mu.Lock()
				switch {
				case err == nil && a.Status == http.StatusOK:
					allowed = append(allowed, d)
				case err == nil && a.Status == http.StatusTooManyRequests && seconds > 0:
					denied = append(denied, d)
				default:
					t.Errorf("unexpected response: %v %d %v %s", err, a.Status, a.Header, a.Body)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	slices.SortFunc(allowed, func(a, b decision) int { return a.sent.Compare(b.sent) })
	most := load.KeyLimit + decidedLocally(t, gateways...)
	for i := most; i < len(allowed); i++ {
		require.GreaterOrEqual(t, allowed[i].received.Sub(allowed[i-most].sent), load.Window, "%d allowed within a minute", most+1)
	}
	require.Greater(t, len(allowed), 65, "denied requests count")
	require.Greater(t, len(denied), 100)
	const clocks = 100 * time.Millisecond // drift between Redis's clock and this one
	for _, r := range denied {
		within := 0
		for _, a := range allowed {
			if a.sent.Before(r.received) && !a.received.Add(load.Window+clocks).Before(r.sent) {
				within++
			}
		}
		assert.GreaterOrEqual(t, within, load.KeyLimit, "denied %s after the first was allowed, below the limit", r.sent.Sub(allowed[0].received))
	}
	// Until the first can have left the window, every Retry-After refers to that moment, in whole seconds.
	first := allowed[0]
	for _, a := range allowed {
		if a.received.Before(first.received) {
			first.received = a.received
		}
	}
	checked := 0
	for _, r := range denied {
		if !r.received.Before(first.sent.Add(load.Window)) {
			continue
		}
		checked++
		assert.False(t, r.received.Add(r.after+clocks).Before(first.sent.Add(load.Window)), "wrong Retry-After: %s", r.after)
		assert.False(t, r.sent.Add(r.after).After(first.received.Add(load.Window+time.Second+clocks)), "wrong Retry-After: %s", r.after)
	}
	require.Greater(t, checked, 20)
	t.Logf("%d allowed, %d denied in %s; the 61st %s after the first had left the window", len(allowed), len(denied), duration,
		allowed[load.KeyLimit].received.Sub(first.sent)-load.Window)
}

// redisBytes returns the memory that Redis uses.
func redisBytes(t *testing.T, c *redis.Client) (n int64) {
	t.Helper()
	info, err := c.Info(t.Context(), "memory").Result()
	require.NoError(t, err)
	_, rest, _ := strings.Cut(info, "used_memory:")
	_, err = fmt.Sscanf(rest, "%d", &n)
	require.NoError(t, err)
	return n
}

// Each client IP is counted separately, and the memory that the gateway and Redis use for it is bounded and expires.
func TestManyClientIPsTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.behindProxy(t, "", "")
	client := w.redis.Client(t)
	requireServed(t, g, w.acme, 1)

	const warmUp, addresses = 500, 9500
	caller := gatewaytest.Caller{Client: protocolClient(t, false, 0)}
	from := func(first, n int) {
		var counts [600]atomic.Int64
		inParallel(64, n, func(i int) {
			i += first
			address := fmt.Sprintf("10.0.%d.%d", i>>8, i&0xff)
			if i%2 == 0 {
				address = fmt.Sprintf("2001:db8:%x::1", i)
			}
			for _, h := range []http.Header{nil, invalidSignature("pk_live_fake_number_" + strconv.Itoa(i)), invalidSignature(w.acme.PublicKey)} {
				a, err := caller.Send(t.Context(), http.MethodGet, g.URL, "/api/v1/me", withClientIP(address, h), nil)
				if err != nil {
					t.Errorf("a request failed: %v", err)
				}
				counts[a.Status].Add(1)
			}
		})
		require.EqualValues(t, 3*n, counts[http.StatusUnauthorized].Load(), "a client IP counted against another")
	}
	from(0, warmUp)
	gatewayBefore, _ := g.Memory(t)
	redisBefore := redisBytes(t, client)
	from(warmUp, addresses)
	gatewayAfter, _ := g.Memory(t)
	redisAfter := redisBytes(t, client)
	keys, err := client.DBSize(t.Context()).Result()
	require.NoError(t, err)
	perAddress := (redisAfter - redisBefore) / addresses
	t.Logf("%d addresses: the gateway from %s to %s, Redis from %s to %s, %d keys, %d bytes for each address",
		addresses, inMiB(gatewayBefore), inMiB(gatewayAfter), inMiB(redisBefore), inMiB(redisAfter), keys, perAddress)
	require.Less(t, (gatewayAfter-gatewayBefore)/addresses, int64(10<<10))
	require.Less(t, perAddress, int64(2048))
	require.LessOrEqual(t, keys, int64(4*(warmUp+addresses)+10))
	all, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	ttls, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, key := range all {
			p.PTTL(t.Context(), key)
		}
		return nil
	})
	require.NoError(t, err)
	for i, key := range all {
		if strings.HasSuffix(key, "}memory") {
			continue // the epoch key
		}
		ttl, ok := ttls[i].(*redis.DurationCmd)
		require.True(t, ok)
		require.NotEqual(t, time.Duration(-1), ttl.Val(), "%s never expires", key)
		require.LessOrEqual(t, ttl.Val(), 3*time.Minute, key)
	}
	// Only its own requests count against the key: this one, and the first if it was within a minute.
	a := w.acme.Get(t, g.URL, "/api/v1/me")
	require.Equal(t, http.StatusOK, a.Status)
	remaining, err := strconv.Atoi(a.Header.Get("X-RateLimit-Remaining"))
	require.NoError(t, err)
	assert.GreaterOrEqual(t, remaining, load.KeyLimit-2)
}
