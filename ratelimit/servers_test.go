package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// topology is a set of real servers.
type topology struct {
	options func() *redis.UniversalOptions
	servers []*redistest.Server // that can store keys
	cluster *redistest.Cluster
}

func singleServer(t *testing.T) topology {
	t.Helper()
	s := redistest.Start(t)
	return topology{s.Options, []*redistest.Server{s}, nil}
}

func sentinels(t *testing.T) topology {
	t.Helper()
	s := redistest.StartSentinel(t)
	require.NoError(t, s.ReplaceAfter(t.Context(), 10*time.Minute))
	return topology{s.Options, []*redistest.Server{s.Master}, nil}
}

func clusterOfThree(t *testing.T) topology {
	t.Helper()
	cl := redistest.StartCluster(t)
	require.NoError(t, cl.SetNodeTimeout(t.Context(), time.Minute))
	return topology{cl.Options, cl.Nodes, cl}
}

var topologies = map[string]func(t *testing.T) topology{
	"single": singleServer, "sentinel": sentinels, "cluster": clusterOfThree,
}

// requireCounted waits until Redis has counted the given number of allowed requests for each key, and requires that it has
// not counted more.
func requireCounted(t *testing.T, top topology, l ratelimit.Limit, allowed map[string]int) {
	t.Helper()
	fresh := newLimiter(t, top.options(), withLongTimeout())
	for key, want := range allowed {
		last := -1
		require.Eventually(t, func() bool {
			r, err := fresh.Peek(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
			if err != nil || r.By == ratelimit.ByLocal {
				return false
			}
			last = l.Requests - r.States[0].Remaining
			return last >= want
		}, longTimeout, 20*time.Millisecond, "Redis has counted fewer than the %d allowed requests", want)
		require.Equal(t, want, last, "allowed and counted requests of %s", key)
	}
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
				r, err := limiters[i%len(limiters)].Allow(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
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

// slowConn is a connection on which replies arrive late.
type slowConn struct {
	net.Conn
	delay    *atomic.Int64
	deadline atomic.Int64 // Unix nanoseconds
}

func (c *slowConn) SetReadDeadline(t time.Time) error {
	c.deadline.Store(t.UnixNano())
	if t.IsZero() {
		c.deadline.Store(math.MaxInt64)
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *slowConn) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetWriteDeadline(t), c.SetReadDeadline(t))
}

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	late := time.Duration(c.delay.Load())
	if left := time.Duration(c.deadline.Load() - time.Now().UnixNano()); left < late {
		<-time.After(left)
		return 0, os.ErrDeadlineExceeded
	}
	<-time.After(late)
	return n, err
}

// slowed delays replies on the client's connections.
func slowed(o *redis.UniversalOptions, delay *atomic.Int64) *redis.UniversalOptions {
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		slow := &slowConn{Conn: c, delay: delay}
		slow.deadline.Store(math.MaxInt64)
		return slow, nil
	}
	return o
}

// TestSlowRedisCountsRequestsOnce has more concurrent callers than a slow Redis can serve in time. Requests that time out in
// the queue are decided locally and synced once, while Redis decides about the others.
func TestSlowRedisCountsRequestsOnce(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := start(t)
			var delay atomic.Int64
			f := newLimiter(t, slowed(top.options(), &delay), ratelimit.Options{Timeout: 500 * time.Millisecond})
			require.NoError(t, f.Ping(t.Context()))
			delay.Store(int64(400 * time.Millisecond))
			l := limit(ratelimit.MaxRequests, time.Hour)
			keys := []string{"a", "b", "c", "d", "e", "f"}
			allowed, by := allowUntil(t, after(3*time.Second), []ratelimit.Limiter{f}, 1500, 0, keys, l)
			t.Logf("%v, queue %d", by, f.Stats().Queue)
			delay.Store(0)
			awaitDecisionBy(t, f, ratelimit.ByRedis)
			require.Zero(t, f.Stats().Queue, "no request may wait any longer")
			requireCounted(t, top, l, allowed)
		})
	}
}

