package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/linktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// A brokenRedis is a Redis that a test takes away under load and gives back. Package ratelimit's tests hold the limiter
// to what it does then; here it is whole gateways, and callers who must not notice.
type brokenRedis struct {
	// option is the block gateway's option redis.
	option string
	// addrs are the addresses that no caller may learn.
	addrs []string
	// client is how the test asks Redis itself.
	client *redis.UniversalOptions
	// away breaks Redis, back mends it and returns when it is there again.
	away, back func()
	// unnoticed says that no gateway need give Redis up.
	unnoticed bool
}

// holdTheLimits has two gateways under load while Redis is away and after it. There is nothing but successes for those
// who keep to their limits. Those who do not are held to them: by each gateway alone while Redis is away, and by both
// together before and after. It returns what was found, to be added to.
func holdTheLimits(t *testing.T, c chaos, w *world, r *brokenRedis) {
	t.Helper()
	gateways := make([]*gatewaytest.Gateway, 2)
	for i := range gateways {
		o := w.options("", "")
		o.Global = strings.Replace(o.Global, w.redisLine(), r.option, 1)
		gateways[i] = gatewaytest.Start(t, o)
		requireReady(t, gateways[i])
	}
	greed := 100
	if c.long {
		greed = 40
	}
	steady, greedy := w.addKeys(t, 2*c.rate, 5), w.addKeys(t, 3, 2)
	requireKeysRead(t, gateways, greedy[2])

	l := startLoad(t, loadOptions{
		Gateways: gateways, Callers: steady, Rate: c.rate, Hide: append(r.addrs, strings.TrimPrefix(w.dataURL, "http://")),
		May: func(s *sample) string {
			switch {
			case s.Status == http.StatusOK, s.Stream != "" && s.Status == http.StatusTooManyRequests:
				return ""
			}
			return "without Redis, too, there are successes, and refusals for those over the limit"
		},
	})
	l.also("greedy before", greedy[:1], greed)
	l.during(c.before)

	// An outage that ends by itself may be over on a busy machine before anybody looks: what counts is that it was noticed.
	// A gateway may also have been without Redis before, on a machine too busy for its timeout, and stay so.
	outages := func(g *gatewaytest.Gateway) float64 {
		return metric(t, g, "gatehouse_limiter_events_total", `event="unavailable"`)
	}
	before := [2]float64{outages(gateways[0]), outages(gateways[1])}
	r.away()
	l.phase("outage")
	began := time.Now()
	l.also("greedy outage", greedy[1:2], greed)
	if !r.unnoticed {
		for i, g := range gateways {
			require.Eventually(t, func() bool {
				return outages(g) > before[i] || metric(t, g, "gatehouse_limits_shared") == 0
			}, patience, 25*time.Millisecond)
		}
	}
	noticed := time.Since(began)
	l.during(c.away)

	r.back()
	l.phase("back")
	mended := time.Now()
	for _, g := range gateways {
		require.Eventually(t, func() bool { return metric(t, g, "gatehouse_limits_shared") == 1 }, patience, 25*time.Millisecond)
	}
	took := time.Since(mended)
	// What was admitted without Redis, or has been lost with it, Redis is told: who has used up a budget has none left.
	fleet := limitsIn(t, r.client)
	told := func(key string) (usedUp bool) {
		t.Helper()
		served := l.report().some(func(s *sample) bool { return s.Key == key && s.Status == http.StatusOK })
		if len(served) < keyLimit {
			return false // a machine too slow to use it up
		}
		group, bucket := ratelimit.ForKey(key, ratelimit.KeyLimit(0))
		require.Eventually(t, func() bool {
			v, err := fleet.Peek(t.Context(), group, bucket)
			return err == nil && v.By != ratelimit.ByLocal && !v.Allowed
		}, patience, 50*time.Millisecond, "Redis does not know that a budget is used up")
		return true
	}
	if r.unnoticed {
		// Who has not given Redis up tells it when it next looks around, and not before it asks again.
		told(greedy[1].PublicKey)
	}
	alone := decidedAlone(t, gateways)
	l.phase("shared")
	shared := time.Now()
	l.also("greedy after", greedy[2:], greed)
	usedUp := 0
	for _, key := range []string{greedy[0].PublicKey, greedy[1].PublicKey} {
		if told(key) {
			usedUp++
		}
	}
	l.during(c.back)
	report := l.stop()
	// A request that has no answer of Redis's in time, on a busy machine, is its gateway's.
	alone = decidedAlone(t, gateways) - alone

	require.Zero(t, report.overLimit(), "a gateway by itself has admitted more than a limit\n%s", report)
	after := report.admitted(byFleet, func(s *sample) bool { return s.Stream == "greedy after" })
	require.LessOrEqual(t, after, keyLimit+alone, "the limit is not shared again\n%s", report)
	whileAway := report.admitted(byFleet, func(s *sample) bool { return s.Stream == "greedy outage" && s.Sent.Before(shared) })
	late := len(report.some(func(s *sample) bool { // before the first of them can have left the window
		return s.Stream == "greedy outage" && s.Status == http.StatusOK && s.Sent.After(shared) && s.Done.Before(began.Add(limitWindow))
	}))
	if whileAway >= keyLimit {
		require.LessOrEqual(t, late, alone, "what was admitted alone does not count\n%s", report)
	}
	require.Positive(t, report.phase("outage").By["200"], "%s", report)
	report.figure(t,
		fmt.Sprintf("noticed_after=%s", noticed.Round(time.Millisecond)),
		fmt.Sprintf("shared_again_after=%s", took.Round(time.Millisecond)),
		fmt.Sprintf("fleet_allowed_before=%d", report.admitted(byFleet, func(s *sample) bool { return s.Stream == "greedy before" })),
		fmt.Sprintf("fleet_allowed_outage=%d", whileAway),
		fmt.Sprintf("fleet_allowed_after=%d", after),
		fmt.Sprintf("decided_locally_after=%d", alone),
		fmt.Sprintf("used_up=%d", usedUp))
}

