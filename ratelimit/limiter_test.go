package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/embeddedredis"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// early is how long before an expiry a test checks that it has not happened yet: longer than any test takes.
const early = 10 * time.Minute

func TestThreeGatewaysAllowSixtyOfTwoHundredConcurrentRequests(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	limiters := newLimiters(t, 3, s.Options, withLongTimeout())
	require.Equal(t, 60, allowConcurrently(t, limiters, 200, "a", limit(60, time.Minute)))
	require.Zero(t, allowConcurrently(t, limiters, 50, "a", limit(60, time.Minute)))
	require.Equal(t, 10, allowConcurrently(t, limiters, 200, "b", limit(10, time.Minute)))
}

func TestSixtyFirstRequestIsDenied(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newLimiter(t, s.Options(), withLongTimeout())
	group, bucket := ratelimit.ForKey("pk_live_abcdefgh", ratelimit.KeyLimit(0))
	began := time.Now()
	for i := range 61 {
		r, err := f.Allow(context.Background(), group, bucket)
		require.NoError(t, err)
		require.Equal(t, i < 60, r.Allowed, "request %d", i+1)
		require.Equal(t, max(0, 59-i), r.States[0].Remaining)
		require.Positive(t, r.States[0].Reset)
		require.LessOrEqual(t, r.States[0].Reset, time.Minute)
		if i < 60 {
			require.Equal(t, ratelimit.ByRedis, r.By)
			require.Zero(t, r.RetryAfter)
		} else {
			// A minute after the first request, which came after began; 100 ms tolerance, because Redis has another clock.
			require.LessOrEqual(t, r.RetryAfter, time.Minute)
			require.GreaterOrEqual(t, r.RetryAfter, time.Minute-time.Since(began)-100*time.Millisecond)
			require.Equal(t, r.RetryAfter, r.States[0].RetryAfter)
		}
	}
}

// TestNoWindowExceedsTheLimit sends random load through three gateways and checks every window.
func TestNoWindowExceedsTheLimit(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	limiters := newLimiters(t, 3, s.Options, withLongTimeout())
	const window = 700 * time.Millisecond
	var wg sync.WaitGroup
	for _, n := range []int{1, 7, 60, 400} {
		wg.Go(func() {
			keys := []string{fmt.Sprint("a", n), fmt.Sprint("b", n)}
			// The smaller limits must be exhausted in at least one of a few rounds: on a busy machine the workers may send
			// less.
			usedUp := n > 7
			for rounds := 0; rounds == 0 || !usedUp && rounds < 5; rounds++ {
				began := time.Now()
				rec := load(t, after(4*window), 16, 4*time.Millisecond, limiters, keys, limit(n, window))
				windows := int(time.Since(began)/window) + 1
				assert.LessOrEqual(t, rec.worst(window), n)
				least := math.MaxInt
				for _, key := range keys {
					assert.LessOrEqual(t, rec.total(key), windows*n)
					least = min(least, rec.total(key))
				}
				usedUp = usedUp || least >= 3*n
			}
			assert.True(t, usedUp, "limit %d", n)
		})
	}
	wg.Wait()
}

func TestDeniedRequestsAreNotCounted(t *testing.T) {
	t.Parallel()
	clock := testClock{server: redistest.Start(t, redistest.WithClock())}
	o := withLongTimeout()
	o.Now = clock.now
	const window = time.Hour
	l := limit(2, window)
	f := newLimiter(t, clock.server.Options(), o)
	require.True(t, allow(t, f, "a", l).Allowed)
	require.True(t, allow(t, f, "a", l).Allowed)
	// New limiters have no local window, so each one asks Redis.
	const times = 20
	for i := range times {
		clock.set(t, time.Duration(i)*((window-early)/(times-1)))
		r := allow(t, newLimiter(t, clock.server.Options(), o), "a", l)
		require.False(t, r.Allowed)
		require.Equal(t, ratelimit.ByRedis, r.By)
		require.LessOrEqual(t, r.RetryAfter, window-time.Duration(clock.ahead.Load()))
	}
	// Both requests expire together with the first two, not later.
	clock.set(t, window)
	require.True(t, allow(t, f, "a", l).Allowed)
	require.True(t, allow(t, f, "a", l).Allowed)
	require.False(t, allow(t, f, "a", l).Allowed)
}

