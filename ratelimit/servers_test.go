package ratelimit_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// topology is a set of real servers. Only tests that want it have a server replaced that does not reply.
type topology struct {
	options  func() *redis.UniversalOptions
	servers  []*redistest.Server // that can store keys
	sentinel *redistest.Sentinel
	cluster  *redistest.Cluster
}

func singleServer(t *testing.T) topology {
	t.Helper()
	s := redistest.Start(t)
	return topology{options: s.Options, servers: []*redistest.Server{s}}
}

func sentinels(t *testing.T) topology {
	t.Helper()
	s := redistest.StartSentinel(t)
	return topology{options: s.Options, servers: []*redistest.Server{s.Master}, sentinel: s}
}

func clusterOfThree(t *testing.T) topology {
	t.Helper()
	cl := redistest.StartCluster(t)
	return topology{options: cl.Options, servers: cl.Nodes, cluster: cl}
}

var topologies = map[string]func(t *testing.T) topology{
	"single": singleServer, "sentinel": sentinels, "cluster": clusterOfThree,
}

// keysBySlot returns n keys for each of some groups of a Cluster's slots. group returns the index of a slot's group, or -1.
func keysBySlot(t *testing.T, cl *redistest.Cluster, l ratelimit.Limit, n, groups int, group func(slot int) int) [][]string {
	t.Helper()
	keys := make([][]string, groups)
	for i, missing := 0, n*groups; missing > 0; i++ {
		key := fmt.Sprint("key", i)
		if g := group(slotOf(t, cl, key, l)); g >= 0 && len(keys[g]) < n {
			keys[g] = append(keys[g], key)
			missing--
		}
	}
	return keys
}

// slotOf returns the slot of a key's counter.
func slotOf(t *testing.T, cl *redistest.Cluster, key string, l ratelimit.Limit) int {
	t.Helper()
	client := redis.NewClient(cl.Nodes[0].Options().Simple())
	defer func() { require.NoError(t, client.Close()) }()
	slot, err := client.ClusterKeySlot(t.Context(), ratelimit.KeyName(ratelimit.Exact, key, counter(key, l))).Result()
	require.NoError(t, err)
	return int(slot)
}

// promoteReplica waits until the Sentinels have replaced a master that was killed.
func promoteReplica(t *testing.T, s *redistest.Sentinel) {
	t.Helper()
	s.ReplaceAfter(t, 500*time.Millisecond)
	require.Eventually(t, func() bool {
		addr, err := s.MasterAddr(t.Context())
		return err == nil && addr == s.Replica.Addr
	}, patience, 10*time.Millisecond)
}

// allowUntil sends requests from concurrent callers until done, all of which must be allowed. It returns their number by
// key and by decider.
func allowUntil(t *testing.T, done <-chan struct{}, limiters []ratelimit.Limiter, callers int, pause time.Duration, keys []string, l ratelimit.Limit) (allowed map[string]int, by map[ratelimit.Decider]int) {
	t.Helper()
	allowed, by = make(map[string]int), make(map[ratelimit.Decider]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := i; ; n++ {
				select {
				case <-done:
					return
				case <-time.After(pause):
				}
				key := keys[n%len(keys)]
				r, err := limiters[i%len(limiters)].Allow(context.Background(), key, counter(key, l))
				if err != nil || !r.Allowed {
					t.Errorf("%+v %v", r, err)
					return
				}
				mu.Lock()
				allowed[key]++
				by[r.By]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return allowed, by
}

// TestSlowRedisCountsRequestsOnce has more concurrent callers than a slow Redis can serve in time. Requests that time out in
// the queue are decided locally and synced once, while Redis decides about the others.
func TestSlowRedisCountsRequestsOnce(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := start(t)
			o, links := throughLinks(t, top)
			f := newLimiter(t, o, ratelimit.Options{Timeout: 500 * time.Millisecond})
			// Eventually, because the first connections may take longer than the timeout.
			require.Eventually(t, func() bool { return f.Ping(t.Context()) == nil }, patience, time.Millisecond)
			for _, link := range links {
				link.Slow(0, 250*time.Millisecond)
			}
			l := limit(ratelimit.MaxRequests, time.Hour)
			keys := []string{"a", "b", "c", "d", "e", "f"}
			allowed, by := allowUntil(t, after(3*time.Second), []ratelimit.Limiter{f}, 1500, 0, keys, l)
			t.Logf("%v, queue %d", by, f.Stats().Queue)
			require.Positive(t, by[ratelimit.ByLocal], "Redis was not too slow")
			for _, link := range links {
				link.Slow(0, 0)
			}
			awaitDecisionBy(t, f, ratelimit.ByRedis)
			require.Zero(t, f.Stats().Queue, "no request may wait any longer")
			requireCounted(t, top.options(), l, allowed)
		})
	}
}

