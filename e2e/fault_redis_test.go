package e2e_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/redisclient"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// chaos is how long and under which load fault tests run: minutes in `make chaos` (GATEHOUSE_CHAOS=1), otherwise seconds.
type chaos struct {
	long bool
	// rate is the steady load of a test, in requests a second over all gateways.
	rate int
	// before, outage and after are how long the load runs before, during and after a fault.
	before, outage, after time.Duration
	// redisTimeout is the gateways' timeout. `make chaos`, which runs nothing else, uses the default. On a busy machine, all probes would be
	// later than that, and the gateways would never share limits again.
	redisTimeout time.Duration
}

func chaosScale(t *testing.T) chaos {
	t.Helper()
	if os.Getenv("GATEHOUSE_CHAOS") == "1" {
		return chaos{
			long: true, rate: 100, redisTimeout: 50 * time.Millisecond,
			before: 5 * time.Second, outage: 15 * time.Second, after: 10 * time.Second,
		}
	}
	return chaos{
		rate: 40, redisTimeout: 2 * time.Second,
		before: 500 * time.Millisecond, outage: 1500 * time.Millisecond, after: time.Second,
	}
}

// redis is the option redis for this scale.
func (c chaos) redis(url string, more ...string) string {
	return fmt.Sprintf("redis %s {\n\t\t\t%s\n\t\t}", url, strings.Join(append(more, "timeout "+c.redisTimeout.String()), "\n\t\t\t"))
}

// A redisFault makes a Redis unavailable under load and restores it. Package ratelimit tests the limiter alone.
type redisFault struct {
	// option is the option redis of the gateways.
	option string
	// addrs must not appear in responses.
	addrs []string
	// client are the options of the test's own client.
	client *redis.UniversalOptions
	// fail starts the fault; restore ends it and returns when Redis is available again.
	fail, restore func()
	// unnoticed is set if gateways may not notice an outage.
	unnoticed bool
}

// testRedisOutage puts two gateways under load before, during and after an outage of Redis. Callers below their limits get only
// successes. The limits of the others are enforced by each gateway locally during the outage, and by both together before and after.
func testRedisOutage(t *testing.T, c chaos, w *environment, r *redisFault) {
	t.Helper()
	gateways := make([]*gatewaytest.Gateway, 2)
	for i := range gateways {
		o := w.options("cache {\n\t\t\t"+longVaultTimeout+"\n\t\t}", "") // it includes waiting for Redis
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
		waitForStatus(t, http.StatusOK, greedy[2].Caller, g) // the gateway has read the file
	}

	l := load.Start(t, load.Options{
		Gateways: gateways, Callers: steady, Rate: c.rate, Hide: append(r.addrs, strings.TrimPrefix(w.dataURL, "http://")),
		Allow: successOrLimited,
	})
	l.Also("greedy before", greedy[:1], greed)
	l.Run(c.before)

	// An outage may end before it is observed, and a busy machine may have had one before.
	outages := func(g *gatewaytest.Gateway) float64 {
		return g.Metric(t, "gatehouse_limiter_events_total", `event="unavailable"`)
	}
	before := [2]float64{outages(gateways[0]), outages(gateways[1])}
	r.fail()
	l.Phase("outage")
	began := time.Now()
	l.Also("greedy outage", greedy[1:2], greed)
	if !r.unnoticed {
		for i, g := range gateways {
			require.Eventually(t, func() bool {
				return !checkOK(t, g, "limits") || outages(g) > before[i]
			}, patience, 50*time.Millisecond)
		}
	}
	noticed := time.Since(began)
	l.Run(c.outage)

	r.restore()
	l.Phase("back")
	restored := time.Now()
	for _, g := range gateways {
		requireCheck(t, g, "limits", true)
	}
	took := time.Since(restored)
	// The gateways resync the requests that Redis does not know: a key that has reached its limit stays limited.
	fleet := limitsIn(t, r.client)
	requireSynced := func(key string) (limited bool) {
		t.Helper()
		served := l.Report().Some(func(s *load.Sample) bool { return s.Key == key && s.Status == http.StatusOK })
		if len(served) < load.KeyLimit {
			return false // the machine is too slow to reach the limit
		}
		group, counters := ratelimit.ForKey(key, ratelimit.KeyLimit(0))
		require.Eventually(t, func() bool {
			v, err := fleet.Peek(t.Context(), group, counters...)
			return err == nil && v.By != ratelimit.ByLocal && !v.Allowed
		}, patience, 50*time.Millisecond, "Redis does not know that the limit is reached")
		return true
	}
	if r.unnoticed {
		// A gateway that has noticed no outage resyncs at its next check, not before its next request.
		requireSynced(greedy[1].PublicKey)
	}
	local := decidedLocally(t, gateways...)
	l.Phase("shared")
	shared := time.Now()
	l.Also("greedy after", greedy[2:], greed)
	limited := 0
	for _, key := range []string{greedy[0].PublicKey, greedy[1].PublicKey} {
		if requireSynced(key) {
			limited++
		}
	}
	l.Run(c.after)
	report := l.Stop()
	// On a busy machine, requests without a timely reply of Redis are decided locally.
	local = decidedLocally(t, gateways...) - local

	require.Zero(t, report.OverLimit(), "one gateway alone has allowed more than the limit\n%s", report)
	after := report.Allowed(load.ByFleet, func(s *load.Sample) bool { return s.Stream == "greedy after" })
	require.LessOrEqual(t, after, load.KeyLimit+local, "the limit is not shared again\n%s", report)
	duringOutage := report.Allowed(load.ByFleet, func(s *load.Sample) bool { return s.Stream == "greedy outage" && s.Sent.Before(shared) })
	late := len(report.Some(func(s *load.Sample) bool { // before the first of them can have left the window
		return s.Stream == "greedy outage" && s.Status == http.StatusOK && s.Sent.After(shared) && s.Done.Before(began.Add(load.Window))
	}))
	if duringOutage >= load.KeyLimit {
		require.LessOrEqual(t, late, local, "requests allowed locally do not count\n%s", report)
	}
	require.Positive(t, report.Phase("outage").By["200"], "%s", report)
	report.Figure(t,
		fmt.Sprintf("noticed_after=%s", noticed.Round(time.Millisecond)),
		fmt.Sprintf("shared_again_after=%s", took.Round(time.Millisecond)),
		fmt.Sprintf("fleet_allowed_before=%d", report.Allowed(load.ByFleet, func(s *load.Sample) bool { return s.Stream == "greedy before" })),
		fmt.Sprintf("fleet_allowed_outage=%d", duringOutage),
		fmt.Sprintf("fleet_allowed_after=%d", after),
		fmt.Sprintf("decided_locally_after=%d", local),
		fmt.Sprintf("limited=%d", limited))
}

