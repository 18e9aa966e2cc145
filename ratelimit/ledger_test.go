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
)

// A fakeClock is set by the test, in microseconds.
type fakeClock struct{ us atomic.Int64 }

func (c *fakeClock) now() int64 { return c.us.Load() }

func bucketOf(key string, requests int, w time.Duration) Bucket {
	return Bucket{Key: key, Limit: Limit{Name: "test", Requests: requests, Window: w}}
}

// decideLocally is a Take in an outage, without the Fleet.
func decideLocally(t testing.TB, l *ledger, group string, buckets ...Bucket) Result {
	t.Helper()
	var o op
	require.NoError(t, o.prepare(l, Exact, group, buckets))
	r := Result{States: make([]State, len(buckets))}
	if refused, _ := o.begin(r.States, true, false, false); !refused {
		o.local(r.States, nil, false, true, 50_000)
	}
	r.finish(ByLocal)
	return r
}

// TestTheLedgerGivesTheVerdictsOfTheRule is the twin of the script's test.
func TestTheLedgerGivesTheVerdictsOfTheRule(t *testing.T) {
	t.Parallel()
	const span = 2 * sec
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		var clock fakeClock
		l := newLedger(1000, clock.now)
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

func TestTheLedgersClockMayBeSetBack(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	clock.us.Store(1000 * sec)
	l := newLedger(100, clock.now)
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

// TestTakesUnderWayCountInAnOutage: Redis may still admit them.
func TestTakesUnderWayCountInAnOutage(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	l := newLedger(100, clock.now)
	b := []Bucket{bucketOf("k", 3, time.Minute)}
	states := make([]State, 1)
	var asked [2]op
	for i := range asked {
		require.NoError(t, asked[i].prepare(l, Exact, "k", b))
		refused, _ := asked[i].begin(states, true, true, false)
		require.False(t, refused)
	}
	require.True(t, decideLocally(t, l, "k", b...).Allowed)
	r := decideLocally(t, l, "k", b...)
	require.False(t, r.Allowed, "two are under way and one is admitted")
	require.Equal(t, 50*time.Millisecond, r.RetryAfter, "until they are answered")
	asked[0].cancel(nil)
	require.True(t, asked[1].admitted(states, true))
	require.True(t, decideLocally(t, l, "k", b...).Allowed)
	require.False(t, decideLocally(t, l, "k", b...).Allowed)
}

// TestRedisCannotAdmitBeyondWhatThisGatewayKnows: it has come back empty while a
// take was under way.
func TestRedisCannotAdmitBeyondWhatThisGatewayKnows(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	l := newLedger(100, clock.now)
	b := []Bucket{bucketOf("k", 2, time.Minute), bucketOf("other", 2, time.Minute)}
	asked := make([]op, 3)
	for i := range asked {
		require.NoError(t, asked[i].prepare(l, Exact, "k", b))
		refused, _ := asked[i].begin(make([]State, 2), true, true, false)
		require.False(t, refused)
	}
	for i := range asked {
		states := []State{{Remaining: 1, Reset: time.Minute}, {Remaining: 1, Reset: time.Minute}}
		require.Equal(t, i < 2, asked[i].admitted(states, true))
		if i == 2 {
			require.Equal(t, time.Minute, states[0].RetryAfter)
			require.Zero(t, states[0].Remaining)
		} else {
			require.Equal(t, 1-i, states[0].Remaining, "the less of what the two know")
		}
	}
}

func TestMemoryIsBoundedAndForgetsWhoUsedLeast(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	const maxEntries = 3200 // 100 a shard
	l := newLedger(maxEntries, clock.now)
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
		for i := range tb.shards {
			require.False(t, tb.shards[i].grown)
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
		l := newLedger(DefaultMaxEntries, clock.now)
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
					r, err := f.Take(ctx, group, b)
					if err != nil || !r.Allowed || r.By != ByRedis {
						t.Errorf("%+v %v", r, err)
					}
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, f.Stats().Entries, 4000+shardCount)
	each := (usedMemory(t, client) - before) / addresses
	t.Logf("an address with 2 requests takes %d bytes of Redis, all told", each)
	require.Less(t, each, int64(320))
	stats := f.Stats()
	t.Logf("%.1f takes a round trip", float64(stats.Asked)/float64(stats.RoundTrips))

	for requests, limit := range map[int]int64{1: 180, 10: 260, 60: 640} {
		b := bucketOf(fmt.Sprint("usage", requests), 100, time.Minute)
		for range requests {
			_, err := f.Take(ctx, "u", b)
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

// FuzzLedgerAgainstRule plays takes at times of the fuzzer's choice.
func FuzzLedgerAgainstRule(f *testing.F) {
	f.Add([]byte{1, 0, 0, 1, 0, 1, 255, 2, 3}, uint8(2))
	f.Add([]byte("the clock goes on and now and then back"), uint8(60))
	f.Fuzz(func(t *testing.T, steps []byte, requests uint8) {
		const span = 1000 // microseconds
		limit := int(requests) + 1
		var clock fakeClock
		l := newLedger(10, clock.now)
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

// BenchmarkLedgerLocal is a verdict in an outage without the Fleet around it: 0.65
// microseconds, no allocation.
func BenchmarkLedgerLocal(b *testing.B) {
	var clock fakeClock
	l := newLedger(DefaultMaxEntries, clock.now)
	buckets := []Bucket{bucketOf("k", 60, time.Minute)}
	states := make([]State, 1)
	b.ReportAllocs()
	for b.Loop() {
		clock.us.Add(1_100_000)
		var o op
		if err := o.prepare(l, Exact, "k", buckets); err != nil {
			b.Fatal(err)
		}
		if refused, _ := o.begin(states, true, false, false); refused || !o.local(states, nil, false, true, 50_000) {
			b.Fatal("refused")
		}
	}
}