// TestBrokenConnectionsCountRequestsOnce closes all connections repeatedly while requests wait for replies. By default
// go-redis would retry commands in a Cluster, whether they were counted or not.
func TestBrokenConnectionsCountRequestsOnce(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := start(t)
			limiters := newLimiters(t, 2, top.options, withShortTimeout())
			for _, f := range limiters {
				require.NoError(t, f.Ping(context.Background()))
			}
			done := make(chan struct{})
			var cuts atomic.Int64
			go func() {
				defer close(done)
				for range 40 {
					for _, s := range top.servers {
						if s.Client(t).Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err() == nil {
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
			requireCounted(t, top, l, allowed)
		})
	}
}

// TestRestoredSnapshotIsResynced replaces the data of Redis by an older snapshot so quickly that gateways need not notice
// the outage. One of the gateways is idle meanwhile.
func TestRestoredSnapshotIsResynced(t *testing.T) {
	t.Parallel()
	type broken struct {
		topology
		snapshot, restore func(t *testing.T)
	}
	for name, start := range map[string]func(t *testing.T) broken{
		"single": func(t *testing.T) broken {
			t.Helper()
			top := singleServer(t)
			s := top.servers[0]
			return broken{top, func(t *testing.T) {
				t.Helper()
				require.NoError(t, s.Client(t).Save(t.Context()).Err())
			}, func(t *testing.T) {
				t.Helper()
				require.NoError(t, s.Kill())
				require.NoError(t, s.Restart())
			}}
		},
		"sentinel failover to a lagging replica": func(t *testing.T) broken {
			t.Helper()
			s := redistest.StartSentinel(t)
			require.NoError(t, s.ReplaceAfter(t.Context(), 10*time.Minute))
			return broken{topology{options: s.Options}, func(t *testing.T) {
				t.Helper()
				redistest.AwaitReplica(t, s.Master, s.Replica)
				require.NoError(t, s.Replica.Pause())
				// Discards what is in the master's buffers, which would arrive later.
				require.NoError(t, s.Master.Client(t).Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
			}, func(t *testing.T) {
				t.Helper()
				require.NoError(t, s.Master.Kill())
				require.NoError(t, s.Replica.Resume())
				require.NoError(t, s.ReplaceAfter(t.Context(), 500*time.Millisecond))
				require.Eventually(t, func() bool {
					addr, err := s.MasterAddr(t.Context())
					return err == nil && addr == s.Replica.Addr
				}, 2*longTimeout, 10*time.Millisecond)
			}}
		},
		"cluster": func(t *testing.T) broken {
			t.Helper()
			top := clusterOfThree(t)
			return broken{top, func(t *testing.T) {
				t.Helper()
				for _, s := range top.servers {
					require.NoError(t, s.Client(t).Save(t.Context()).Err())
				}
			}, func(t *testing.T) {
				t.Helper()
				for _, s := range top.servers {
					require.NoError(t, s.Kill())
					require.NoError(t, s.Restart())
				}
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			limiters := newLimiters(t, 2, b.options, withShortTimeout())
			l := limit(60, time.Hour)
			keys := []string{"a", "b", "c", "d"}
			allowed := make(map[string]int)
			pass := func(n ...int) {
				t.Helper()
				for i, f := range limiters {
					for _, key := range keys {
						require.Equal(t, n[i], allowConcurrently(t, limiters[i:i+1], n[i], key, l))
						allowed[key] += n[i]
					}
					require.NoError(t, f.Unavailable())
				}
			}
			pass(20, 15)
			b.snapshot(t)
			pass(4, 7)
			b.restore(t)
			// Redis has the missing requests again.
			require.Eventually(t, func() bool {
				return limiters[0].Unavailable() == nil && limiters[1].Unavailable() == nil
			}, 2*longTimeout, 10*time.Millisecond)
			requireCounted(t, b.topology, l, allowed)
			for _, key := range keys {
				require.Equal(t, 60-46, allowConcurrently(t, limiters, 200, key, l), "no more than the limit, of %s", key)
			}
		})
	}
}

// TestLostNodeIsResyncedIfShardSpansTwoNodes loses a node while the newest requests of the shard are on the other one.
func TestLostNodeIsResyncedIfShardSpansTwoNodes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	top := clusterOfThree(t)
	client := top.cluster.Client(t)
	limiters := newLimiters(t, 2, top.options, withShortTimeout())
	l := limit(30, time.Hour)
	// A shard is a 16th of the slots, a node a third.
	var first, second []string
	for i := 0; len(first) < 5 || len(second) < 5; i++ {
		key := fmt.Sprint("key", i)
		slot := int(client.ClusterKeySlot(ctx, limiters[0].KeyName(key, ratelimit.Bucket{Key: key, Limit: l})).Val())
		switch {
		case slot/1024 != 5:
		case top.cluster.Owner(slot) == 0:
			first = append(first, key)
		default:
			second = append(second, key)
		}
	}
	allowed := make(map[string]int)
	for i, f := range limiters {
		for _, key := range append(append([]string(nil), first[:5]...), second[:5]...) {
			require.Equal(t, 6+i, allowConcurrently(t, []ratelimit.Limiter{f}, 6+i, key, l))
			allowed[key] += 6 + i
		}
	}
	require.NoError(t, top.servers[0].Kill())
	require.NoError(t, top.servers[0].Restart())
	requireCounted(t, top, l, allowed)
}

// TestResyncWithLowerLimitKeepsAllRequests resyncs after data loss while gateways disagree on the limit.
func TestResyncWithLowerLimitKeepsAllRequests(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := start(t)
			limiters := newLimiters(t, 2, top.options, withLongTimeout())
			high, low := limit(60, time.Hour), limit(10, time.Hour)
			require.Equal(t, 4, allowConcurrently(t, limiters[1:], 4, "k", low))
			require.Equal(t, 37, allowConcurrently(t, limiters[:1], 37, "k", high))
			for _, s := range top.servers {
				require.NoError(t, s.Client(t).FlushAll(context.Background()).Err())
			}
			requireCounted(t, top, high, map[string]int{"k": 41})
			require.Equal(t, 19, allowConcurrently(t, limiters[:1], 100, "k", high))
		})
	}
}