// limitsIn returns a limiter that reads the gateways' limits in Redis.
func limitsIn(t *testing.T, o *redis.UniversalOptions) ratelimit.Limiter {
	t.Helper()
	client := redisclient.New(o)
	fleet, err := ratelimit.New(client, ratelimit.Options{Timeout: patience})
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

// single returns a fault of a single Redis.
func single(fail, restore func(*redistest.Server) error) func(*testing.T, chaos, *environment) *redisFault {
	return func(t *testing.T, c chaos, w *environment) *redisFault {
		t.Helper()
		return &redisFault{
			option: c.redis(w.redis.URL()), addrs: []string{w.redis.Addr}, client: w.redis.Options(),
			fail:    func() { require.NoError(t, fail(w.redis)) },
			restore: func() { require.NoError(t, restore(w.redis)) },
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
	for name, fault := range map[string]func(*testing.T, chaos, *environment) *redisFault{
		"killed":            single((*redistest.Server).Kill, (*redistest.Server).Restart),
		"stopped":           single((*redistest.Server).Pause, (*redistest.Server).Resume),
		"out of memory":     single(command("CONFIG", "SET", "maxmemory", "1"), command("CONFIG", "SET", "maxmemory", "0")),
		"read-only replica": single(command("REPLICAOF", "127.0.0.1", "1"), command("REPLICAOF", "NO", "ONE")),
		"loading": single(func(s *redistest.Server) error { return s.RestartLoading(c.outage + 2*time.Second) }, func(s *redistest.Server) error {
			for {
				if err := command("PING")(s); err == nil || !redis.IsLoadingError(err) {
					return err
				}
				<-time.After(10 * time.Millisecond)
			}
		}),
		// Too quickly for a gateway to notice an outage in every run.
		"restarted empty": func(t *testing.T, c chaos, w *environment) *redisFault {
			t.Helper()
			r := single(nil, func(*redistest.Server) error { return nil })(t, c, w)
			r.unnoticed = true
			r.fail = func() {
				require.NoError(t, w.redis.Kill())
				require.NoError(t, w.redis.Restart())
			}
			return r
		},
		"slow": func(t *testing.T, c chaos, w *environment) *redisFault {
			t.Helper()
			p := netfault.NewLink(t, w.redis.Addr)
			return &redisFault{
				option: c.redis("redis://" + p.Addr), addrs: []string{w.redis.Addr, p.Addr}, client: w.redis.Options(),
				fail:    func() { p.Slow(0, 2*c.redisTimeout) },
				restore: func() { p.Slow(0, 0) },
			}
		},
		"Sentinel failover": func(t *testing.T, c chaos, _ *environment) *redisFault {
			t.Helper()
			s := redistest.StartSentinel(t)
			r := &redisFault{addrs: []string{s.Master.Addr, s.Replica.Addr}, client: s.Options(), unnoticed: true}
			var urls []string
			for _, p := range s.Sentinels {
				urls = append(urls, "redis://"+p.Addr)
				r.addrs = append(r.addrs, p.Addr)
			}
			r.option = c.redis(strings.Join(urls, " "), "sentinel "+redistest.MasterName)
			r.fail = func() {
				require.NoError(t, s.Master.Kill())
				s.ReplaceAfter(t, 500*time.Millisecond)
			}
			r.restore = func() {
				require.Eventually(t, func() bool {
					addr, err := s.MasterAddr(t.Context())
					return err == nil && addr == s.Replica.Addr
				}, 2*patience, 10*time.Millisecond)
			}
			return r
		},
		// A replica takes over from its master, while slots in use move between the other two masters.
		"Cluster node killed and slots moved": func(t *testing.T, c chaos, _ *environment) *redisFault {
			t.Helper()
			cl := redistest.StartClusterWithReplicas(t)
			client := cl.Client(t)
			return &redisFault{
				option: c.redis("redis://"+strings.Join(cl.Addrs(), " redis://"), "cluster"), addrs: cl.Addrs(), client: cl.Options(), unnoticed: true,
				fail: func() {
					require.NoError(t, cl.Nodes[0].Kill())
					keys, err := cl.Nodes[1].Client(t).Keys(t.Context(), ratelimit.DefaultPrefix+"*").Result()
					require.NoError(t, err)
					require.NotEmpty(t, keys)
					for _, k := range keys[:min(len(keys), 10)] {
						require.NoError(t, cl.MoveSlot(t.Context(), int(client.ClusterKeySlot(t.Context(), k).Val()), 2))
					}
					cl.SetNodeTimeout(t, time.Second)
				},
				restore: func() {
					require.Eventually(t, func() bool {
						info, err := cl.Nodes[3].Client(t).Info(t.Context(), "replication").Result()
						return err == nil && strings.Contains(info, "role:master")
					}, 2*patience, 20*time.Millisecond)
					cl.SetNodeTimeout(t, time.Minute)
				},
			}
		},
		// The slots of a master without a replica have no node (CLUSTERDOWN).
		"Cluster slots without a node": func(t *testing.T, c chaos, _ *environment) *redisFault {
			t.Helper()
			cl := redistest.StartCluster(t)
			return &redisFault{
				option: c.redis("redis://"+strings.Join(cl.Addrs(), " redis://"), "cluster"), addrs: cl.Addrs(), client: cl.Options(),
				fail: func() {
					require.NoError(t, cl.Nodes[1].Kill())
					cl.SetNodeTimeout(t, time.Second)
				},
				restore: func() {
					require.NoError(t, cl.Nodes[1].Restart())
					for _, n := range cl.Nodes {
						require.Eventually(t, func() bool {
							info, err := n.Client(t).ClusterInfo(t.Context()).Result()
							return err == nil && strings.Contains(info, "cluster_slots_ok:16384")
						}, 2*patience, 20*time.Millisecond)
					}
					cl.SetNodeTimeout(t, time.Minute)
				},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t, load.Data())
			testRedisOutage(t, c, w, fault(t, c, w))
		})
	}
}

// Requests to the connection server alone, without any to the API, make the gateway find the master that took over.
func TestConnectionServerFollowsAClusterFailover(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	cl := redistest.StartClusterWithReplicas(t)
	o := w.options("", "")
	o.Global = strings.Replace(o.Global, w.redisLine(), chaosScale(t).redis("redis://"+strings.Join(cl.Addrs(), " redis://"), "cluster"), 1)
	g := w.startConnect(t, o)
	browser := &http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(browser.CloseIdleConnections)
	// Sessions that do not exist are looked up in the slots of all masters.
	statuses := func() map[int]int {
		n := make(map[int]int)
		for range 30 {
			var id [32]byte
			_, _ = rand.Read(id[:]) // never fails
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL+"/settings/connected-apps", http.NoBody)
			require.NoError(t, err)
			r.AddCookie(&http.Cookie{Name: "gatehouse_session", Value: base64.RawURLEncoding.EncodeToString(id[:])})
			res, err := browser.Do(r)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			n[res.StatusCode]++
		}
		return n
	}
	available := func() bool { return statuses()[http.StatusSeeOther] == 30 }
	require.Eventually(t, available, patience, 20*time.Millisecond)
	require.NoError(t, cl.Nodes[0].Kill())
	require.Positive(t, statuses()[http.StatusServiceUnavailable])
	cl.SetNodeTimeout(t, time.Second)
	replica := cl.Nodes[3].Client(t)
	require.Eventually(t, func() bool {
		info, err := replica.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "role:master")
	}, 2*patience, 20*time.Millisecond)
	cl.SetNodeTimeout(t, time.Minute)
	promoted := time.Now()
	require.Eventually(t, available, 25*time.Second, 20*time.Millisecond, "by itself, the client reloads the slot table once a minute")
	t.Logf("available %v after the failover", time.Since(promoted).Round(time.Millisecond))
}