// throughLinks returns options that connect through a link to each server, and the links.
func throughLinks(t *testing.T, top topology) (*redis.UniversalOptions, []*netfault.Link) {
	t.Helper()
	var links []*netfault.Link
	addrs := map[string]string{}
	for _, s := range top.servers {
		link := netfault.NewLink(t, s.Addr)
		links, addrs[s.Addr] = append(links, link), link.Addr
	}
	o := top.options()
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, cmp.Or(addrs[addr], addr))
	}
	return o, links
}

// Each of the 16 shards of a Cluster needs round trips of its own.
func TestDistantClusterIsPingedInTheTimeOfOneShard(t *testing.T) {
	t.Parallel()
	o, links := throughLinks(t, clusterOfThree(t))
	f := newLimiter(t, o, ratelimit.Options{})
	require.NoError(t, f.Ping(t.Context()))
	for _, link := range links {
		link.Slow(0, 50*time.Millisecond)
	}
	// Eventually, because a busy machine may take longer. One after the other, the shards need 800 ms at least.
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		return f.Ping(ctx) == nil
	}, patience, time.Millisecond)
}

// TestBrokenConnectionsCountRequestsOnce closes all connections repeatedly while requests wait for replies. By default
// go-redis would retry commands in a Cluster, whether they were counted or not.
func TestBrokenConnectionsCountRequestsOnce(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := start(t)
			limiters := newLimiters(t, 2, top.options, ratelimit.Options{})
			for _, f := range limiters {
				require.NoError(t, f.Ping(context.Background()))
			}
			done := make(chan struct{})
			var cuts atomic.Int64
			go func() {
				defer close(done)
				for range 40 {
					for _, s := range top.servers {
						if admin("CLIENT KILL TYPE normal SKIPME yes")(s) == nil {
							cuts.Add(1)
						}
					}
					<-after(25 * time.Millisecond)
				}
			}()
			l := limit(ratelimit.MaxRequests, time.Hour)
			allowed, by := allowUntil(t, done, limiters, 16, time.Millisecond, []string{"a", "b", "c"}, l)
			t.Logf("%d cuts, %v", cuts.Load(), by)
			require.Positive(t, cuts.Load())
			requireCounted(t, top.options(), l, allowed)
		})
	}
}

