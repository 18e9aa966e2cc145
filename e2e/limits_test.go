package e2e_test

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// rubbish are headers that name a key and cannot sign for it.
func rubbish(key string) http.Header {
	return http.Header{
		authsigner.HeaderPublicKey: {key},
		authsigner.HeaderTimestamp: {strconv.FormatInt(time.Now().Unix(), 10)},
		authsigner.HeaderSignature: {strings.Repeat("ab", 32)},
	}
}

func send(t *testing.T, g *gatewaytest.Gateway, target string, h http.Header) gatewaytest.Answer {
	t.Helper()
	a, err := anonymous().Send(t.Context(), "GET", g.URL, target, h, nil)
	require.NoError(t, err)
	return a
}

func TestSixtySignedRequestsPassAndTheSixtyFirstIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.gateway(t)
	targets := []string{"/api/v1/me", "/api/v1/events?count=1", "/api/v1/status"}
	for i := range 60 {
		a := w.acme.Get(t, g.URL, targets[i%len(targets)])
		require.Equal(t, http.StatusOK, a.Status, "request %d: %s", i+1, a.Body)
		require.Equal(t, "60", a.Header.Get("X-RateLimit-Limit"))
		require.Equal(t, strconv.Itoa(59-i), a.Header.Get("X-RateLimit-Remaining"))
	}
	for range 3 { // refused requests neither count nor extend the refusal
		a := w.acme.Get(t, g.URL, "/api/v1/me")
		p := requireProblem(t, a, http.StatusTooManyRequests, "RATE_LIMITED")
		after, err := strconv.Atoi(a.Header.Get("Retry-After"))
		require.NoError(t, err)
		require.Equal(t, after, p.RetryAfter)
		require.Positive(t, after)
		require.LessOrEqual(t, after, 60)
		require.NotEmpty(t, p.Message, "existing clients read it")
		require.Equal(t, "0", a.Header.Get("X-RateLimit-Remaining"))
		require.Contains(t, a.Header.Get("RateLimit"), "r=0")
	}
	// the other business has a budget of its own
	require.Equal(t, http.StatusOK, w.other.Get(t, g.URL, "/api/v1/me").Status)
}

func TestTenRequestsWithoutAKeyPassAndTheEleventhIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.gateway(t)
	for i := range 10 {
		a := anonymous().Get(t, g.URL, "/api/v1/status")
		require.Equal(t, http.StatusOK, a.Status)
		require.Equal(t, strconv.Itoa(9-i), a.Header.Get("X-RateLimit-Remaining"))
	}
	requireProblem(t, anonymous().Get(t, g.URL, "/api/v1/status"), http.StatusTooManyRequests, "RATE_LIMITED")
	requireProblem(t, anonymous().Get(t, g.URL, "/api/v1/nothing"), http.StatusTooManyRequests, "RATE_LIMITED")
	// a signed request from the same address is paid for by its key
	require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status)
}

func TestThreeGatewaysOnOneRedisAdmitWhatOneWould(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	gateways := []*gatewaytest.Gateway{w.gateway(t), w.gateway(t), w.gateway(t)}
	passed := 0
	for i := range 90 {
		switch a := w.acme.Get(t, gateways[i%3].URL, "/api/v1/me"); a.Status {
		case http.StatusOK:
			passed++
		case http.StatusTooManyRequests:
		default:
			require.Fail(t, "another answer", "%d %s", a.Status, a.Body)
		}
	}
	requireFleetsLimit(t, gateways, passed)
}

// requireFleetsLimit holds gateways on one Redis to having admitted as many as one would.
func requireFleetsLimit(t *testing.T, gateways []*gatewaytest.Gateway, passed int) {
	t.Helper()
	// a request that has no answer of Redis's in time, on a busy machine, is its gateway's
	if alone := decidedAlone(t, gateways); alone > 0 {
		require.LessOrEqual(t, passed, keyLimit+alone)
		return
	}
	require.Equal(t, keyLimit, passed)
}

func TestTwoHundredAtATimeOverThreeGatewaysAdmitSixty(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	gateways := []*gatewaytest.Gateway{w.gateway(t), w.gateway(t), w.gateway(t)}
	statuses := make([]int, 200)
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() {
			a, err := w.acme.Try(context.WithoutCancel(t.Context()), "GET", gateways[i%3].URL, "/api/v1/me", nil)
			if err == nil {
				statuses[i] = a.Status
			}
		})
	}
	wg.Wait()
	slices.Sort(statuses)
	counts := map[int]int{}
	for _, s := range statuses {
		counts[s]++
	}
	require.Equal(t, len(statuses), counts[http.StatusOK]+counts[http.StatusTooManyRequests], "%v", counts)
	requireFleetsLimit(t, gateways, counts[http.StatusOK])
}

