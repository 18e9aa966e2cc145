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
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// TestFleetWithOneGatewayCutOffAllowsAtMostTwiceTheLimit cuts one of three gateways off from their Redis, under load.
//
// The two that reach Redis go on sharing the limit, against which everything counts that Redis was told of, also what the third had
// admitted before. The third enforces the limit by itself. So a caller of all three is served, in any window, at most twice the
// limit, less what the third had admitted through Redis. In general, with n gateways cut off: n + 1 times the limit. When the third
// is back it tells Redis first, and the limit is shared again.
func TestFleetWithOneGatewayCutOffAllowsAtMostTwiceTheLimit(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	w := newWorld(t, load.Data())
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
	for _, g := range gateways {
		requireSoon(t, http.StatusOK, greedy[1].Caller, g) // they have read the file
	}

	l := load.Start(t, load.Options{
		Gateways: gateways[:], Callers: steady, Rate: c.rate, Hide: hide,
		Allow: successOrLimited,
	})
	first := time.Now()
	spend(t, gateways[cut], key.Caller, through)
	others := decidedAlone(t, gateways[:cut]...)
	aloneBefore := decidedAlone(t, gateways[cut:]...)
	l.Run(c.before)

	wires[cut].Cut()
	l.Phase("outage")
	require.Eventually(t, func() bool { return gateways[cut].Metric(t, "gatehouse_limits_shared") == 0 }, patience, 25*time.Millisecond)
	l.Also("greedy", greedy[:1], 150, "/api/v1/me")
	// each gateway has refused the key by now, and so has used up all that it may admit
	require.Eventually(t, func() bool {
		refused := map[int]bool{}
		for _, s := range l.Report().Some(func(s *load.Sample) bool { return s.Key == key.PublicKey && s.Status == http.StatusTooManyRequests }) {
			refused[s.Gateway] = true
		}
		return len(refused) == len(gateways)
	}, 3*patience, 50*time.Millisecond)
	l.Run(c.away)
	servedBy := map[int]int{}
	for _, s := range l.Report().Some(func(s *load.Sample) bool { return s.Key == key.PublicKey && s.Status == http.StatusOK }) {
		servedBy[s.Gateway]++
	}
	// a request that has no answer of Redis's in time, on a busy machine, is its gateway's
	others = decidedAlone(t, gateways[:cut]...) - others
	// on a machine too slow for that, some have left the window meanwhile, and others have passed instead
	withinWindow := time.Since(first) < load.Window
	if aloneBefore == 0 && withinWindow {
		require.Equal(t, load.KeyLimit-through, servedBy[cut], "the one that is cut off counts what it has admitted before")
		require.GreaterOrEqual(t, servedBy[0]+servedBy[1], load.KeyLimit-through)
		require.LessOrEqual(t, servedBy[0]+servedBy[1], load.KeyLimit-through+others, "the others count it too")
	}

	wires[cut].Mend()
	l.Phase("back")
	mended := time.Now()
	requireGrows(t, gateways[cut], 0, "gatehouse_limits_shared")
	took := time.Since(mended)
	alone := decidedAlone(t, gateways[:]...)
	shared := time.Now()
	l.Phase("shared")
	l.Also("greedy after", greedy[1:], 150)
	fleet := limitsIn(t, w.redis.Options())
	group, bucket := ratelimit.ForKey(key.PublicKey, ratelimit.KeyLimit(0))
	var v ratelimit.Result
	require.Eventually(t, func() bool {
		var err error
		v, err = fleet.Peek(t.Context(), group, bucket)
		return err == nil && v.By != ratelimit.ByLocal // it has answered
	}, patience, time.Millisecond)
	if time.Since(first) < load.Window {
		require.False(t, v.Allowed, "Redis was told before it was asked again")
	}
	l.Run(c.back)
	if c.long {
		// until what was admitted has left the window, and the window is full again
		l.Run(load.Window + c.back)
	}
	report := l.Stop()
	alone = decidedAlone(t, gateways[:]...) - alone

	require.Zero(t, report.OverLimit(), "%s", report)
	worst := through + report.Admitted(load.ByFleet, func(s *load.Sample) bool { return s.Key == key.PublicKey })
	if withinWindow {
		require.LessOrEqual(t, worst, 2*load.KeyLimit-through+others+alone, "%s", report)
	}
	after := report.Admitted(load.ByFleet, func(s *load.Sample) bool { return s.Sent.After(shared) })
	require.LessOrEqual(t, after, load.KeyLimit+alone, "%s", report)
	report.Figure(t,
		fmt.Sprintf("allowed_by_the_cut_off=%d+%d", through, servedBy[cut]),
		fmt.Sprintf("allowed_by_the_others=%d", servedBy[0]+servedBy[1]),
		fmt.Sprintf("fleet_allowed_at_most=%d", worst),
		fmt.Sprintf("stated=%d", 2*load.KeyLimit-through),
		fmt.Sprintf("shared_again_after=%s", took.Round(time.Millisecond)),
		fmt.Sprintf("fleet_allowed_after=%d", after),
		fmt.Sprintf("decided_locally=%d,%d", others, alone))
}