func TestAllowCountsInAllBucketsOrNone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, o := range []ratelimit.Options{withLongTimeout(), {Algorithm: ratelimit.GCRA, Timeout: longTimeout}} {
		t.Run("algorithm "+string(o.Algorithm), func(t *testing.T) {
			t.Parallel()
			f, other := newLimiter(t, s.Options(), o), newLimiter(t, s.Options(), o)
			// gcra refills within the window, but not before the test is over.
			wide := ratelimit.Bucket{Key: "address", Limit: ratelimit.Limit{Name: "wide", Requests: 5, Window: time.Hour}}
			narrow := func(key string) ratelimit.Bucket {
				return ratelimit.Bucket{Key: key, Limit: ratelimit.Limit{Name: "narrow", Requests: 2, Window: time.Hour}}
			}
			ctx := context.Background()
			for i := range 2 {
				r, err := f.Allow(ctx, "g", narrow("a"), wide)
				require.NoError(t, err)
				require.True(t, r.Allowed)
				require.Equal(t, 1-i, r.States[0].Remaining)
				require.Equal(t, 4-i, r.States[1].Remaining)
			}
			for range 3 {
				for _, g := range []ratelimit.Limiter{other, f} {
					r, err := g.Allow(ctx, "g", narrow("a"), wide)
					require.NoError(t, err)
					require.False(t, r.Allowed)
					require.Zero(t, r.States[0].Remaining)
					require.Positive(t, r.States[0].RetryAfter)
					require.Zero(t, r.States[1].RetryAfter)
				}
			}
			// The wide bucket was charged only twice: the rest is available to new keys.
			allowed := 0
			for i := range 10 {
				r, err := other.Allow(ctx, "g", narrow(fmt.Sprint("new", i)), wide)
				require.NoError(t, err)
				if r.Allowed {
					allowed++
				}
			}
			require.Equal(t, 3, allowed)
		})
	}
}

func TestPeekCountsNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, o := range []ratelimit.Options{withLongTimeout(), {Algorithm: ratelimit.GCRA, Timeout: longTimeout}} {
		t.Run("algorithm "+string(o.Algorithm), func(t *testing.T) {
			t.Parallel()
			f, other := newLimiter(t, s.Options(), o), newLimiter(t, s.Options(), o)
			b := ratelimit.Bucket{Key: "p", Limit: limit(2, time.Hour)}
			for range 5 {
				r, err := f.Peek(context.Background(), "p", b)
				require.NoError(t, err)
				require.Equal(t, ratelimit.Result{
					Allowed: true, By: ratelimit.ByRedis,
					States: []ratelimit.State{{Limit: b.Limit, Remaining: 2, Reset: time.Hour}},
				}, r)
			}
			require.Zero(t, f.Stats().Entries, "Peek must not create local windows")
			require.True(t, allow(t, f, "p", b.Limit).Allowed)
			require.True(t, allow(t, f, "p", b.Limit).Allowed)
			for _, g := range []ratelimit.Limiter{f, other, other} {
				r, err := g.Peek(context.Background(), "p", b)
				require.NoError(t, err)
				require.False(t, r.Allowed)
				require.Zero(t, r.States[0].Remaining)
				require.Positive(t, r.RetryAfter)
			}
			require.EqualValues(t, 1, other.Stats().Requests, "the second Peek must not ask Redis")
		})
	}
}

