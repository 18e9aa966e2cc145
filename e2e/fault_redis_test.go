package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/linktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// chaos is how long and how hard tests of faults run: at length in `make chaos` (GATEHOUSE_CHAOS=1), or else for seconds.
type chaos struct {
	long bool
	// rate is the steady load of a test, in requests a second over all gateways.
	rate int
	// before, away and back are how long a load runs before a fault, with it and after it.
	before, away, back time.Duration
	// redisTimeout is the gateways' timeout. It is the default in the long form, which has the machine for itself.
	redisTimeout time.Duration
}

func chaosScale(t *testing.T) chaos {
	t.Helper()
	if os.Getenv("GATEHOUSE_CHAOS") == "1" {
		return chaos{
			long: true, rate: 100, redisTimeout: 50 * time.Millisecond,
			before: 5 * time.Second, away: 15 * time.Second, back: 10 * time.Second,
		}
	}
	return chaos{
		rate: 40, redisTimeout: 250 * time.Millisecond,
		before: 500 * time.Millisecond, away: 1500 * time.Millisecond, back: time.Second,
	}
}

// redis is the option redis for this scale.
func (c chaos) redis(url string, more ...string) string {
	return fmt.Sprintf("redis %s {\n\t\t\t%s\n\t\t}", url, strings.Join(append(more, "timeout "+c.redisTimeout.String()), "\n\t\t\t"))
}

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
	for _, g := range gateways {
		requireSoon(t, http.StatusOK, greedy[2].Caller, g) // they have read the file
	}

	l := load.Start(t, load.Options{
		Gateways: gateways, Callers: steady, Rate: c.rate, Hide: append(r.addrs, strings.TrimPrefix(w.dataURL, "http://")),
		Allow: successOrLimited,
	})
	l.Also("greedy before", greedy[:1], greed)
	l.Run(c.before)

	// An outage that ends by itself may be over before anybody looks, and a busy machine may have had one before.
	outages := func(g *gatewaytest.Gateway) float64 {
		return g.Metric(t, "gatehouse_limiter_events_total", `event="unavailable"`)
	}
	before := [2]float64{outages(gateways[0]), outages(gateways[1])}
	r.away()
	l.Phase("outage")
	began := time.Now()
	l.Also("greedy outage", greedy[1:2], greed)
	if !r.unnoticed {
		for i, g := range gateways {
			require.Eventually(t, func() bool {
				return outages(g) > before[i] || g.Metric(t, "gatehouse_limits_shared") == 0
			}, patience, 25*time.Millisecond)
		}
	}
	noticed := time.Since(began)
	l.Run(c.away)

	r.back()
	l.Phase("back")
	mended := time.Now()
	for _, g := range gateways {
		requireGrows(t, g, 0, "gatehouse_limits_shared")
	}
	took := time.Since(mended)
	// What was admitted without Redis, or has been lost with it, Redis is told: who has used up a budget has none left.
	fleet := limitsIn(t, r.client)
	told := func(key string) (usedUp bool) {
		t.Helper()
		served := l.Report().Some(func(s *load.Sample) bool { return s.Key == key && s.Status == http.StatusOK })
		if len(served) < load.KeyLimit {
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
	alone := decidedAlone(t, gateways...)
	l.Phase("shared")
	shared := time.Now()
	l.Also("greedy after", greedy[2:], greed)
	usedUp := 0
	for _, key := range []string{greedy[0].PublicKey, greedy[1].PublicKey} {
		if told(key) {
			usedUp++
		}
	}
	l.Run(c.back)
	report := l.Stop()
	// A request that has no answer of Redis's in time, on a busy machine, is its gateway's.
	alone = decidedAlone(t, gateways...) - alone

	require.Zero(t, report.OverLimit(), "a gateway by itself has admitted more than a limit\n%s", report)
	after := report.Admitted(load.ByFleet, func(s *load.Sample) bool { return s.Stream == "greedy after" })
	require.LessOrEqual(t, after, load.KeyLimit+alone, "the limit is not shared again\n%s", report)
	whileAway := report.Admitted(load.ByFleet, func(s *load.Sample) bool { return s.Stream == "greedy outage" && s.Sent.Before(shared) })
	late := len(report.Some(func(s *load.Sample) bool { // before the first of them can have left the window
		return s.Stream == "greedy outage" && s.Status == http.StatusOK && s.Sent.After(shared) && s.Done.Before(began.Add(load.Window))
	}))
	if whileAway >= load.KeyLimit {
		require.LessOrEqual(t, late, alone, "what was admitted alone does not count\n%s", report)
	}
	require.Positive(t, report.Phase("outage").By["200"], "%s", report)
	report.Figure(t,
		fmt.Sprintf("noticed_after=%s", noticed.Round(time.Millisecond)),
		fmt.Sprintf("shared_again_after=%s", took.Round(time.Millisecond)),
		fmt.Sprintf("fleet_allowed_before=%d", report.Admitted(load.ByFleet, func(s *load.Sample) bool { return s.Stream == "greedy before" })),
		fmt.Sprintf("fleet_allowed_outage=%d", whileAway),
		fmt.Sprintf("fleet_allowed_after=%d", after),
		fmt.Sprintf("decided_locally_after=%d", alone),
		fmt.Sprintf("used_up=%d", usedUp))
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

// successOrLimited allows, with and without Redis, successes and denials for callers above their limit.
func successOrLimited(s *load.Sample) bool {
	return s.Status == http.StatusOK || s.Stream != "" && s.Status == http.StatusTooManyRequests
}

// single is a Redis that two functions break and mend.
func single(away, back func(*redistest.Server) error) func(*testing.T, chaos, *world) *brokenRedis {
	return func(t *testing.T, c chaos, w *world) *brokenRedis {
		t.Helper()
		return &brokenRedis{
			option: c.redis(w.redis.URL()), addrs: []string{w.redis.Addr}, client: w.redis.Options(),
			away: func() { require.NoError(t, away(w.redis)) },
			back: func() { require.NoError(t, back(w.redis)) },
		}
	}
}

// command makes a Redis run a command.
func command(args ...any) func(*redistest.Server) error {
	return func(s *redistest.Server) error {
		c := redis.NewClient(s.Options().Simple())
		defer func() { _ = c.Close() }()
		return c.Do(context.Background(), args...).Err()
	}
}

func TestFaultRedis(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	for name, fault := range map[string]func(*testing.T, chaos, *world) *brokenRedis{
		"killed":            single((*redistest.Server).Kill, (*redistest.Server).Restart),
		"stopped":           single((*redistest.Server).Pause, (*redistest.Server).Resume),
		"out of memory":     single(command("CONFIG", "SET", "maxmemory", "1"), command("CONFIG", "SET", "maxmemory", "0")),
		"read-only replica": single(command("REPLICAOF", "127.0.0.1", "1"), command("REPLICAOF", "NO", "ONE")),
		"loading": single(func(s *redistest.Server) error { return s.RestartLoading(c.away + 2*time.Second) }, func(s *redistest.Server) error {
			for {
				if err := command("PING")(s); err == nil || !redis.IsLoadingError(err) {
					return err
				}
				<-time.After(10 * time.Millisecond)
			}
		}),
		// So quickly that no gateway need notice an outage.
		"restarted empty": func(t *testing.T, c chaos, w *world) *brokenRedis {
			t.Helper()
			r := single(nil, func(*redistest.Server) error { return nil })(t, c, w)
			r.unnoticed = true
			r.away = func() {
				require.NoError(t, w.redis.Kill())
				require.NoError(t, w.redis.Restart())
			}
			return r
		},
		"slow": func(t *testing.T, c chaos, w *world) *brokenRedis {
			t.Helper()
			p := linktest.Start(t, w.redis.Addr)
			return &brokenRedis{
				option: c.redis("redis://" + p.Addr), addrs: []string{w.redis.Addr, p.Addr}, client: w.redis.Options(),
				away: func() { p.Slow(0, 2*c.redisTimeout) },
				back: func() { p.Slow(0, 0) },
			}
		},
		"Sentinel failover": func(t *testing.T, c chaos, _ *world) *brokenRedis {
			t.Helper()
			s := redistest.StartSentinel(t)
			r := &brokenRedis{addrs: []string{s.Master.Addr, s.Replica.Addr}, client: s.Options(), unnoticed: true}
			var urls []string
			for _, p := range s.Sentinels {
				urls = append(urls, "redis://"+p.Addr)
				r.addrs = append(r.addrs, p.Addr)
			}
			r.option = c.redis(strings.Join(urls, " "), "sentinel "+redistest.MasterName)
			r.away = func() { require.NoError(t, s.Master.Kill()) }
			r.back = func() {
				require.Eventually(t, func() bool {
					addr, err := s.MasterAddr(t.Context())
					return err == nil && addr == s.Replica.Addr
				}, 2*patience, 10*time.Millisecond)
			}
			return r
		},
		// The replica of a master takes over, while slots in use move from one of the other masters to the third.
		"Cluster node killed and slots moved": func(t *testing.T, c chaos, _ *world) *brokenRedis {
			t.Helper()
			cl := redistest.StartClusterWithReplicas(t)
			client := cl.Client(t)
			return &brokenRedis{
				option: c.redis("redis://"+strings.Join(cl.Addrs(), " redis://"), "cluster"), addrs: cl.Addrs(), client: cl.Options(), unnoticed: true,
				away: func() {
					require.NoError(t, cl.Nodes[0].Kill())
					keys, err := cl.Nodes[1].Client(t).Keys(t.Context(), "gatehouse:limit:*").Result()
					require.NoError(t, err)
					require.NotEmpty(t, keys)
					for _, k := range keys[:min(len(keys), 10)] {
						require.NoError(t, cl.MoveSlot(t.Context(), int(client.ClusterKeySlot(t.Context(), k).Val()), 2))
					}
				},
				back: func() {
					require.Eventually(t, func() bool {
						info, err := cl.Nodes[3].Client(t).Info(t.Context(), "replication").Result()
						return err == nil && strings.Contains(info, "role:master")
					}, 2*patience, 20*time.Millisecond)
				},
			}
		},
		// The slots of a master without a replica are nobody's (CLUSTERDOWN).
		"Cluster slots without a node": func(t *testing.T, c chaos, _ *world) *brokenRedis {
			t.Helper()
			cl := redistest.StartCluster(t)
			return &brokenRedis{
				option: c.redis("redis://"+strings.Join(cl.Addrs(), " redis://"), "cluster"), addrs: cl.Addrs(), client: cl.Options(),
				away: func() { require.NoError(t, cl.Nodes[1].Kill()) },
				back: func() { require.NoError(t, cl.Nodes[1].Restart()) },
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, load.Data())
			holdTheLimits(t, c, w, fault(t, c, w))
		})
	}
}
