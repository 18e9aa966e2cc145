package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/script"
)

// A fakeClock is set by the test, in microseconds.
type fakeClock struct{ us atomic.Int64 }

func (c *fakeClock) now() int64 { return c.us.Load() }

func bucketOf(key string, requests int, w time.Duration) Bucket {
	return Bucket{Key: key, Limit: Limit{Name: "test", Requests: requests, Window: w}}
}

const sec = int64(1_000_000)

// decideLocally is an Allow in an outage, without the rest of the limiter.
func decideLocally(t testing.TB, l *locals, group string, buckets ...Bucket) Result {
	t.Helper()
	var r request
	require.NoError(t, r.prepare(l, group, buckets, true))
	res := Result{States: make([]State, len(buckets))}
	r.states = res.States
	if !r.begin(true) {
		r.decide(false, false, 50*time.Millisecond)
	}
	res.finish(ByLocal)
	return res
}

// A model is the rule by itself: all requests, each at its time.
type model struct{ at []int64 }

func (m *model) used(now, span int64) (n int, oldest int64) {
	for _, at := range m.at {
		if at+span > now {
			if n == 0 {
				oldest = at
			}
			n++
		}
	}
	return n, oldest
}

// state is what the state of a bucket should be.
func (m *model) state(now, span int64, limit int) (remaining, reset, retry int64) {
	n, oldest := m.used(now, span)
	remaining, reset = int64(max(0, limit-n)), span
	if n > 0 {
		reset = oldest + span - now
	}
	if n >= limit {
		excess := n - limit
		for _, at := range m.at {
			if at+span <= now {
				continue
			}
			if excess == 0 {
				retry = at + span - now
				break
			}
			excess--
		}
	}
	return remaining, reset, retry
}

// TestLocalWindowsFollowTheRule is the twin of the script's test.
func TestLocalWindowsFollowTheRule(t *testing.T) {
	t.Parallel()
	const span = 2 * sec
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		var clock fakeClock
		l := newLocals(1000, clock.now)
		models := make([]model, 3)
		limits := []int{1 + r.IntN(3), 2 + r.IntN(10), 1 + r.IntN(256)}
		for step := range 400 {
			switch r.IntN(10) {
			case 0:
				clock.us.Add(r.Int64N(span + span/2))
			case 1:
			case 2:
				if m := models[r.IntN(3)]; len(m.at) > 0 {
					clock.us.Store(max(clock.now(), m.at[r.IntN(len(m.at))]+span-r.Int64N(2)))
				}
			default:
				clock.us.Add(r.Int64N(span / 8))
			}
			if r.IntN(20) == 0 {
				limits[r.IntN(3)] = 1 + r.IntN(20)
			}
			if r.IntN(50) == 0 {
				l.sweep()
			}
			now := clock.now()
			which := r.Perm(3)[:1+r.IntN(3)]
			buckets := make([]Bucket, 0, 3)
			allowed := true
			for _, b := range which {
				buckets = append(buckets, bucketOf(fmt.Sprint(b), limits[b], 2*time.Second))
				n, _ := models[b].used(now, span)
				allowed = allowed && n < limits[b]
			}
			res := decideLocally(t, l, "g", buckets...)
			require.Equal(t, allowed, res.Allowed, "seed %d step %d", seed, step)
			for i, b := range which {
				if allowed {
					models[b].at = append(models[b].at, now)
				}
				remaining, reset, retry := models[b].state(now, span, limits[b])
				if allowed {
					retry = 0
				}
				require.Equal(t, State{
					Limit: buckets[i].Limit, Remaining: int(remaining), Reset: microseconds(reset), RetryAfter: microseconds(retry),
				}, res.States[i], "seed %d step %d", seed, step)
			}
		}
		clock.us.Add(2 * span)
		l.sweep()
		require.Zero(t, l.size())
	}
}