func TestDeniedCallersCostNoRoundTrip(t *testing.T) {
	t.Parallel()
	clock := testClock{server: redistest.Start(t, redistest.WithClock())}
	o := withLongTimeout()
	o.Now = clock.now
	limiters := newLimiters(t, 2, clock.server.Options, o)
	b := ratelimit.Bucket{Key: "m", Limit: limit(3, time.Hour)}
	require.Equal(t, 3, allowConcurrently(t, limiters[:1], 3, "m", b.Limit))
	first := allow(t, limiters[1], "m", b.Limit)
	require.Equal(t, ratelimit.ByRedis, first.By)
	asked := []uint64{limiters[0].Stats().Requests, limiters[1].Stats().Requests}
	for i := range 200 {
		if i == 100 {
			clock.set(t, b.Limit.Window-early)
		}
		r := allow(t, limiters[i%2], "m", b.Limit)
		require.False(t, r.Allowed)
		require.Equal(t, ratelimit.ByMemory, r.By)
		require.Zero(t, r.States[0].Remaining)
		require.Equal(t, b.Limit, r.States[0].Limit)
		require.Positive(t, r.States[0].Reset)
		require.Positive(t, r.RetryAfter)
		require.LessOrEqual(t, r.RetryAfter, b.Limit.Window)
		r, err := limiters[i%2].Peek(context.Background(), "m", b)
		require.NoError(t, err)
		require.Equal(t, ratelimit.ByMemory, r.By)
	}
	require.Equal(t, asked[0], limiters[0].Stats().Requests)
	require.Equal(t, asked[1], limiters[1].Stats().Requests)
	// The denials end on time.
	clock.set(t, b.Limit.Window)
	require.True(t, allow(t, limiters[1], "m", b.Limit).Allowed)
	require.True(t, allow(t, limiters[0], "m", b.Limit).Allowed)
}

func TestRaisedLimitIsNotDeniedLocally(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f, other := newLimiter(t, s.Options(), withLongTimeout()), newLimiter(t, s.Options(), withLongTimeout())
	low, high := limit(2, time.Minute), limit(5, time.Minute)
	require.Equal(t, 2, allowConcurrently(t, []ratelimit.Limiter{f}, 4, "o", low))
	require.False(t, allow(t, other, "o", low).Allowed)
	for _, g := range []ratelimit.Limiter{f, other} {
		r := allow(t, g, "o", high)
		require.True(t, r.Allowed, "only the lower limit was denied")
		require.Equal(t, ratelimit.ByRedis, r.By)
	}
	require.Equal(t, 0, allow(t, f, "o", high).States[0].Remaining)
	require.False(t, allow(t, f, "o", high).Allowed)
	require.False(t, allow(t, other, "o", low).Allowed)
}

func TestPoliciesAndWindowsHaveSeparateBuckets(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newLimiter(t, s.Options(), withLongTimeout())
	for _, l := range []ratelimit.Limit{
		{Name: "a", Requests: 1, Window: time.Minute},
		{Name: "b", Requests: 1, Window: time.Minute},
		{Name: "a", Requests: 1, Window: time.Hour},
	} {
		require.True(t, allow(t, f, "same", l).Allowed)
		require.False(t, allow(t, f, "same", l).Allowed)
	}
}

func TestHostileKeysHaveSeparateBuckets(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newLimiter(t, s.Options(), withLongTimeout())
	l := limit(1, time.Minute)
	keys := []string{"", "{", "}", "{}", "a{b}c", "\x00", "a\x00b", "a b\r\nSET x y", "ключ", string(make([]byte, 4096))}
	for _, k := range keys {
		require.True(t, allow(t, f, k, l).Allowed, "%q", k)
		require.False(t, allow(t, f, k, l).Allowed, "%q", k)
	}
	ctx := context.Background()
	names, err := s.Client(t).Keys(ctx, "*").Result()
	require.NoError(t, err)
	buckets := 0
	for _, n := range names {
		require.Regexp(t, `^gatehouse:rl:\{[A-Za-z0-9_-]{11}\}test:[A-Za-z0-9_-]{22}$`, n)
		buckets++
		require.Positive(t, s.Client(t).PTTL(ctx, n).Val(), "a bucket must expire")
	}
	require.Equal(t, len(keys), buckets)
	require.Contains(t, names, f.KeyName("", ratelimit.Bucket{Key: "", Limit: l}))
}

func TestInvalidCallsCountNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newLimiter(t, s.Options(), withLongTimeout())
	ok := ratelimit.Bucket{Key: "k", Limit: limit(1, time.Minute)}
	for name, buckets := range map[string][]ratelimit.Bucket{
		"none":              {},
		"too many":          make([]ratelimit.Bucket, ratelimit.MaxBuckets+1),
		"twice":             {ok, ok},
		"no name":           {ok, {Key: "k", Limit: ratelimit.Limit{Requests: 1, Window: time.Minute}}},
		"no requests":       {ok, {Key: "l", Limit: limit(0, time.Minute)}},
		"negative requests": {ok, {Key: "l", Limit: limit(-1, time.Minute)}},
		"many requests":     {ok, {Key: "l", Limit: limit(ratelimit.MaxRequests+1, time.Minute)}},
		"no window":         {ok, {Key: "l", Limit: limit(1, 0)}},
		"long window":       {ok, {Key: "l", Limit: limit(1, ratelimit.MaxWindow+1)}},
		"odd window":        {ok, {Key: "l", Limit: limit(1, time.Second+1)}},
	} {
		_, err := f.Allow(context.Background(), "g", buckets...)
		require.ErrorIs(t, err, ratelimit.ErrInvalid, name)
		_, err = f.Peek(context.Background(), "g", buckets...)
		require.ErrorIs(t, err, ratelimit.ErrInvalid, name)
	}
	require.Zero(t, f.Stats().Requests)
	require.Zero(t, f.Stats().Entries)
	for i := range 100 {
		_, err := f.Allow(context.Background(), "g", ratelimit.Bucket{Limit: ratelimit.Limit{Name: fmt.Sprint(i), Requests: 1, Window: time.Second}})
		if i < 63 { // and "test"
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ratelimit.ErrInvalid, "the number of policies must be bounded")
		}
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	for want, o := range map[string]ratelimit.Options{
		"algorithm":     {Algorithm: "fixed"},
		"outage policy": {OnOutage: "panic"},
		"braces":        {Prefix: "a{b}"},
		"timeout":       {Timeout: -1},
		"failures":      {MaxFailures: -1},
		"interval":      {ProbeInterval: -1},
		"entries":       {MaxEntries: -1},
	} {
		_, err := ratelimit.New(client, o)
		require.ErrorContains(t, err, want)
	}
	_, err := ratelimit.New(nil, ratelimit.Options{})
	require.ErrorContains(t, err, "client")
	for _, deaf := range []redis.UniversalClient{
		redis.NewClient(&redis.Options{}),
		redis.NewClusterClient(&redis.ClusterOptions{}),
		redis.NewRing(&redis.RingOptions{}),
	} {
		_, err = ratelimit.New(deaf, ratelimit.Options{})
		require.ErrorContains(t, err, "ContextTimeoutEnabled")
		require.NoError(t, deaf.Close())
	}
}

func TestAllowAfterCloseReturnsErrClosed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newLimiter(t, s.Options(), withLongTimeout())
	require.True(t, allow(t, f, "a", limit(1, time.Minute)).Allowed)
	require.NoError(t, f.Close())
	_, err := f.Allow(context.Background(), "b", ratelimit.Bucket{Key: "b", Limit: limit(1, time.Minute)})
	require.ErrorIs(t, err, ratelimit.ErrClosed)
	require.NoError(t, f.Close(), "closing twice must be harmless")
}

