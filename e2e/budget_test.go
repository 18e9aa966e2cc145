package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// fromAddress are headers with the proxy's word on the caller's address.
func fromAddress(address string, h http.Header) http.Header {
	h = h.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("X-Forwarded-For", address)
	return h
}

func TestStrangersFromEverywhereCannotSpendABusinesssBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.behindProxy(t, "", "")
	for i := range 40 {
		address := "203.0.113." + strconv.Itoa(i+1)
		for range 5 {
			a := send(t, g, "/api/v1/me", fromAddress(address, rubbish(w.acme.PublicKey)))
			require.Equal(t, http.StatusUnauthorized, a.Status)
		}
	}
	for i := range 60 {
		a := w.acme.Get(t, g.URL, "/api/v1/me")
		require.Equal(t, http.StatusOK, a.Status, "request %d", i+1)
		require.Equal(t, strconv.Itoa(59-i), a.Header.Get("X-RateLimit-Remaining"))
	}
	require.Equal(t, http.StatusTooManyRequests, w.acme.Get(t, g.URL, "/api/v1/me").Status)
}

// One customer holds a /64 of IPv6: whatever address of it is used, with or without (fake) keys, it is one sender.
func TestAddressesOfOneIPv6NetworkAreOneSender(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.behindProxy(t, "", "")
	spellings := []string{
		"2001:db8:1:2::%x", "2001:0db8:0001:0002:0000:0000:0000:%x", "2001:DB8:1:2:%x::", "[2001:db8:1:2::%x]:4711", "2001:db8:1:2:ffff:ffff:ffff:%x",
		"2001:db8:1:2::%x%%eth0",
	}
	statuses := map[int]int{}
	for i := range 200 {
		key := rubbish("pk_live_fake_number_" + strconv.Itoa(i))
		statuses[send(t, g, "/api/v1/me", fromAddress(fmt.Sprintf(spellings[i%len(spellings)], i+1), key)).Status]++
	}
	require.Equal(t, map[int]int{401: 120, 429: 80}, statuses)
	statuses = map[int]int{}
	for i := range 30 {
		statuses[send(t, g, "/api/v1/status", fromAddress(fmt.Sprintf(spellings[i%len(spellings)], i+1), nil)).Status]++
	}
	require.Equal(t, map[int]int{200: 10, 429: 20}, statuses)
	// its neighbour is another
	require.Equal(t, http.StatusOK, send(t, g, "/api/v1/status", fromAddress("2001:db8:1:3::1", nil)).Status)
	// and IPv4 is the same in IPv6's clothes
	statuses = map[int]int{}
	for i := range 30 {
		statuses[send(t, g, "/api/v1/status", fromAddress([]string{"198.51.100.7", "::ffff:198.51.100.7", "::ffff:c633:6407", "198.51.100.7:1234"}[i%4], nil)).Status]++
	}
	require.Equal(t, map[int]int{200: 10, 429: 20}, statuses)
	// what is no address is nobody new
	statuses = map[int]int{}
	for i := range 60 {
		statuses[send(t, g, "/api/v1/status", fromAddress(fmt.Sprintf([]string{"unknown-%d", "_hidden%d", "[2001:db8:9:9::%x]", "256.0.0.%d", "0x7f.%d"}[i%5], i), nil)).Status]++
	}
	require.Equal(t, map[int]int{200: 10, 429: 50}, statuses)
}

// Who names keys and breaks off in the middle of a body has caused look-ups: it pays for them.
func TestBreakingOffEscapesNoLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.gateway(t)
	require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status) // its key is known, and needs no look-up
	lines := func(i int) string {
		return fmt.Sprintf("X-Public-Key: pk_live_fake_number_%d\r\nX-Timestamp: %d\r\nX-Signature: %s\r\n", i, time.Now().Unix(), strings.Repeat("ab", 32))
	}
	for i := range 130 {
		conn, err := net.Dial("tcp", g.Addr)
		require.NoError(t, err)
		_, err = conn.Write([]byte("GET /api/v1/me HTTP/1.1\r\nHost: x\r\n" + lines(i) + "Content-Length: 10\r\n\r\n1"))
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	// Looking costs nothing: by asking the gateway the test would use the budget up itself.
	fleet, address := limitsIn(t, w.redis.Options()), ratelimit.IPKey(netip.MustParseAddr("127.0.0.1"))
	require.Eventually(t, func() bool {
		res, err := fleet.Peek(t.Context(), address, ratelimit.UnverifiedIP(address))
		return err == nil && res.By == ratelimit.ByRedis && !res.Allowed
	}, patience, 50*time.Millisecond)
	require.Equal(t, http.StatusTooManyRequests, send(t, g, "/api/v1/me", rubbish("pk_live_yet_another_one")).Status)
	// the businesses are none the poorer
	require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/status").Status)
}

