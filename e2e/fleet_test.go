package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/linktest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// TestFleetWithOneGatewayCutOffAdmitsTwiceTheLimitAtMost cuts one of three gateways off from their Redis, under load.
//
// The two that reach Redis go on sharing the limit, in which all counts that Redis was told of: also what the third had
// admitted before. The third holds the limit by itself, in which all counts that it has admitted, then and before. So a
// caller who goes to all three is served, in any window, no more than the limit twice, less what the third had admitted
// through Redis in that window, as that counts on both sides. In general: for n gateways cut off, n + 1 times the limit.
// When the third is back it tells Redis first, and from then on the limit is the fleet's again: a caller who has used up
// more than the limit is refused by all until enough of it has left the window.
func TestFleetWithOneGatewayCutOffAdmitsTwiceTheLimitAtMost(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	w := newLoadWorld(t)
	const cut, through = 2, 10 // the gateway that is cut off, and what it has admitted through Redis before
	var (
		gateways [3]*gatewaytest.Gateway
		wires    [3]*linktest.Link
		hide     = []string{w.redis.Addr, strings.TrimPrefix(w.dataURL, "http://")}
	)
	for i := range gateways {
		wires[i] = linktest.Start(t, w.redis.Addr)
		hide = append(hide, wires[i].Addr)
		o := w.options("", "")
		o.Global = strings.Replace(o.Global, w.redisLine(), c.redis("redis://"+wires[i].Addr), 1)
		gateways[i] = gatewaytest.Start(t, o)
		requireReady(t, gateways[i])
	}
	steady, greedy := w.addKeys(t, 2*c.rate, 5), w.addKeys(t, 2, 2)
	key := greedy[0]
	requireKeysRead(t, gateways[:], greedy[1])

	l := startLoad(t, loadOptions{
		Gateways: gateways[:], Callers: steady, Rate: c.rate, Hide: hide,
		May: func(s *sample) string {
			if s.Status == http.StatusOK || s.Stream != "" && s.Status == http.StatusTooManyRequests {
				return ""
			}
			return "there are successes, and refusals for those over the limit"
		},
	})
	first := time.Now()
	for range through {
		require.Equal(t, http.StatusOK, key.Get(t, gateways[cut].URL, "/api/v1/me").Status)
	}
	others := decidedAlone(t, gateways[:cut])
	aloneBefore := decidedAlone(t, gateways[cut:])
	l.during(c.before)

	wires[cut].Cut()
	l.phase("outage")
	require.Eventually(t, func() bool { return metric(t, gateways[cut], "gatehouse_limits_shared") == 0 }, patience, 25*time.Millisecond)
	l.also("greedy", greedy[:1], 150, "/api/v1/me")
	// each gateway has refused the key by now, and so has used up all that it may admit
	require.Eventually(t, func() bool {
		refused := map[int]bool{}
		for _, s := range l.report().some(func(s *sample) bool { return s.Key == key.PublicKey && s.Status == http.StatusTooManyRequests }) {
			refused[s.Gateway] = true
		}
		return len(refused) == len(gateways)
	}, 3*patience, 50*time.Millisecond)
	l.during(c.away)
	servedBy := map[int]int{}
	for _, s := range l.report().some(func(s *sample) bool { return s.Key == key.PublicKey && s.Status == http.StatusOK }) {
		servedBy[s.Gateway]++
	}
	// a request that has no answer of Redis's in time, on a busy machine, is its gateway's
	others = decidedAlone(t, gateways[:cut]) - others
	// on a machine too slow for that, some have left the window meanwhile, and others have passed instead
	withinWindow := time.Since(first) < limitWindow
	if aloneBefore == 0 && withinWindow {
		require.Equal(t, keyLimit-through, servedBy[cut], "the one that is cut off counts what it has admitted before")
		require.GreaterOrEqual(t, servedBy[0]+servedBy[1], keyLimit-through)
		require.LessOrEqual(t, servedBy[0]+servedBy[1], keyLimit-through+others, "the others count it too")
	}

	wires[cut].Mend()
	l.phase("back")
	mended := time.Now()
	require.Eventually(t, func() bool { return metric(t, gateways[cut], "gatehouse_limits_shared") == 1 }, patience, 25*time.Millisecond)
	took := time.Since(mended)
	alone := decidedAlone(t, gateways[:])
	shared := time.Now()
	l.phase("shared")
	l.also("greedy after", greedy[1:], 150)
	fleet := limitsIn(t, w.redis.Options())
	group, bucket := ratelimit.ForKey(key.PublicKey, ratelimit.KeyLimit(0))
	var v ratelimit.Result
	require.Eventually(t, func() bool {
		var err error
		v, err = fleet.Peek(t.Context(), group, bucket)
		return err == nil && v.By != ratelimit.ByLocal // it has answered
	}, patience, time.Millisecond)
	if time.Since(first) < limitWindow {
		require.False(t, v.Allowed, "Redis was told before it was asked again")
	}
	l.during(c.back)
	if c.long {
		// until what was admitted has left the window, and the window is full again
		l.during(limitWindow + c.back)
	}
	report := l.stop()
	alone = decidedAlone(t, gateways[:]) - alone

	require.Zero(t, report.overLimit(), "%s", report)
	worst := through + report.admitted(byFleet, func(s *sample) bool { return s.Key == key.PublicKey })
	if withinWindow {
		require.LessOrEqual(t, worst, 2*keyLimit-through+others+alone, "%s", report)
	}
	after := report.admitted(byFleet, func(s *sample) bool { return s.Sent.After(shared) })
	require.LessOrEqual(t, after, keyLimit+alone, "%s", report)
	report.figure(t,
		fmt.Sprintf("allowed_by_the_cut_off=%d+%d", through, servedBy[cut]),
		fmt.Sprintf("allowed_by_the_others=%d", servedBy[0]+servedBy[1]),
		fmt.Sprintf("fleet_allowed_at_most=%d", worst),
		fmt.Sprintf("stated=%d", 2*keyLimit-through),
		fmt.Sprintf("shared_again_after=%s", took.Round(time.Millisecond)),
		fmt.Sprintf("fleet_allowed_after=%d", after),
		fmt.Sprintf("decided_locally=%d,%d", others, alone))
}