// requireKeysRead waits until gateways know of a key that was put into the credential file.
func requireKeysRead(t *testing.T, gateways []*gatewaytest.Gateway, c loadCaller) {
	t.Helper()
	for _, g := range gateways {
		requireSoon(t, http.StatusOK, c.Caller, g)
	}
}

// decidedAlone is how many requests gateways have admitted without an answer of Redis's.
func decidedAlone(t *testing.T, gateways []*gatewaytest.Gateway) int {
	t.Helper()
	n := 0.0
	for _, g := range gateways {
		n += metric(t, g, "gatehouse_limit_decisions_total", `by="local"`, `outcome="allowed"`)
	}
	return int(n)
}

// limitsIn looks into the limits that gateways keep in a Redis.
func limitsIn(t *testing.T, o *redis.UniversalOptions) ratelimit.Limiter {
	t.Helper()
	ratelimit.TuneClient(o)
	client := redis.NewUniversalClient(o)
	fleet, err := ratelimit.New(client, ratelimit.Options{Prefix: "gatehouse:limit:", Timeout: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, fleet.Close())
		require.NoError(t, client.Close())
	})
	return fleet
}

// breakable is a world with one Redis, which away and back break and mend.
func breakable(t *testing.T, c chaos, away, back func(*redistest.Server) error) (*world, *brokenRedis) {
	t.Helper()
	w := newLoadWorld(t)
	return w, &brokenRedis{
		option: c.redis(w.redis.URL()), addrs: []string{w.redis.Addr}, client: w.redis.Options(),
		away: func() { require.NoError(t, away(w.redis)) },
		back: func() { require.NoError(t, back(w.redis)) },
	}
}

// command has a Redis run a command.
func command(args ...any) func(*redistest.Server) error {
	return func(s *redistest.Server) error {
		c := redis.NewClient(s.Options().Simple())
		defer func() { _ = c.Close() }()
		return c.Do(context.Background(), args...).Err()
	}
}

func TestFaultRedisKilled(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	w, r := breakable(t, c, (*redistest.Server).Kill, (*redistest.Server).Restart)
	holdTheLimits(t, c, w, r)
}

func TestFaultRedisStopped(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	w, r := breakable(t, c, (*redistest.Server).Pause, (*redistest.Server).Resume)
	holdTheLimits(t, c, w, r)
}

// TestFaultRedisRestartedEmpty restarts Redis so quickly that no gateway need take it for away.
func TestFaultRedisRestartedEmpty(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	w, r := breakable(t, c, func(s *redistest.Server) error {
		if err := s.Kill(); err != nil {
			return err
		}
		return s.Restart()
	}, func(*redistest.Server) error { return nil })
	r.unnoticed = true
	holdTheLimits(t, c, w, r)
}

func TestFaultRedisOutOfMemory(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	w, r := breakable(t, c, command("CONFIG", "SET", "maxmemory", "1"), command("CONFIG", "SET", "maxmemory", "0"))
	holdTheLimits(t, c, w, r)
}

