package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// One of three gateways is cut off from Redis under load. The other two share the limit, including what the third had allowed through
// Redis before; the third enforces the limit locally. So in any window, at most twice the limit is allowed, less what the third had
// allowed through Redis. With n gateways cut off, it is n + 1 times the limit. Once reconnected, the third resyncs before its next
// request to Redis.
func TestFleetWithOneGatewayCutOffAllowsAtMostTwiceTheLimit(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	w := newEnvironment(t, load.Data())
	const cut, through = 2, 10 // the gateway that is cut off, and the requests it allows through Redis before
	var (
		gateways [3]*gatewaytest.Gateway
		links    [3]*netfault.Link
		hide     = []string{w.redis.Addr, strings.TrimPrefix(w.dataURL, "http://")}
	)
	for i := range gateways {
		links[i] = netfault.NewLink(t, w.redis.Addr)
		hide = append(hide, links[i].Addr)
		o := w.options("cache {\n\t\t\t"+longVaultTimeout+"\n\t\t}", "") // it includes waiting for Redis
		o.Global = strings.Replace(o.Global, w.redisLine(), c.redis("redis://"+links[i].Addr), 1)
		gateways[i] = gatewaytest.Start(t, o)
		requireReady(t, gateways[i])
	}
	steady, greedy, other := w.addKeys(t, 2*c.rate, 5), w.addKeys(t, windowAttempts, 1), w.addKeys(t, 1, 1)
	for _, g := range gateways {
		waitForStatus(t, http.StatusOK, other[0].Caller, g) // the gateway has read the file
	}

	l := load.Start(t, load.Options{
		Gateways: gateways[:], Callers: steady, Rate: c.rate, Hide: hide,
		Allow: successOrLimited,
	})
	fleet := limitsIn(t, w.redis.Options())
	var (
		key       load.Caller
		servedBy  map[int]int
		took      time.Duration
		shared    time.Time
		endGreedy = func() {}
		// on a busy machine, requests without a timely reply of Redis are decided locally
		localBefore, localOthers, local int
	)
	withinWindow(t, func(attempt int) func() {
		endGreedy()
		l.Phase("before")
		localBefore = decidedLocally(t, gateways[cut:]...)
		key = greedy[attempt]
		requireServed(t, gateways[cut], key.Caller, through)
		localOthers = decidedLocally(t, gateways[:cut]...)
		localBefore = decidedLocally(t, gateways[cut:]...) - localBefore
		l.Run(c.before)

		links[cut].Cut()
		l.Phase("outage")
		requireCheck(t, gateways[cut], "limits", false)
		endGreedy = l.Also("greedy", greedy[attempt:attempt+1], 150, "/api/v1/me")
		// each gateway has denied the key, so has reached its limit
		require.Eventually(t, func() bool {
			denied := map[int]bool{}
			for _, s := range l.Report().Some(func(s *load.Sample) bool { return s.Key == key.PublicKey && s.Status == http.StatusTooManyRequests }) {
				denied[s.Gateway] = true
			}
			return len(denied) == len(gateways)
		}, 3*patience, 50*time.Millisecond)
		l.Run(c.outage)
		servedBy = map[int]int{}
		for _, s := range l.Report().Some(func(s *load.Sample) bool { return s.Key == key.PublicKey && s.Status == http.StatusOK }) {
			servedBy[s.Gateway]++
		}
		localOthers = decidedLocally(t, gateways[:cut]...) - localOthers

		links[cut].Restore()
		l.Phase("back")
		restored := time.Now()
		requireCheck(t, gateways[cut], "limits", true)
		took = time.Since(restored)
		local = decidedLocally(t, gateways[:]...)
		shared = time.Now()
		l.Phase("shared")
		group, counters := ratelimit.ForKey(key.PublicKey, ratelimit.KeyLimit(0))
		var v ratelimit.Result
		require.Eventually(t, func() bool {
			var err error
			v, err = fleet.Peek(t.Context(), group, counters...)
			return err == nil && v.By != ratelimit.ByLocal // from Redis
		}, patience, time.Millisecond)
		return func() {
			require.False(t, v.Allowed, "the gateway asks Redis before it has resynced")
			if localBefore > 0 {
				return // Redis did not know all of the first requests
			}
			require.Equal(t, load.KeyLimit-through, servedBy[cut], "the gateway that is cut off counts what it allowed before")
			require.GreaterOrEqual(t, servedBy[0]+servedBy[1], load.KeyLimit-through)
			require.LessOrEqual(t, servedBy[0]+servedBy[1], load.KeyLimit-through+localOthers, "the others count it too")
		}
	})

	l.Also("greedy after", other, 150)
	l.Run(c.after)
	if c.long {
		// until the window is full again
		l.Run(load.Window + c.after)
	}
	report := l.Stop()
	local = decidedLocally(t, gateways[:]...) - local

	require.Zero(t, report.OverLimit(), "%s", report)
	worst := through + report.Allowed(load.ByFleet, func(s *load.Sample) bool { return s.Key == key.PublicKey })
	require.LessOrEqual(t, worst, 2*load.KeyLimit-through+localBefore+localOthers+local, "%s", report)
	after := report.Allowed(load.ByFleet, func(s *load.Sample) bool { return s.Sent.After(shared) })
	require.LessOrEqual(t, after, load.KeyLimit+local, "%s", report)
	report.Figure(t,
		fmt.Sprintf("allowed_by_cut_off=%d+%d", through, servedBy[cut]),
		fmt.Sprintf("allowed_by_the_others=%d", servedBy[0]+servedBy[1]),
		fmt.Sprintf("fleet_allowed_at_most=%d", worst),
		fmt.Sprintf("stated=%d", 2*load.KeyLimit-through),
		fmt.Sprintf("shared_again_after=%s", took.Round(time.Millisecond)),
		fmt.Sprintf("fleet_allowed_after=%d", after),
		fmt.Sprintf("decided_locally=%d,%d", localOthers, local))
}