// A spoofed address from a peer that is no proxy, in HTTP/2 as well, and one that stands where the proxy's own word is not.
func TestASpoofedAddressIsNotTheCallers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.gateway(t)
	statuses := map[int]int{}
	c := dialH2(t, g.Addr)
	for i := range 20 {
		ip := "203.0.113." + strconv.Itoa(i+1)
		a := c.do("", append(h2Request("GET", "/api/v1/status"), field{"x-forwarded-for", ip}, field{"forwarded", "for=" + ip}, field{"x-real-ip", ip})...)
		statuses[a.Status]++
	}
	require.Equal(t, map[int]int{200: 10, 429: 10}, statuses)

	proxied := w.behindProxy(t, "", "")
	statuses = map[int]int{}
	for i := range 20 {
		ip := "203.0.113." + strconv.Itoa(i+1)
		h := http.Header{"X-Forwarded-For": {ip, "198.51.100.9"}} // two lines: the last is the proxy's
		if i%2 == 0 {
			h = http.Header{"X-Forwarded-For": {ip + ",rubbish,, 198.51.100.9"}, "X-Real-Ip": {ip}, "Forwarded": {"for=" + ip}, "X-Client-Ip": {ip}}
		}
		statuses[send(t, proxied, "/api/v1/status", h).Status]++
	}
	require.Equal(t, map[int]int{200: 10, 429: 10}, statuses)
}

// In shadow mode nobody is refused: not even a right signature from an address that has used up what it may send unverified.
func TestShadowModeRefusesNoRightSignature(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := gatewaytest.Start(t, w.options("limits {\n\t\t\tshadow\n\t\t}", ""))
	for i := range 130 {
		require.Equal(t, http.StatusUnauthorized, send(t, g, "/api/v1/me", rubbish("pk_live_fake_number_"+strconv.Itoa(i))).Status)
	}
	for range 70 {
		require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status)
	}
}