func TestFaultRedisReadOnlyReplica(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	w, r := breakable(t, c, command("REPLICAOF", "127.0.0.1", "1"), command("REPLICAOF", "NO", "ONE"))
	holdTheLimits(t, c, w, r)
}

func TestFaultRedisLoading(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	w, r := breakable(t, c, func(s *redistest.Server) error { return s.RestartLoading(c.away + 2*time.Second) },
		func(s *redistest.Server) error {
			for {
				err := command("PING")(s)
				if err == nil || !redis.IsLoadingError(err) {
					return err
				}
				<-time.After(10 * time.Millisecond)
			}
		})
	holdTheLimits(t, c, w, r)
}

func TestFaultRedisSlow(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	w := newLoadWorld(t)
	p := linktest.Start(t, w.redis.Addr)
	holdTheLimits(t, c, w, &brokenRedis{
		option: c.redis("redis://" + p.Addr), addrs: []string{w.redis.Addr, p.Addr}, client: w.redis.Options(),
		away: func() { p.Slow(0, 2*c.redisTimeout) }, // 100 ms, at the default of 50
		back: func() { p.Slow(0, 0) },
	})
}

func TestFaultRedisSentinelFailover(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	s := redistest.StartSentinel(t)
	r := &brokenRedis{addrs: []string{s.Master.Addr, s.Replica.Addr}, client: s.Options()}
	var urls []string
	for _, p := range s.Sentinels {
		urls = append(urls, "redis://"+p.Addr)
		r.addrs = append(r.addrs, p.Addr)
	}
	r.option = strings.Replace(c.redis(strings.Join(urls, " ")), "timeout", "sentinel "+redistest.MasterName+"\n\t\t\ttimeout", 1)
	r.away = func() { require.NoError(t, s.Master.Kill()) }
	r.back = func() {
		require.Eventually(t, func() bool {
			addr, err := s.MasterAddr(t.Context())
			return err == nil && addr == s.Replica.Addr
		}, 2*patience, 10*time.Millisecond)
	}
	// it may be over before anybody looks
	r.unnoticed = true
	holdTheLimits(t, c, newLoadWorld(t), r)
}

// TestFaultRedisClusterNodeKilledAndSlotsMoved kills a master, whose replica takes over, while slots in use move from one
// of the other masters to the third.
func TestFaultRedisClusterNodeKilledAndSlotsMoved(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	cl := redistest.StartClusterWithReplicas(t)
	client := cl.Client(t)
	r := &brokenRedis{addrs: cl.Addrs(), client: cl.Options(), unnoticed: true}
	r.option = strings.Replace(c.redis("redis://"+strings.Join(cl.Addrs(), " redis://")), "timeout", "cluster\n\t\t\ttimeout", 1)
	moved := 0
	r.away = func() {
		require.NoError(t, cl.Nodes[0].Kill())
		keys, err := cl.Nodes[1].Client(t).Keys(t.Context(), "gatehouse:limit:*").Result()
		require.NoError(t, err)
		require.NotEmpty(t, keys)
		for _, k := range keys[:min(len(keys), 10)] {
			slot := int(client.ClusterKeySlot(t.Context(), k).Val())
			require.NoError(t, cl.MoveSlot(t.Context(), slot, 2))
			moved++
		}
	}
	r.back = func() {
		require.Eventually(t, func() bool {
			info, err := cl.Nodes[3].Client(t).Info(t.Context(), "replication").Result()
			return err == nil && strings.Contains(info, "role:master")
		}, 2*patience, 20*time.Millisecond)
	}
	holdTheLimits(t, c, newLoadWorld(t), r)
	require.Positive(t, moved)
}

// TestFaultRedisClusterSlotsWithoutANode kills a master that has no replica: its slots are nobody's (CLUSTERDOWN).
func TestFaultRedisClusterSlotsWithoutANode(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	cl := redistest.StartCluster(t)
	r := &brokenRedis{addrs: cl.Addrs(), client: cl.Options()}
	r.option = strings.Replace(c.redis("redis://"+strings.Join(cl.Addrs(), " redis://")), "timeout", "cluster\n\t\t\ttimeout", 1)
	r.away = func() { require.NoError(t, cl.Nodes[1].Kill()) }
	r.back = func() { require.NoError(t, cl.Nodes[1].Restart()) }
	holdTheLimits(t, c, newLoadWorld(t), r)
}