func TestCloseUnderLoadEndsEveryCall(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	// Requests that are still in the queue when it is closed end with their timeout.
	f := newLimiter(t, s.Options(), withShortTimeout())
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for {
				key := fmt.Sprint(i)
				_, err := f.Allow(context.Background(), key, ratelimit.Bucket{Key: key, Limit: limit(1000, time.Minute)})
				if errors.Is(err, ratelimit.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	<-after(50 * time.Millisecond)
	require.NoError(t, f.Close())
	wg.Wait()
}

func TestRestrictedUserOverTLS(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithTLS(),
		redistest.WithUser("gateway", "s3cret", "~gatehouse:rl:* ~rate:gatehouse:rl:* resetchannels -@all +evalsha +eval +time +get +set +hello +client +auth +ping"))
	for _, o := range []ratelimit.Options{withLongTimeout(), {Algorithm: ratelimit.GCRA, Timeout: longTimeout}} {
		f := newLimiter(t, s.Options(), o)
		require.NoError(t, f.Ping(context.Background()))
		r := allow(t, f, "a", limit(5, time.Minute))
		require.True(t, r.Allowed)
		require.Equal(t, ratelimit.ByRedis, r.By)
		require.NoError(t, f.Unavailable())
	}
}

func TestEmbeddedRedisServesBothAlgorithms(t *testing.T) {
	t.Parallel()
	for _, o := range []ratelimit.Options{withLongTimeout(), {Algorithm: ratelimit.GCRA, Timeout: longTimeout}} {
		t.Run("algorithm "+string(o.Algorithm), func(t *testing.T) {
			t.Parallel()
			m, err := embeddedredis.Start()
			require.NoError(t, err)
			t.Cleanup(m.Close)
			f := newLimiter(t, &redis.UniversalOptions{Addrs: []string{m.Addr()}}, o)
			require.NoError(t, f.Ping(context.Background()))
			for i := range 12 {
				r := allow(t, f, "a", limit(10, time.Hour)) // gcra refills one request every 6 min
				require.Equal(t, i < 10, r.Allowed)
				require.Equal(t, max(0, 9-i), r.States[0].Remaining)
			}
		})
	}
}

func TestGCRARefillsOneRequestPerInterval(t *testing.T) {
	t.Parallel()
	clock := testClock{server: redistest.Start(t, redistest.WithClock())}
	f := newLimiter(t, clock.server.Options(), ratelimit.Options{Algorithm: ratelimit.GCRA, Timeout: longTimeout, Now: clock.now})
	const interval = time.Hour
	l := limit(10, 10*interval)
	for i := range 10 {
		r := allow(t, f, "g", l)
		require.True(t, r.Allowed)
		require.Equal(t, ratelimit.ByRedis, r.By)
		require.Equal(t, 9-i, r.States[0].Remaining)
		require.LessOrEqual(t, r.States[0].Reset, interval)
		require.Positive(t, r.States[0].Reset)
	}
	r := allow(t, f, "g", l)
	require.False(t, r.Allowed)
	require.Zero(t, r.States[0].Remaining)
	require.LessOrEqual(t, r.RetryAfter, interval)
	require.Equal(t, ratelimit.ByMemory, allow(t, f, "g", l).By)
	for n := range 3 {
		clock.set(t, time.Duration(n+1)*interval-early)
		require.False(t, allow(t, f, "g", l).Allowed, "must not refill before the interval is over")
		clock.set(t, time.Duration(n+1)*interval)
		require.True(t, allow(t, f, "g", l).Allowed)
		require.False(t, allow(t, f, "g", l).Allowed, "must refill only one request per interval")
	}
	require.Contains(t, f.KeyName("g", ratelimit.Bucket{Key: "g", Limit: l}), "rate:gatehouse:rl:{")
	require.EqualValues(t, 1, clock.server.Client(t).Exists(context.Background(), f.KeyName("g", ratelimit.Bucket{Key: "g", Limit: l})).Val())
}