func TestAStrangerWithRubbishSignaturesCostsTheBusinessNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.gateway(t)
	statuses := map[int]int{}
	for range 100 { // from the same address as the business, even
		statuses[send(t, g, "/api/v1/me", rubbish(w.acme.PublicKey)).Status]++
	}
	require.Equal(t, map[int]int{401: 60, 429: 40}, statuses)
	for i := range 60 {
		a := w.acme.Get(t, g.URL, "/api/v1/me")
		require.Equal(t, http.StatusOK, a.Status, "request %d", i+1)
	}
}

func TestFakeKeysDoNotEscapeTheAddressLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.gateway(t)
	statuses := map[int]int{}
	for i := range 200 {
		statuses[send(t, g, "/api/v1/status", rubbish("pk_live_fake_number_"+strconv.Itoa(i))).Status]++
	}
	require.Equal(t, map[int]int{200: 120, 429: 80}, statuses)
}

func TestForwardedForFromAnUntrustedPeerNamesNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.gateway(t)
	statuses := map[int]int{}
	for i := range 20 {
		ip := "203.0.113." + strconv.Itoa(i+1)
		h := http.Header{
			"X-Forwarded-For": {ip}, "X-Real-Ip": {ip}, "Forwarded": {"for=" + ip}, "Cf-Connecting-Ip": {ip}, "True-Client-Ip": {ip},
		}
		statuses[send(t, g, "/api/v1/status", h).Status]++
	}
	require.Equal(t, map[int]int{200: 10, 429: 10}, statuses)
}

func TestATrustedProxyNamesTheCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := proxied(t, w.options("", ""))
	statuses := map[int]int{}
	for i := range 24 {
		// what a caller wrote itself stands left of what the proxy adds
		h := http.Header{"X-Forwarded-For": {"198.51.100." + strconv.Itoa(i) + ", 203.0.113." + strconv.Itoa(i%2+1)}}
		statuses[send(t, g, "/api/v1/status", h).Status]++
	}
	require.Equal(t, map[int]int{200: 20, 429: 4}, statuses)
	// one /64 is one caller
	statuses = map[int]int{}
	for i := range 12 {
		h := http.Header{"X-Forwarded-For": {"2001:db8:1:2::" + strconv.Itoa(i+1)}}
		statuses[send(t, g, "/api/v1/status", h).Status]++
	}
	require.Equal(t, map[int]int{200: 10, 429: 2}, statuses)
}

func TestShadowModeOnlyReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := gatewaytest.Start(t, w.options("limits {\n\t\t\tshadow\n\t\t}", ""))
	for range 15 {
		require.Equal(t, http.StatusOK, anonymous().Get(t, g.URL, "/api/v1/status").Status)
	}
	requireLogged(t, g, "not enforced in shadow mode")
}

func TestARequestWaitsForRedisAsLongAsTheTimeoutSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.gateway(t) // it waits for 5 s
	requireReady(t, g)
	require.NoError(t, w.redis.Client(t).Do(t.Context(), "CLIENT", "PAUSE", "2000").Err())
	require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status)
	require.Zero(t, decidedAlone(t, []*gatewaytest.Gateway{g}))
}

func TestLimitsHoldWhileRedisIsAwayAndAreSharedAgainAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.gateway(t)
	for range 20 {
		require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status)
	}
	require.NoError(t, w.redis.Kill())
	passed := 0
	for range 60 {
		switch a := w.acme.Get(t, g.URL, "/api/v1/me"); a.Status {
		case http.StatusOK:
			passed++
		case http.StatusTooManyRequests:
		default:
			require.Fail(t, "another answer", "%d %s", a.Status, a.Body)
		}
	}
	require.Equal(t, 40, passed, "what it admitted before the outage still counts")
	require.NoError(t, w.redis.Restart())
	require.Eventually(t, func() bool {
		return strings.Contains(g.Output(), "Redis is available again")
	}, patience, 50*time.Millisecond)
	require.Equal(t, http.StatusTooManyRequests, w.acme.Get(t, g.URL, "/api/v1/me").Status)
	require.Equal(t, http.StatusOK, w.other.Get(t, g.URL, "/api/v1/me").Status)
}