// TestLostDataIsResyncedOnce has Redis lose requests so quickly that gateways need not notice an outage. Redis has those that
// come between the loss and its detection. Gateways disagree on the limit, and a sync by one with a lower limit must not remove
// requests of others.
func TestLostDataIsResyncedOnce(t *testing.T) {
	t.Parallel()
	onEach := func(do func(s *redistest.Server) error) func(*testing.T, topology) {
		return func(t *testing.T, top topology) {
			t.Helper()
			for _, s := range top.servers {
				require.NoError(t, do(s))
			}
		}
	}
	flush, save := onEach(admin("FLUSHALL")), onEach(admin("SAVE"))
	restart := onEach(func(s *redistest.Server) error { return errors.Join(s.Kill(), s.Restart()) })
	pauseReplica := func(t *testing.T, top topology) {
		t.Helper()
		redistest.AwaitReplica(t, top.sentinel.Master, top.sentinel.Replica)
		require.NoError(t, top.sentinel.Replica.Pause())
		// Discards the data in the master's buffers, which would arrive later.
		require.NoError(t, admin("CLIENT KILL TYPE replica")(top.sentinel.Master))
	}
	failOver := func(t *testing.T, top topology) {
		t.Helper()
		require.NoError(t, top.sentinel.Master.Kill())
		require.NoError(t, top.sentinel.Replica.Resume())
		promoteReplica(t, top.sentinel)
	}
	for name, c := range map[string]struct {
		start          func(t *testing.T) topology
		snapshot, lose func(t *testing.T, top topology)
		idle           bool // no request between the loss and its detection
	}{
		"single, restarted empty":               {start: singleServer, lose: restart},
		"single, restarted empty while idle":    {start: singleServer, lose: restart, idle: true},
		"single, older snapshot":                {start: singleServer, snapshot: save, lose: restart},
		"single, flushed":                       {start: singleServer, lose: flush},
		"sentinel, flushed":                     {start: sentinels, lose: flush},
		"sentinel, failover to lagging replica": {start: sentinels, snapshot: pauseReplica, lose: failOver},
		"cluster, flushed":                      {start: clusterOfThree, lose: flush},
		"cluster, older snapshot":               {start: clusterOfThree, snapshot: save, lose: restart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := c.start(t)
			var losses, outages atomic.Int64
			limiters := newLimiters(t, 3, top.options, ratelimit.Options{OnEvent: func(e ratelimit.Event) {
				count(&losses, ratelimit.EventDataLost)(e)
				count(&outages, ratelimit.EventUnavailable)(e)
			}})
			limits := []ratelimit.Limit{limit(60, time.Hour), limit(10, time.Hour), limit(60, time.Hour)}
			keys := []string{"a", "b", "c", "d"}
			allowed := make(map[string]int)
			pass := func(gateway, n int) {
				t.Helper()
				for _, key := range keys {
					require.Equal(t, n, allowConcurrently(t, limiters[gateway:gateway+1], n, key, limits[gateway]))
					allowed[key] += n
				}
			}
			pass(0, 2)
			pass(1, 3)
			pass(2, 1) // and is idle from now on
			if c.snapshot != nil {
				c.snapshot(t, top)
			}
			pass(1, 4)
			pass(0, 27)
			awaitAvailable(t, limiters...)
			c.lose(t, top)
			if !c.idle {
				pass(0, 11)
			}
			awaitAvailable(t, limiters...)
			requireCounted(t, top.options(), limits[0], allowed)
			if top.cluster == nil { // a Cluster detects each node's loss
				concerned := int64(3)
				if c.snapshot != nil {
					concerned = 2 // the snapshot has all requests of the idle gateway
				}
				require.Eventually(t, func() bool { return losses.Load() == concerned }, patience, time.Millisecond)
			}
			if c.idle {
				require.Zero(t, outages.Load())
			}
			for i, f := range limiters { // the idle gateway may learn of a failover by its next round trip only
				require.Eventually(t, func() bool {
					r, err := f.Peek(t.Context(), keys[0], counter(keys[0], limits[i]))
					return err == nil && r.By != ratelimit.ByLocal
				}, patience, 20*time.Millisecond)
			}
			for key, n := range allowed {
				assert.Equal(t, 60-n, allowConcurrently(t, []ratelimit.Limiter{limiters[0], limiters[2]}, 200, key, limits[0]))
				assert.False(t, allow(t, limiters[1], key, limits[1]).Allowed)
			}
		})
	}
}

// TestLostNodeIsResyncedIfShardSpansTwoNodes loses a node while the newest requests of the shard are on the other one.
func TestLostNodeIsResyncedIfShardSpansTwoNodes(t *testing.T) {
	t.Parallel()
	top := clusterOfThree(t)
	limiters := newLimiters(t, 2, top.options, ratelimit.Options{})
	l := limit(30, time.Hour)
	// A shard is a 16th of the slots, a node a third.
	keys := keysBySlot(t, top.cluster, l, 5, 2, func(slot int) int {
		if slot/1024 != 5 {
			return -1
		}
		return top.cluster.Owner(slot)
	})
	allowed := make(map[string]int)
	for i := range limiters {
		for _, key := range slices.Concat(keys...) {
			require.Equal(t, 6+i, allowConcurrently(t, limiters[i:i+1], 6+i, key, l))
			allowed[key] += 6 + i
		}
	}
	require.NoError(t, top.servers[0].Kill())
	require.NoError(t, top.servers[0].Restart())
	requireCounted(t, top.options(), l, allowed)
}