// This is the one slow test, as a window takes its time: for 75 s one business sends steadily to three gateways on one
// Redis, also while it is refused. In no window of 60 s do more than 60 pass; and as refusals do not extend the refusal,
// the next ones pass as soon as the first have left the window, when Retry-After said.
func TestNoWindowOfAMinuteHoldsMoreThanSixtyAndRefusalsExtendNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	gateways := []*gatewaytest.Gateway{w.gateway(t), w.gateway(t), w.gateway(t)}
	// Each was decided upon at some moment between when it was sent and when it was answered, however long that took.
	type decided struct {
		sent, answered time.Time
		after          time.Duration // Retry-After, of a refusal
	}
	var (
		mu                sync.Mutex
		admitted, refused []decided
		wg                sync.WaitGroup
	)
	const duration = 75 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	t.Cleanup(client.CloseIdleConnections)
	caller := w.acme
	caller.Client = client
	for _, g := range gateways {
		wg.Go(func() {
			tick := time.NewTicker(250 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				d := decided{sent: time.Now()}
				a, err := caller.Try(context.WithoutCancel(ctx), "GET", g.URL, "/api/v1/me", nil)
				d.answered = time.Now()
				mu.Lock()
				switch {
				case err != nil:
					t.Errorf("a request failed: %v", err)
				case a.Status == http.StatusOK:
					admitted = append(admitted, d)
				case a.Status == http.StatusTooManyRequests:
					seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
					if err != nil {
						t.Errorf("Retry-After: %v", err)
					}
					d.after = time.Duration(seconds) * time.Second
					refused = append(refused, d)
				default:
					t.Errorf("another answer: %d %s", a.Status, a.Body)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	slices.SortFunc(admitted, func(a, b decided) int { return a.sent.Compare(b.sent) })
	// a request that has no answer of Redis's in time, on a busy machine, is its gateway's
	most := keyLimit + decidedAlone(t, gateways)
	for i := most; i < len(admitted); i++ {
		// at the least, the window of these 61 is
		require.GreaterOrEqual(t, admitted[i].answered.Sub(admitted[i-most].sent), limitWindow, "%d have passed within a minute", most+1)
	}
	require.Greater(t, len(admitted), 65, "refused requests have extended the refusal")
	require.Greater(t, len(refused), 100)
	// Nobody is refused but for 60 that may have been within the window: the next is admitted when the first has left it.
	const clocks = 100 * time.Millisecond // by which Redis's clock and this one may differ over a minute
	for _, r := range refused {
		within := 0
		for _, a := range admitted {
			if a.sent.Before(r.answered) && !a.answered.Add(limitWindow+clocks).Before(r.sent) {
				within++
			}
		}
		require.GreaterOrEqual(t, within, keyLimit, "refused %s after the first was admitted, though there was room", r.sent.Sub(admitted[0].answered))
	}
	// All first refusals spoke of that moment, in whole seconds.
	first := admitted[0]
	for _, a := range admitted {
		if a.answered.Before(first.answered) {
			first.answered = a.answered
		}
	}
	spoke := 0
	for _, r := range refused {
		if !r.answered.Before(first.sent.Add(limitWindow)) {
			continue // the first may have left the window
		}
		spoke++
		require.False(t, r.answered.Add(r.after+clocks).Before(first.sent.Add(limitWindow)), "Retry-After told the truth: %s", r.after)
		require.False(t, r.sent.Add(r.after).After(first.answered.Add(limitWindow+time.Second+clocks)), "Retry-After told the truth: %s", r.after)
	}
	require.Greater(t, spoke, 20)
	t.Logf("%d admitted, %d refused in %s; the 61st %s after the first had left the window", len(admitted), len(refused), duration,
		admitted[keyLimit].answered.Sub(first.sent)-limitWindow)
}

// residentMiB is how much memory a process has in use.
func residentMiB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, m)
	kb, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	return kb >> 10
}

// redisBytes is how much memory the data in Redis takes.
func redisBytes(t *testing.T, c *redis.Client) int {
	t.Helper()
	info, err := c.Info(t.Context(), "memory").Result()
	require.NoError(t, err)
	m := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(info)
	require.NotNil(t, m)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}

// Ten thousand addresses at once, each without a key, with a fake key and beyond its limit: every one is counted for itself, and
// what the gateway and Redis hold for them is bounded and goes away by itself.
func TestTenThousandAddressesAtOnceTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.behindProxy(t, "", "")
	client := w.redis.Client(t)
	require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status)
	gatewayBefore, redisBefore := residentMiB(t, g.Pid()), redisBytes(t, client)

	const addresses, workers = 10_000, 64
	var (
		next   atomic.Int64
		counts [600]atomic.Int64
		wg     sync.WaitGroup
	)
	tr := &http.Transport{MaxIdleConnsPerHost: workers}
	t.Cleanup(tr.CloseIdleConnections)
	caller := gatewaytest.Caller{Client: &http.Client{Timeout: patience, Transport: tr}}
	for range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= addresses {
					return
				}
				address := fmt.Sprintf("10.0.%d.%d", i>>8, i&0xff)
				if i%2 == 0 {
					address = fmt.Sprintf("2001:db8:%x::1", i)
				}
				for _, h := range []http.Header{nil, rubbish("pk_live_fake_number_" + strconv.Itoa(i)), rubbish(w.acme.PublicKey)} {
					a, err := caller.Send(t.Context(), "GET", g.URL, "/api/v1/me", fromAddress(address, h), nil)
					if err != nil {
						t.Errorf("a request failed: %v", err)
						return
					}
					counts[a.Status].Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	require.EqualValues(t, 3*addresses, counts[http.StatusUnauthorized].Load(), "none has had another's limit")
	gatewayAfter, redisAfter := residentMiB(t, g.Pid()), redisBytes(t, client)
	keys, err := client.DBSize(t.Context()).Result()
	require.NoError(t, err)
	perAddress := (redisAfter - redisBefore) / addresses
	t.Logf("%d addresses: the gateway from %d to %d MiB, Redis from %d to %d KiB, %d keys, %d bytes for each address",
		addresses, gatewayBefore, gatewayAfter, redisBefore>>10, redisAfter>>10, keys, perAddress)
	require.Less(t, gatewayAfter-gatewayBefore, 100)
	require.Less(t, perAddress, 2048)
	require.LessOrEqual(t, keys, int64(4*addresses+10))
	// all of it ends by itself
	iter := client.Scan(t.Context(), 0, "*", 1000).Iterator()
	seen := 0
	for iter.Next(t.Context()) && seen < 2000 {
		if strings.HasSuffix(iter.Val(), "}memory") {
			continue // the one marker by which gateways notice that Redis has come back empty
		}
		ttl, err := client.PTTL(t.Context(), iter.Val()).Result()
		require.NoError(t, err)
		require.NotEqual(t, time.Duration(-1), ttl, "%s never ends", iter.Val())
		require.LessOrEqual(t, ttl, 3*time.Minute, iter.Val())
		seen++
	}
	require.NoError(t, iter.Err())
	// The business has paid for its own requests and no others: for this one, and for the first, if that was within a minute.
	a := w.acme.Get(t, g.URL, "/api/v1/me")
	require.Equal(t, http.StatusOK, a.Status)
	remaining, err := strconv.Atoi(a.Header.Get("X-RateLimit-Remaining"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, remaining, keyLimit-2)
}
