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

	"github.com/gatehouse-gateway/gatehouse/internal/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// A topology is real servers, and what a test does to them.
type topology struct {
	options func() *redis.UniversalOptions
	servers []*redistest.Server // that may have keys
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

// counted waits until Redis has counted as many requests of each key as passed, and no more a moment later.
func requireCounted(t *testing.T, top topology, l ratelimit.Limit, passed map[string]int) {
	t.Helper()
	fresh := newFleet(t, top.options(), patient())
	for key, want := range passed {
		last := -1
		require.Eventually(t, func() bool {
			r, err := fresh.Peek(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
			if err != nil || r.By == ratelimit.ByLocal {
				return false
			}
			last = l.Requests - r.States[0].Remaining
			return last >= want
		}, patience, 20*time.Millisecond, "of %d requests that passed Redis knows fewer", want)
		require.Equal(t, want, last, "requests that passed, and requests that were counted, of %s", key)
	}
}

// passThrough has requests of so many callers at once pass until done, and returns how many did of each key.
func passThrough(t *testing.T, done <-chan struct{}, fleets []ratelimit.Limiter, callers int, pause time.Duration, keys []string, l ratelimit.Limit) (passed map[string]int, by map[ratelimit.Decider]int) {
	t.Helper()
	passed, by = make(map[string]int), make(map[ratelimit.Decider]int)
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
				r, err := fleets[i%len(fleets)].Allow(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
				if err != nil || !r.Allowed {
					t.Errorf("%+v %v", r, err)
					return
				}
				mu.Lock()
				passed[key]++
				by[r.By]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return passed, by
}

// slowConn is a connection whose answers come late.
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

// slowed has answers on connections come later by delay.
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

// TestASlowRedisCountsWhatPassesOnceAndIsAskedOn has more callers at once than a slow Redis has answers for in time. Those in
// the queue are decided without it and told once; the others go on sharing their limits, and all do when it is quick again.
func TestASlowRedisCountsWhatPassesOnceAndIsAskedOn(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := start(t)
			var delay atomic.Int64
			f := newFleet(t, slowed(top.options(), &delay), ratelimit.Options{Timeout: 500 * time.Millisecond})
			require.NoError(t, f.Ping(t.Context()))
			delay.Store(int64(400 * time.Millisecond))
			l := limit(ratelimit.MaxRequests, time.Hour)
			keys := []string{"a", "b", "c", "d", "e", "f"}
			passed, by := passThrough(t, after(3*time.Second), []ratelimit.Limiter{f}, 1500, 0, keys, l)
			t.Logf("%v, queue %d", by, f.Stats().Queue)
			delay.Store(0)
			eventuallyBy(t, f, ratelimit.ByRedis)
			require.Zero(t, f.Stats().Queue, "nobody waits any more")
			requireCounted(t, top, l, passed)
		})
	}
}

// TestConnectionsThatBreakCountWhatPassesOnce cuts all connections again and again, while requests are under way on them.
// go-redis would send a Cluster's again, whether they were counted or not.
func TestConnectionsThatBreakCountWhatPassesOnce(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := start(t)
			fleets := newFleets(t, 2, top.options, hasty())
			for _, f := range fleets {
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
			passed, by := passThrough(t, done, fleets, 16, time.Millisecond, []string{"a", "b", "c"}, l)
			t.Logf("%d cuts, %v", cuts.Load(), by)
			require.Positive(t, cuts.Load())
			requireCounted(t, top, l, passed)
		})
	}
}