func TestClusterSlotMigrationAndNodeFailure(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cl := clusterOfThree(t).cluster
	var unavailable sync.Map // shards
	limiters := newLimiters(t, 3, cl.Options, ratelimit.Options{OnEvent: func(e ratelimit.Event) {
		if e.Kind == ratelimit.EventUnavailable {
			unavailable.Store(e.Shard, e.Shards)
		}
	}})
	for _, f := range limiters {
		require.NoError(t, f.Ping(ctx))
	}
	l := limit(30, time.Hour)
	keys := keysBySlot(t, cl, l, 3, 3, cl.Owner)

	// Several counters of one group.
	group, counters := ratelimit.ForUnverified("pk_live_abcdefgh", netip.Addr{})
	r, err := limiters[0].Allow(ctx, group, counters...)
	require.NoError(t, err)
	require.True(t, r.Allowed)
	require.Equal(t, ratelimit.ByRedis, r.By)

	// A counter's slot migrates while it is in use: no request is lost or counted twice.
	moving := keys[0][1]
	slot := slotOf(t, cl, moving, l)
	moved := make(chan error, 1)
	go func() { moved <- cl.MoveSlot(ctx, slot, 1) }()
	allowed := 0
	for i := range 28 {
		r := allow(t, limiters[i%3], moving, l)
		require.True(t, r.Allowed)
		require.Equal(t, ratelimit.ByRedis, r.By)
		require.Equal(t, 29-i, r.States[0].Remaining)
		allowed++
	}
	require.NoError(t, <-moved)
	require.Equal(t, 30-allowed, allowConcurrently(t, limiters, 60, moving, l))

	// A node fails: limits of its slots are enforced locally, the others by Redis.
	require.NoError(t, cl.Nodes[2].Kill())
	dead, alive := keys[2][2], keys[1][2]
	require.Equal(t, 30, allowConcurrently(t, limiters[:1], 100, dead, l))
	require.Eventually(t, func() bool {
		r := allow(t, limiters[1], alive, limit(ratelimit.MaxRequests, time.Minute))
		return r.By == ratelimit.ByRedis
	}, patience, time.Millisecond)
	require.Equal(t, 30, allowConcurrently(t, limiters, 100, keys[1][1], l))
	require.Eventually(t, func() bool { allow(t, limiters[0], keys[2][1], l); return limiters[0].Unavailable() != nil }, patience, time.Millisecond)
	down := maps.Collect(unavailable.Range)
	require.LessOrEqual(t, len(down), 6, "only the failed node's slots may become unavailable")
	require.Subset(t, []any{16}, slices.Collect(maps.Values(down)))

	// It restarts empty (a Cluster node keeps its slots).
	require.NoError(t, cl.Nodes[2].Restart())
	awaitAvailable(t, limiters[0])
	// The key's shard need not have become unavailable. Then its requests are synced in the background. Peek waits for that
	// without counting.
	fresh := newLimiter(t, cl.Options(), ratelimit.Options{})
	require.Eventually(t, func() bool {
		r, err := fresh.Peek(ctx, dead, counter(dead, l))
		return err == nil && r.By == ratelimit.ByRedis && !r.Allowed
	}, patience, 10*time.Millisecond, "what was allowed during the outage must be synced")
}

// An interrupted reshard leaves a slot open. Redis refuses scripts with several keys there, such as a counter and the mark of a write.
func TestWritesInAMigratingSlotMakeNoShardUnavailable(t *testing.T) {
	t.Parallel()
	cl := clusterOfThree(t).cluster
	f := newLimiter(t, cl.Options(), ratelimit.Options{OnEvent: func(e ratelimit.Event) {
		assert.NotEqual(t, ratelimit.EventUnavailable, e.Kind, "%v", e.Cause)
	}})
	l := limit(100, time.Hour)
	slot := slotOf(t, cl, "key", l)
	write := func(id byte) ratelimit.Result {
		once := ratelimit.Once{MAC: [16]byte{id}, ID: [ratelimit.IDSize]byte{id}, Until: time.Now().Add(time.Minute)}
		res, err := f.AllowOnce(t.Context(), "key", once, counter("key", l))
		require.NoError(t, err)
		require.True(t, res.Allowed)
		return res
	}
	require.Equal(t, ratelimit.ByRedis, write(1).By)
	require.NoError(t, cl.OpenSlot(t.Context(), slot, (cl.Owner(slot)+1)%3))
	for i := range byte(5) {
		require.Equal(t, ratelimit.ByLocal, write(2+i).By)
	}
	require.NoError(t, f.Unavailable())
	require.Equal(t, ratelimit.ByRedis, allow(t, f, "key", l).By, "a read")
	require.NoError(t, cl.MoveSlot(t.Context(), slot, (cl.Owner(slot)+1)%3))
	require.Equal(t, ratelimit.ByRedis, write(7).By)
}