func TestTheClockOfLocalWindowsMayBeSetBack(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	clock.us.Store(1000 * sec)
	l := newLocals(100, clock.now)
	b := bucketOf("k", 2, time.Minute)
	require.True(t, decideLocally(t, l, "k", b).Allowed)
	clock.us.Store(400 * sec) // Now is a field: it may not be monotonic
	require.True(t, decideLocally(t, l, "k", b).Allowed)
	require.False(t, decideLocally(t, l, "k", b).Allowed)
	clock.us.Store(1060*sec - 1)
	require.False(t, decideLocally(t, l, "k", b).Allowed)
	clock.us.Store(1060 * sec)
	require.True(t, decideLocally(t, l, "k", b).Allowed)
}

// TestRequestsUnderWayCountInAnOutage: Redis may still admit them.
func TestRequestsUnderWayCountInAnOutage(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	l := newLocals(100, clock.now)
	b := []Bucket{bucketOf("k", 3, time.Minute)}
	var asked [2]request
	for i := range asked {
		require.NoError(t, asked[i].prepare(l, "k", b, true))
		asked[i].states = make([]State, 1)
		require.False(t, asked[i].begin(true))
		asked[i].ask(uint64(2*i+2), "p", 0, 0)
	}
	require.True(t, decideLocally(t, l, "k", b...).Allowed)
	r := decideLocally(t, l, "k", b...)
	require.False(t, r.Allowed, "two are under way and one is allowed")
	require.Equal(t, 50*time.Millisecond, r.RetryAfter, "until they are answered")
	asked[0].cancel()
	asked[1].call.Replies[0] = script.Reply{Remaining: 2, Reset: 60 * sec, Stored: 1}
	asked[1].answered()
	require.True(t, decideLocally(t, l, "k", b...).Allowed)
	require.False(t, decideLocally(t, l, "k", b...).Allowed)
}

// TestARequestWithoutAnAnswerCountsOnce: Redis may have counted it, or not.
func TestARequestWithoutAnAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	l := newLocals(100, clock.now)
	b := []Bucket{bucketOf("k", 3, time.Minute)}
	for stored := range uint64(2) {
		var r request
		require.NoError(t, r.prepare(l, "k", b, true))
		r.states = make([]State, 1)
		require.False(t, r.begin(true))
		r.ask(2, "p", 0, 0)
		r.decide(false, true, time.Second)
		require.Equal(t, ByLocal, r.by)
		require.Zero(t, r.states[0].RetryAfter)
		require.Equal(t, 2-int(stored), r.states[0].Remaining)
		require.NoError(t, r.prepare(l, "k", b, true))
		r.ask(4, "p", 0, 0)
		require.Equal(t, stored+1, r.call.Buckets[0].Seq)
		require.Zero(t, r.call.Buckets[0].Base)
		require.Equal(t, []script.Unsynced{{Count: 1 + int(stored)}}, r.call.Buckets[0].Unsynced)
	}
}

// TestMostDecisionsBeingLocalIsAnOverload, once, until it is over; a few are not.
func TestMostDecisionsBeingLocalIsAnOverload(t *testing.T) {
	t.Parallel()
	var o overload
	redis, local := uint64(0), uint64(0)
	for i, step := range []struct {
		redis, local uint64
		want         EventKind
	}{
		{1000, 400, ""}, {0, 19, ""}, {9, 11, Overloaded}, {100, 101, ""}, {0, 3, ""}, {5, 5, OverloadEnded}, {0, 0, ""}, {0, 50, Overloaded}, {0, 0, OverloadEnded},
	} {
		redis, local = redis+step.redis, local+step.local
		e, changed := o.look(redis, local)
		require.Equal(t, step.want, e.Kind, "step %d", i)
		require.Equal(t, step.want != "", changed)
	}
}