// TestAnOlderSnapshotIsToldWhatItMisses: Redis comes back with what it had some time ago, at once, so that no gateway need
// have noticed that it was gone; one of the gateways has no request meanwhile.
func TestAnOlderSnapshotIsToldWhatItMisses(t *testing.T) {
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
		"sentinel fails over to a replica that is behind": func(t *testing.T) broken {
			t.Helper()
			s := redistest.StartSentinel(t)
			require.NoError(t, s.ReplaceAfter(t.Context(), 10*time.Minute))
			return broken{topology{options: s.Options}, func(t *testing.T) {
				t.Helper()
				redistest.AwaitReplica(t, s.Master, s.Replica)
				require.NoError(t, s.Replica.Pause())
				// What is in its buffers would still arrive.
				require.NoError(t, s.Master.Client(t).Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
			}, func(t *testing.T) {
				t.Helper()
				require.NoError(t, s.Master.Kill())
				require.NoError(t, s.Replica.Resume())
				require.NoError(t, s.ReplaceAfter(t.Context(), 500*time.Millisecond))
				require.Eventually(t, func() bool {
					addr, err := s.MasterAddr(t.Context())
					return err == nil && addr == s.Replica.Addr
				}, 2*patience, 10*time.Millisecond)
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
			fleets := newFleets(t, 2, b.options, hasty())
			l := limit(60, time.Hour)
			keys := []string{"a", "b", "c", "d"}
			passed := make(map[string]int)
			pass := func(n ...int) {
				t.Helper()
				for i, f := range fleets {
					for _, key := range keys {
						require.Equal(t, n[i], takeAtOnce(t, fleets[i:i+1], n[i], key, l))
						passed[key] += n[i]
					}
					require.NoError(t, f.Unavailable())
				}
			}
			pass(20, 15)
			b.snapshot(t)
			pass(4, 7)
			b.restore(t)
			// Within its limit, and told what it misses.
			require.Eventually(t, func() bool {
				return fleets[0].Unavailable() == nil && fleets[1].Unavailable() == nil
			}, 2*patience, 10*time.Millisecond)
			requireCounted(t, b.topology, l, passed)
			for _, key := range keys {
				require.Equal(t, 60-46, takeAtOnce(t, fleets, 200, key, l), "no more than the limit, of %s", key)
			}
		})
	}
}

// TestTheKeysOfALostNodeAreToldAgainWhereAShardSpansTwo: the newest requests of the shard are on the other one.
func TestTheKeysOfALostNodeAreToldAgainWhereAShardSpansTwo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	top := clusterOfThree(t)
	client := top.cluster.Client(t)
	fleets := newFleets(t, 2, top.options, hasty())
	l := limit(30, time.Hour)
	// A shard is a 16th of the slots, and a node a third of them.
	var first, second []string
	for i := 0; len(first) < 5 || len(second) < 5; i++ {
		key := fmt.Sprint("key", i)
		slot := int(client.ClusterKeySlot(ctx, fleets[0].KeyName(key, ratelimit.Bucket{Key: key, Limit: l})).Val())
		switch {
		case slot/1024 != 5:
		case top.cluster.Owner(slot) == 0:
			first = append(first, key)
		default:
			second = append(second, key)
		}
	}
	passed := make(map[string]int)
	for i, f := range fleets {
		for _, key := range append(append([]string(nil), first[:5]...), second[:5]...) {
			require.Equal(t, 6+i, takeAtOnce(t, []ratelimit.Limiter{f}, 6+i, key, l))
			passed[key] += 6 + i
		}
	}
	require.NoError(t, top.servers[0].Kill())
	require.NoError(t, top.servers[0].Restart())
	requireCounted(t, top, l, passed)
}

// TestALowerLimitOfAnotherGatewayErasesNothing when Redis is told again what it has lost.
func TestALowerLimitOfAnotherGatewayErasesNothing(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := start(t)
			fleets := newFleets(t, 2, top.options, patient())
			high, low := limit(60, time.Hour), limit(10, time.Hour)
			require.Equal(t, 4, takeAtOnce(t, fleets[1:], 4, "k", low))
			require.Equal(t, 37, takeAtOnce(t, fleets[:1], 37, "k", high))
			for _, s := range top.servers {
				require.NoError(t, s.Client(t).FlushAll(context.Background()).Err())
			}
			requireCounted(t, top, high, map[string]int{"k": 41})
			require.Equal(t, 19, takeAtOnce(t, fleets[:1], 100, "k", high))
		})
	}
}