// TestFailoverKeepsCounts kills a master whose replica has all data. Meanwhile each gateway continues from its local window.
func TestFailoverKeepsCounts(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (top topology, master, replica *redistest.Server, promote func()){
		"sentinel": func(t *testing.T) (topology, *redistest.Server, *redistest.Server, func()) {
			t.Helper()
			top := sentinels(t)
			return top, top.sentinel.Master, top.sentinel.Replica, func() { promoteReplica(t, top.sentinel) }
		},
		"cluster": func(t *testing.T) (topology, *redistest.Server, *redistest.Server, func()) {
			t.Helper()
			cl := redistest.StartClusterWithReplicas(t)
			replica := cl.Nodes[3].Client(t)
			return topology{options: cl.Options, cluster: cl}, cl.Nodes[0], cl.Nodes[3], func() {
				cl.SetNodeTimeout(t, time.Second)
				require.Eventually(t, func() bool {
					info, err := replica.Info(t.Context(), "replication").Result()
					return err == nil && strings.Contains(info, "role:master")
				}, patience, 20*time.Millisecond)
				cl.SetNodeTimeout(t, time.Minute)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top, master, replica, promote := start(t)
			var losses atomic.Int64
			limiters := newLimiters(t, 2, top.options, ratelimit.Options{OnEvent: count(&losses, ratelimit.EventDataLost)})
			l := limit(30, 10*time.Minute)
			key := "k"
			if top.cluster != nil {
				key = keysBySlot(t, top.cluster, l, 1, 3, top.cluster.Owner)[0][0]
			}
			await := func(reached func(f ratelimit.Limiter, r ratelimit.Result) bool) {
				t.Helper()
				for _, f := range limiters {
					require.Eventually(t, func() bool {
						r, err := f.Peek(t.Context(), key, counter(key, l))
						return err == nil && reached(f, r)
					}, patience, 10*time.Millisecond)
				}
			}
			require.Equal(t, 20, allowConcurrently(t, limiters, 20, key, l))
			redistest.AwaitReplica(t, master, replica)
			require.NoError(t, master.Kill())
			await(func(f ratelimit.Limiter, _ ratelimit.Result) bool { return f.Unavailable() != nil })
			require.Equal(t, 2, allowConcurrently(t, limiters, 2, key, l))
			promote()
			promoted := time.Now()
			await(func(f ratelimit.Limiter, r ratelimit.Result) bool {
				return r.By == ratelimit.ByRedis && f.Unavailable() == nil
			})
			t.Logf("shared again %v after the failover", time.Since(promoted).Round(time.Millisecond))
			assert.Equal(t, 8, allowConcurrently(t, limiters, 60, key, l))
			assert.Zero(t, losses.Load())
		})
	}
}

// Of a write that all gateways of a fleet get at the same time, and again later, one is accepted.
func TestWriteIsAcceptedOnceByAFleet(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limiters := newLimiters(t, 3, start(t).options, ratelimit.Options{Timeout: 20 * time.Second})
			l := limit(1_000_000, time.Minute)
			const writes, times = 100, 4
			accepted := make([]atomic.Int64, writes)
			again := make([]atomic.Int64, writes)
			var work sync.WaitGroup
			for g, f := range limiters {
				for n := range times {
					work.Go(func() {
						for i := range writes {
							once := ratelimit.Once{
								MAC: [16]byte{byte(i), 1}, ID: [ratelimit.IDSize]byte{byte(i), byte(g), byte(n), 1}, Until: time.Now().Add(time.Hour),
							}
							key := fmt.Sprint("key", i%5)
							res, err := f.AllowOnce(t.Context(), key, once, counter(key, l))
							switch {
							case !assert.NoError(t, err) || !assert.True(t, res.Allowed) || !assert.Equal(t, ratelimit.ByRedis, res.By):
							case res.Accepted == once.ID:
								accepted[i].Add(1)
							default:
								assert.Equal(t, byte(i), res.Accepted[0], "it names the write that was accepted")
								again[i].Add(1)
							}
						}
					})
				}
			}
			work.Wait()
			for i := range writes {
				require.Equal(t, int64(1), accepted[i].Load())
				require.Equal(t, int64(len(limiters)*times-1), again[i].Load())
			}
		})
	}
}