// TestDenialsFromMemoryTellRedissTimes: when the first unit comes back, and not when this gateway's own does.
func TestDenialsFromMemoryTellRedissTimes(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	l := newLocals(100, clock.now)
	b := []Bucket{bucketOf("k", 3, time.Minute)}
	clock.us.Add(sec)
	require.True(t, decideLocally(t, l, "k", b...).Allowed)
	var r request
	r.states = make([]State, 1)
	require.NoError(t, r.prepare(l, "k", b, true))
	require.False(t, r.begin(true))
	r.ask(2, "p", 0, 0)
	r.call.Replies[0] = script.Reply{Reset: 20 * sec, Retry: 30 * sec, Stored: 1}
	r.answered()
	for _, at := range []struct{ passed, reset, retry int64 }{{0, 20, 30}, {5, 15, 25}, {25, 5, 5}} {
		clock.us.Store((1 + at.passed) * sec)
		res := decideLocally(t, l, "k", b...)
		require.False(t, res.Allowed)
		require.Equal(t, State{
			Limit: b[0].Limit, Reset: time.Duration(at.reset) * time.Second, RetryAfter: time.Duration(at.retry) * time.Second,
		}, res.States[0])
	}
	clock.us.Store(31 * sec)
	require.True(t, decideLocally(t, l, "k", b...).Allowed)
}

func TestMemoryIsBoundedAndForgetsWhoUsedLeast(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	const maxEntries = 3200 // 100 a shard
	l := newLocals(maxEntries, clock.now)
	// 320 callers have used up their limit.
	for i := range 320 {
		for range 5 {
			require.True(t, decideLocally(t, l, "g", bucketOf(fmt.Sprint("full", i), 5, time.Minute)).Allowed)
		}
	}
	// A flood of addresses, each once.
	for i := range 30_000 {
		decideLocally(t, l, "g", bucketOf(fmt.Sprint("flood", i), 5, time.Minute))
		if i%3000 == 0 {
			require.LessOrEqual(t, l.size(), maxEntries)
		}
	}
	require.LessOrEqual(t, l.size(), maxEntries)
	require.Positive(t, l.evicted.Load())
	forgotten := 0
	for i := range 320 {
		if decideLocally(t, l, "g", bucketOf(fmt.Sprint("full", i), 5, time.Minute)).Allowed {
			forgotten++
		}
	}
	require.LessOrEqual(t, forgotten, 3, "who has used up the limit is remembered")
	// Another policy's table is not touched by the flood.
	other := Bucket{Key: "k", Limit: Limit{Name: "key", Requests: 2, Window: time.Minute}}
	require.True(t, decideLocally(t, l, "k", other).Allowed)
	require.Equal(t, 0, decideLocally(t, l, "k", other).States[0].Remaining)

	clock.us.Add(61 * sec)
	l.sweep()
	require.Zero(t, l.size())
	for _, tb := range *l.tables.Load() {
		for i := range tb.stripes {
			require.False(t, tb.stripes[i].grown)
		}
	}
}

// TestBytesPerCaller measures what a remembered caller takes of memory, for the
// documentation of Options.MaxEntries.
func TestBytesPerCaller(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const callers = 3000
	for requests, limit := range map[int]uint64{1: 250, 10: 380, 60: 780} {
		before := heap()
		var clock fakeClock
		l := newLocals(DefaultMaxEntries, clock.now)
		for i := range callers {
			for range requests {
				clock.us.Add(1)
				decideLocally(t, l, "g", bucketOf(fmt.Sprint(i), 100, time.Hour))
			}
		}
		require.Equal(t, callers, l.size())
		each := (heap() - before) / callers
		t.Logf("%d callers with %d requests: %d bytes each", callers, requests, each)
		require.LessOrEqual(t, each, limit)
		runtime.KeepAlive(l)
	}
}