// TestThousandsOfBusyCallersAreResyncedAfterOutage has more unsynced requests than fit into one script run.
func TestThousandsOfBusyCallersAreResyncedAfterOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var got events
	f := newLimiter(t, s.Options(), ratelimit.Options{Timeout: shortTimeout, OnEvent: got.on})
	require.NoError(t, s.Kill())
	awaitUnavailable(t, f)
	const callers, each = 1500, 280
	l := limit(1000, time.Hour)
	for i := range callers {
		key := fmt.Sprint("busy", i)
		for range each {
			allow(t, f, key, l)
		}
	}
	require.NoError(t, s.Restart())
	require.Eventually(t, func() bool { return f.Unavailable() == nil }, 2*longTimeout, 10*time.Millisecond)
	allowed := make(map[string]int)
	for i := 0; i < callers; i += 97 {
		allowed[fmt.Sprint("busy", i)] = each
	}
	requireCounted(t, topology{options: s.Options}, l, allowed)
	require.EqualValues(t, 1, f.Stats().Outages, "the sync must not cause another outage")
}

// TestResyncFarAboveTheLimit allows far more than the limit during an outage, with on_outage allow.
func TestResyncFarAboveTheLimit(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newLimiter(t, s.Options(), ratelimit.Options{OnOutage: ratelimit.Allow, Timeout: shortTimeout})
	require.NoError(t, s.Kill())
	awaitUnavailable(t, f)
	l, busy := limit(20, time.Hour), 0
	for last := time.Now().UnixMicro(); busy < 70_000; {
		if now := time.Now().UnixMicro(); now != last { // each in another microsecond
			last, busy = now, busy+1
			require.True(t, allow(t, f, "busy", l).Allowed)
		}
	}
	require.True(t, allow(t, f, "other", l).Allowed)
	require.NoError(t, s.Restart())
	require.Eventually(t, func() bool { return f.Unavailable() == nil }, 2*longTimeout, 10*time.Millisecond)
	fresh := newLimiter(t, s.Options(), withLongTimeout())
	require.False(t, allow(t, fresh, "busy", l).Allowed)
	require.Equal(t, 18, allow(t, fresh, "other", l).States[0].Remaining)
}

// TestOnOutageAllowTakesEffectImmediately allows what Redis had denied before, even before Redis counts as unavailable.
func TestOnOutageAllowTakesEffectImmediately(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []ratelimit.Algorithm{ratelimit.Exact, ratelimit.GCRA} {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			f := newLimiter(t, s.Options(), ratelimit.Options{Algorithm: algorithm, OnOutage: ratelimit.Allow, Timeout: longTimeout, MaxFailures: 1000})
			l := limit(2, time.Hour)
			require.Equal(t, 2, allowConcurrently(t, []ratelimit.Limiter{f}, 5, "k", l))
			require.False(t, allow(t, f, "k", l).Allowed)
			require.NoError(t, s.Kill())
			allow(t, f, "other", l) // the first failure
			require.NoError(t, f.Unavailable())
			for range 5 {
				r, err := f.Peek(context.Background(), "k", ratelimit.Bucket{Key: "k", Limit: l})
				require.NoError(t, err)
				require.True(t, r.Allowed)
				require.True(t, allow(t, f, "k", l).Allowed)
			}
		})
	}
}

// TestUndecodableValueDoesNotAffectOtherKeys has keys with invalid values in the same script runs as others.
func TestUndecodableValueDoesNotAffectOtherKeys(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newLimiter(t, s.Options(), withLongTimeout())
	c := s.Client(t)
	l := limit(5, time.Hour)
	values := []string{"x", strings.Repeat("\xff", 60), strings.Repeat("\x00", 89)}
	for i, v := range values {
		require.NoError(t, c.Set(context.Background(), f.KeyName(fmt.Sprint("bad", i), ratelimit.Bucket{Key: fmt.Sprint("bad", i), Limit: l}), v, 0).Err())
	}
	name := f.KeyName("bad3", ratelimit.Bucket{Key: "bad3", Limit: l})
	require.NoError(t, c.RPush(context.Background(), name, "x").Err())
	var wg sync.WaitGroup
	var byRedis atomic.Int64
	for i := range 400 {
		wg.Go(func() {
			key := fmt.Sprint("good", i)
			if i%10 == 0 {
				key = fmt.Sprint("bad", i/10%4)
			}
			r, err := f.Allow(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
			if err == nil && r.By == ratelimit.ByRedis {
				byRedis.Add(1)
			}
		})
	}
	wg.Wait()
	for i := range 4 {
		require.False(t, allow(t, f, fmt.Sprint("bad", i), l).Allowed, "an undecodable value must be replaced by a count")
	}
	require.GreaterOrEqual(t, byRedis.Load(), int64(400-40+4*5))
}