// A write that was not carried out can be made again, once: whoever forgets an earlier attempt does not forget the later one.
func TestForgottenWriteIsAcceptedOnceMore(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limiters := newLimiters(t, 2, start(t).options, ratelimit.Options{Timeout: 20 * time.Second})
			write := func(id byte) ratelimit.Once {
				return ratelimit.Once{MAC: [16]byte{1}, ID: [ratelimit.IDSize]byte{id}, Until: time.Now().Add(time.Hour)}
			}
			accepted := func(f ratelimit.Limiter, id byte) byte {
				res, err := f.AllowOnce(t.Context(), "key", write(id), counter("key", limit(1_000_000, time.Minute)))
				require.NoError(t, err)
				require.Equal(t, ratelimit.ByRedis, res.By)
				return res.Accepted[0]
			}
			require.EqualValues(t, 1, accepted(limiters[0], 1))
			require.EqualValues(t, 1, accepted(limiters[1], 2))
			require.NoError(t, limiters[1].Forget(t.Context(), "key", write(2)), "it was not accepted")
			require.EqualValues(t, 1, accepted(limiters[1], 3))
			require.NoError(t, limiters[0].Forget(t.Context(), "key", write(1)))
			require.EqualValues(t, 4, accepted(limiters[1], 4))
			require.NoError(t, limiters[0].Forget(t.Context(), "key", write(1)), "late")
			require.EqualValues(t, 4, accepted(limiters[0], 5))
		})
	}
}

// A write is remembered for longer than the ten minutes in which its signature is valid, in little memory. A denied one is not remembered.
func TestAcceptedWritesAreRememberedForElevenMinutes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	limiters := newLimiters(t, 2, s.Options, ratelimit.Options{})
	write := func(f ratelimit.Limiter, key string, l ratelimit.Limit, i int) (allowed bool) {
		once := ratelimit.Once{Until: time.Now().Add(11 * time.Minute)}
		binary.BigEndian.PutUint64(once.MAC[:], uint64(i))
		binary.BigEndian.PutUint64(once.ID[:], uint64(i))
		res, err := f.AllowOnce(t.Context(), key, once, counter(key, l))
		require.NoError(t, err)
		require.Equal(t, ratelimit.ByRedis, res.By)
		return res.Allowed
	}
	remembered := func() []string {
		keys, err := client.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		return slices.DeleteFunc(keys, func(key string) bool { return !strings.Contains(key, "}:") }) // as markKey names them
	}

	began := time.Now()
	require.True(t, write(limiters[0], "limited", limit(1, time.Hour), 1))
	require.False(t, write(limiters[1], "limited", limit(1, time.Hour), 2))
	marks := remembered()
	require.Len(t, marks, 1)
	kept, err := client.PTTL(t.Context(), marks[0]).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, kept, 11*time.Minute)
	require.Greater(t, kept, 11*time.Minute-time.Since(began)-2*time.Second)

	used := func() (n int) {
		info, err := client.Info(t.Context(), "memory").Result()
		require.NoError(t, err)
		_, rest, _ := strings.Cut(info, "used_memory:")
		_, err = fmt.Sscan(rest, &n)
		require.NoError(t, err)
		return n
	}
	const writes = 1000
	before := used()
	for i := range writes {
		require.True(t, write(limiters[0], "unlimited", limit(1_000_000, time.Minute), i+3))
	}
	each := (used() - before) / writes
	t.Logf("%d bytes for each write", each)
	require.Len(t, remembered(), 1+writes)
	require.Less(t, each, 250, "docs/operating.md says about 200")
}