// TestTenThousandAddressesAtOnce: bounded here and in Redis.
func TestTenThousandAddressesAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Start(t)
	o := s.Options()
	const patience = 30 * time.Second
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = patience, patience, patience
	TuneClient(o)
	client := redis.NewUniversalClient(o)
	defer func() { require.NoError(t, client.Close()) }()
	f, err := New(client, Options{MaxEntries: 4000, Timeout: patience})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	require.NoError(t, f.Ping(ctx))
	before := usedMemory(t, client)
	const addresses = 10_000
	var wg sync.WaitGroup
	for w := range 100 {
		wg.Go(func() {
			for i := w; i < addresses; i += 100 {
				for range 2 {
					group, b := ForAddress(fmt.Sprintf("10.0.%d.%d", i/256, i%256), AddressLimit(0))
					r, err := f.Allow(ctx, group, b)
					if err != nil || !r.Allowed || r.By != ByRedis {
						t.Errorf("%+v %v", r, err)
					}
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, f.Stats().Entries, 4000+stripeCount)
	each := (usedMemory(t, client) - before) / addresses
	t.Logf("an address with 2 requests takes %d bytes of Redis, all told", each)
	require.Less(t, each, int64(320))
	stats := f.Stats()
	t.Logf("%.1f takes a round trip", float64(stats.Asked)/float64(stats.RoundTrips))

	for requests, limit := range map[int]int64{1: 180, 10: 260, 60: 640} {
		b := bucketOf(fmt.Sprint("usage", requests), 100, time.Minute)
		for range requests {
			_, err := f.Allow(ctx, "u", b)
			require.NoError(t, err)
		}
		usage, err := client.MemoryUsage(ctx, f.KeyName("u", b)).Result()
		require.NoError(t, err)
		t.Logf("MEMORY USAGE of a bucket with %d requests: %d", requests, usage)
		require.LessOrEqual(t, usage, limit)
	}
}

func usedMemory(t testing.TB, client redis.UniversalClient) int64 {
	t.Helper()
	var used int64
	info := client.Info(context.Background(), "memory").Val()
	_, err := fmt.Sscanf(info, "# Memory\r\nused_memory:%d", &used)
	require.NoError(t, err)
	return used
}

func TestSlotsAreThoseOfACluster(t *testing.T) {
	t.Parallel()
	// What CLUSTER KEYSLOT says of the tags' texts.
	client := redistest.Start(t, redistest.WithConfig("cluster-enabled", "yes")).Client(t)
	for _, tg := range []tag{0, 1, 2, 1 << 63, hashGroup("a"), hashGroup("b")} {
		want := client.ClusterKeySlot(context.Background(), "x{"+string(tg.append(nil))+"}y").Val()
		require.EqualValues(t, want, tg.slot())
	}
}

// FuzzLocalWindowsAgainstTheRule plays takes at times of the fuzzer's choice.
func FuzzLocalWindowsAgainstTheRule(f *testing.F) {
	f.Add([]byte{1, 0, 0, 1, 0, 1, 255, 2, 3}, uint8(2))
	f.Add([]byte("the clock goes on and now and then back"), uint8(60))
	f.Fuzz(func(t *testing.T, steps []byte, requests uint8) {
		const span = 1000 // microseconds
		limit := int(requests) + 1
		var clock fakeClock
		l := newLocals(10, clock.now)
		var m model
		for _, step := range steps[:min(len(steps), 4000)] {
			clock.us.Add(int64(step) * int64(step) / 64)
			if step%16 == 0 {
				l.sweep()
			}
			now := clock.now()
			n, _ := m.used(now, span)
			r := decideLocally(t, l, "k", bucketOf("k", limit, span*time.Microsecond))
			require.Equal(t, n < limit, r.Allowed)
			if r.Allowed {
				m.at = append(m.at, now)
			} else {
				clock.us.Add(r.RetryAfter.Microseconds() - 1)
				require.False(t, decideLocally(t, l, "k", bucketOf("k", limit, span*time.Microsecond)).Allowed)
				clock.us.Add(1)
				require.True(t, decideLocally(t, l, "k", bucketOf("k", limit, span*time.Microsecond)).Allowed, "RetryAfter is exact")
				m.at = append(m.at, clock.now())
			}
		}
	})
}

// BenchmarkDecideLocally is a decision in an outage, without the rest of the limiter.
func BenchmarkDecideLocally(b *testing.B) {
	var clock fakeClock
	l := newLocals(DefaultMaxEntries, clock.now)
	buckets := []Bucket{bucketOf("k", 60, time.Minute)}
	var r request
	r.states = make([]State, 1)
	b.ReportAllocs()
	for b.Loop() {
		clock.us.Add(1_100_000)
		if err := r.prepare(l, "k", buckets, true); err != nil {
			b.Fatal(err)
		}
		if r.begin(true) {
			b.Fatal("denied")
		}
		if r.decide(false, false, 0); r.states[0].RetryAfter > 0 {
			b.Fatal("denied")
		}
	}
}