// TestThousandsOfBusyCallersAreToldAfterAnOutage: what one script run is told of is bounded, and the next one goes on.
func TestThousandsOfBusyCallersAreToldAfterAnOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var told events
	f := newFleet(t, s.Options(), ratelimit.Options{Timeout: haste, OnEvent: told.on})
	require.NoError(t, s.Kill())
	givenUp(t, f)
	const callers, each = 1500, 280
	l := limit(1000, time.Hour)
	for i := range callers {
		key := fmt.Sprint("busy", i)
		for range each {
			take(t, f, key, l)
		}
	}
	require.NoError(t, s.Restart())
	require.Eventually(t, func() bool { return f.Unavailable() == nil }, 2*patience, 10*time.Millisecond)
	passed := make(map[string]int)
	for i := 0; i < callers; i += 97 {
		passed[fmt.Sprint("busy", i)] = each
	}
	requireCounted(t, topology{options: s.Options}, l, passed)
	require.EqualValues(t, 1, f.Stats().Outages, "nothing was too much at once")
}

// TestHoweverMuchWasAllowedIsTold: with on_outage allow that is far more than the limit, and must not keep others from theirs.
func TestHoweverMuchWasAllowedIsTold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newFleet(t, s.Options(), ratelimit.Options{OnOutage: ratelimit.Allow, Timeout: haste})
	require.NoError(t, s.Kill())
	givenUp(t, f)
	l, busy := limit(20, time.Hour), 0
	for last := time.Now().UnixMicro(); busy < 70_000; {
		if now := time.Now().UnixMicro(); now != last { // each at a microsecond of its own
			last, busy = now, busy+1
			require.True(t, take(t, f, "busy", l).Allowed)
		}
	}
	require.True(t, take(t, f, "other", l).Allowed)
	require.NoError(t, s.Restart())
	require.Eventually(t, func() bool { return f.Unavailable() == nil }, 2*patience, 10*time.Millisecond)
	fresh := newFleet(t, s.Options(), patient())
	require.False(t, take(t, fresh, "busy", l).Allowed)
	require.Equal(t, 18, take(t, fresh, "other", l).States[0].Remaining)
}

// TestAllowAllowsAsSoonAsRedisIsGone: also what Redis had denied before, and before the gateway gives it up.
func TestAllowAllowsAsSoonAsRedisIsGone(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []ratelimit.Algorithm{ratelimit.Exact, ratelimit.GCRA} {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			f := newFleet(t, s.Options(), ratelimit.Options{Algorithm: algorithm, OnOutage: ratelimit.Allow, Timeout: patience, MaxFailures: 1000})
			l := limit(2, time.Hour)
			require.Equal(t, 2, takeAtOnce(t, []ratelimit.Limiter{f}, 5, "k", l))
			require.False(t, take(t, f, "k", l).Allowed)
			require.NoError(t, s.Kill())
			take(t, f, "other", l) // finds out
			require.NoError(t, f.Unavailable())
			for range 5 {
				r, err := f.Peek(context.Background(), "k", ratelimit.Bucket{Key: "k", Limit: l})
				require.NoError(t, err)
				require.True(t, r.Allowed)
				require.True(t, take(t, f, "k", l).Allowed)
			}
		})
	}
}

// TestAnUndecodableValueTakesNoOtherCallersDecision, which shares a script run with it.
func TestAnUndecodableValueTakesNoOtherCallersDecision(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newFleet(t, s.Options(), patient())
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
		require.False(t, take(t, f, fmt.Sprint("bad", i), l).Allowed, "it is counted like any other")
	}
	require.GreaterOrEqual(t, byRedis.Load(), int64(400-40+4*5))
}
