package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

var algorithms = []ratelimit.Algorithm{ratelimit.Exact, ratelimit.GCRA}

func TestDeniedRequestsAreNotCounted(t *testing.T) {
	t.Parallel()
	clock := testClock{server: redistest.Start(t, redistest.WithClock())}
	o := ratelimit.Options{Now: clock.now}
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
		assert.False(t, r.Allowed)
		assert.Equal(t, ratelimit.ByRedis, r.By)
		assert.LessOrEqual(t, r.RetryAfter, window-time.Duration(clock.ahead.Load()))
	}
	// Both requests expire together with the first two, not later.
	clock.set(t, window)
	require.True(t, allow(t, f, "a", l).Allowed)
	require.True(t, allow(t, f, "a", l).Allowed)
	assert.False(t, allow(t, f, "a", l).Allowed)
}

func TestAllowCountsInAllCountersOrNone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiters := newLimiters(t, 2, s.Options, ratelimit.Options{Algorithm: algorithm})
			// Windows of an hour, because gcra refills before the end.
			wide := counter("address", ratelimit.Limit{Name: "wide", Requests: 5, Window: time.Hour})
			allowBoth := func(f ratelimit.Limiter, key string) ratelimit.Result {
				narrow := counter(key, ratelimit.Limit{Name: "narrow", Requests: 2, Window: time.Hour})
				r, err := f.Allow(context.Background(), "g", narrow, wide)
				require.NoError(t, err)
				return r
			}
			for i := range 2 {
				r := allowBoth(limiters[0], "a")
				require.True(t, r.Allowed)
				assert.Equal(t, 1-i, r.States[0].Remaining)
				assert.Equal(t, 4-i, r.States[1].Remaining)
			}
			for i := range 6 {
				r := allowBoth(limiters[1-i%2], "a")
				assert.False(t, r.Allowed)
				assert.Zero(t, r.States[0].Remaining)
				assert.Positive(t, r.States[0].RetryAfter)
				assert.Zero(t, r.States[1].RetryAfter)
			}
			for i := range 10 {
				assert.Equal(t, i < 3, allowBoth(limiters[1], fmt.Sprint("new", i)).Allowed, "the wide counter has counted only two requests")
			}
		})
	}
}

func TestPeekCountsNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiters := newLimiters(t, 2, s.Options, ratelimit.Options{Algorithm: algorithm})
			f, other := limiters[0], limiters[1]
			b := counter("p", limit(2, time.Hour))
			for range 5 {
				r, err := f.Peek(context.Background(), "p", b)
				require.NoError(t, err)
				assert.Equal(t, ratelimit.Result{
					Allowed: true, By: ratelimit.ByRedis,
					States: []ratelimit.State{{Limit: b.Limit, Remaining: 2, Reset: time.Hour}},
				}, r)
			}
			require.Zero(t, ratelimit.LocalWindows(f), "Peek must not create local windows")
			require.True(t, allow(t, f, "p", b.Limit).Allowed)
			require.True(t, allow(t, f, "p", b.Limit).Allowed)
			for _, g := range []ratelimit.Limiter{f, other, other} {
				r, err := g.Peek(context.Background(), "p", b)
				require.NoError(t, err)
				assert.False(t, r.Allowed)
				assert.Zero(t, r.States[0].Remaining)
				assert.Positive(t, r.RetryAfter)
			}
			require.EqualValues(t, 1, other.Stats().RoundTrips, "the second Peek must not ask Redis")
		})
	}
}

func TestDeniedCallersCostNoRoundTrip(t *testing.T) {
	t.Parallel()
	clock := testClock{server: redistest.Start(t, redistest.WithClock())}
	limiters := newLimiters(t, 2, clock.server.Options, ratelimit.Options{Now: clock.now})
	b := counter("m", limit(3, time.Hour))
	require.Equal(t, 3, allowConcurrently(t, limiters[:1], 3, "m", b.Limit))
	require.Equal(t, ratelimit.ByRedis, allow(t, limiters[1], "m", b.Limit).By)
	asked := []uint64{limiters[0].Stats().RoundTrips, limiters[1].Stats().RoundTrips}
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
		assert.Equal(t, ratelimit.ByMemory, r.By)
	}
	clock.set(t, b.Limit.Window)
	for i, f := range limiters {
		assert.Equal(t, asked[i], f.Stats().RoundTrips)
		assert.True(t, allow(t, f, "m", b.Limit).Allowed, "denials must end on time")
	}
}

func TestRaisedLimitIsNotDeniedLocally(t *testing.T) {
	t.Parallel()
	limiters := newLimiters(t, 2, redistest.Start(t).Options, ratelimit.Options{})
	low, high := limit(2, time.Minute), limit(5, time.Minute)
	require.Equal(t, 2, allowConcurrently(t, limiters[:1], 4, "o", low))
	require.False(t, allow(t, limiters[1], "o", low).Allowed)
	for _, f := range limiters {
		r := allow(t, f, "o", high)
		require.True(t, r.Allowed, "only the lower limit was denied")
		assert.Equal(t, ratelimit.ByRedis, r.By)
	}
	assert.Equal(t, 0, allow(t, limiters[0], "o", high).States[0].Remaining)
	assert.False(t, allow(t, limiters[0], "o", high).Allowed)
	assert.False(t, allow(t, limiters[1], "o", low).Allowed)
}

// TestCountersAreSeparate has counters that differ in policy or window only, and hostile keys.
func TestCountersAreSeparate(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newLimiter(t, s.Options(), ratelimit.Options{})
	l := limit(1, time.Minute)
	counters := []ratelimit.Counter{
		counter("same", l),
		counter("same", ratelimit.Limit{Name: "other", Requests: 1, Window: time.Minute}),
		counter("same", limit(1, time.Hour)),
	}
	for _, key := range []string{"", "{", "}", "{}", "a{b}c", "\x00", "a\x00b", "a b\r\nSET x y", "ключ", strings.Repeat("\x00", 4096)} {
		counters = append(counters, counter(key, l))
	}
	for _, b := range counters {
		require.True(t, allow(t, f, b.Key, b.Limit).Allowed, "%q", b)
		assert.False(t, allow(t, f, b.Key, b.Limit).Allowed, "%q", b)
	}
	ctx := context.Background()
	names, err := s.Client(t).Keys(ctx, "*").Result()
	require.NoError(t, err)
	require.Len(t, names, len(counters))
	for _, n := range names {
		assert.Regexp(t, `^gatehouse:limit:\{[A-Za-z0-9_-]{11}\}(test|other):[A-Za-z0-9_-]{22}$`, n)
		assert.Positive(t, s.Client(t).PTTL(ctx, n).Val(), "a counter must expire")
	}
	require.Contains(t, names, ratelimit.KeyName(ratelimit.Exact, "", counter("", l)))
}

func TestInvalidCallsCountNothing(t *testing.T) {
	t.Parallel()
	f := newLimiter(t, redistest.Start(t).Options(), ratelimit.Options{})
	ok := counter("k", limit(1, time.Minute))
	for name, counters := range map[string][]ratelimit.Counter{
		"none":              {},
		"too many":          make([]ratelimit.Counter, ratelimit.MaxCounters+1),
		"twice":             {ok, ok},
		"no name":           {ok, counter("k", ratelimit.Limit{Requests: 1, Window: time.Minute})},
		"name with newline": {ok, counter("k", ratelimit.Limit{Name: "a\r\nX: b", Requests: 1, Window: time.Minute})},
		"name not ASCII":    {ok, counter("k", ratelimit.Limit{Name: "\u00e9", Requests: 1, Window: time.Minute})},
		"no requests":       {ok, counter("l", limit(0, time.Minute))},
		"negative requests": {ok, counter("l", limit(-1, time.Minute))},
		"many requests":     {ok, counter("l", limit(ratelimit.MaxRequests+1, time.Minute))},
		"no window":         {ok, counter("l", limit(1, 0))},
		"long window":       {ok, counter("l", limit(1, ratelimit.MaxWindow+1))},
		"odd window":        {ok, counter("l", limit(1, time.Second+1))},
	} {
		_, err := f.Allow(context.Background(), "g", counters...)
		assert.ErrorIs(t, err, ratelimit.ErrInvalid, name)
		_, err = f.Peek(context.Background(), "g", counters...)
		assert.ErrorIs(t, err, ratelimit.ErrInvalid, name)
	}
	require.Zero(t, f.Stats().RoundTrips)
	require.Zero(t, ratelimit.LocalWindows(f))
	for i := range 100 {
		_, err := f.Allow(context.Background(), "g", counter("", ratelimit.Limit{Name: fmt.Sprint(i), Requests: 1, Window: time.Second}))
		if i < 64 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ratelimit.ErrInvalid, "the number of policies must be bounded")
		}
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	t.Parallel()
	good := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	deaf := []redis.UniversalClient{
		redis.NewClient(&redis.Options{}), redis.NewClusterClient(&redis.ClusterOptions{}), redis.NewRing(&redis.RingOptions{}),
	}
	for _, c := range []struct {
		want   string
		client redis.UniversalClient
		o      ratelimit.Options
	}{
		{"algorithm", good, ratelimit.Options{Algorithm: "fixed"}},
		{"on_outage", good, ratelimit.Options{OnOutage: "panic"}},
		{"braces", good, ratelimit.Options{Prefix: "a{b}"}},
		{"timeout", good, ratelimit.Options{Timeout: -1}},
		{"failures", good, ratelimit.Options{MaxFailures: -1}},
		{"interval", good, ratelimit.Options{ProbeInterval: -1}},
		{"entries", good, ratelimit.Options{MaxEntries: -1}},
		{"no Redis client", nil, ratelimit.Options{}},
		{"set ContextTimeoutEnabled", deaf[0], ratelimit.Options{}},
		{"set ContextTimeoutEnabled", deaf[1], ratelimit.Options{}},
		{"set ContextTimeoutEnabled", deaf[2], ratelimit.Options{}},
	} {
		_, err := ratelimit.New(c.client, c.o)
		assert.ErrorContains(t, err, c.want)
	}
	for _, client := range append(deaf, good) {
		require.NoError(t, client.Close())
	}
}

func TestCloseEndsEveryCall(t *testing.T) {
	t.Parallel()
	// Requests that are still in the queue when it is closed end with their timeout.
	f := newLimiter(t, redistest.Start(t).Options(), ratelimit.Options{Timeout: shortTimeout})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for {
				key := fmt.Sprint(i)
				_, err := f.Allow(context.Background(), key, counter(key, limit(1000, time.Minute)))
				if errors.Is(err, ratelimit.ErrClosed) {
					return
				}
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	require.Eventually(t, func() bool { return f.Stats().RoundTrips > 0 }, patience, time.Millisecond)
	require.NoError(t, f.Close())
	wg.Wait()
	require.NoError(t, f.Close(), "closing twice must be harmless")
}

func TestRestrictedUserOverTLS(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithTLS(t),
		redistest.WithUser("gateway", "s3cret", "~gatehouse:limit:* ~rate:gatehouse:limit:* resetchannels -@all +evalsha +eval +time +get +set +hello +client +auth +ping"))
	for _, algorithm := range algorithms {
		f := newLimiter(t, s.Options(), ratelimit.Options{Algorithm: algorithm})
		require.NoError(t, f.Ping(context.Background()))
		r := allow(t, f, "a", limit(5, time.Minute))
		require.True(t, r.Allowed)
		assert.Equal(t, ratelimit.ByRedis, r.By)
		require.NoError(t, f.Unavailable())
	}
}

func TestEmbeddedRedisServesBothAlgorithms(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			m, err := embeddedredis.Start()
			require.NoError(t, err)
			t.Cleanup(m.Close)
			f := newLimiter(t, &redis.UniversalOptions{Addrs: []string{m.Addr()}}, ratelimit.Options{Algorithm: algorithm})
			require.NoError(t, f.Ping(context.Background()))
			for i := range 12 {
				r := allow(t, f, "a", limit(10, time.Hour)) // gcra refills one request every 6 min
				assert.Equal(t, i < 10, r.Allowed)
				assert.Equal(t, max(0, 9-i), r.States[0].Remaining)
			}
		})
	}
}

func TestGCRARefillsOneRequestPerInterval(t *testing.T) {
	t.Parallel()
	clock := testClock{server: redistest.Start(t, redistest.WithClock())}
	f := newLimiter(t, clock.server.Options(), ratelimit.Options{Algorithm: ratelimit.GCRA, Now: clock.now})
	const interval = time.Hour
	l := limit(10, 10*interval)
	for i := range 10 {
		r := allow(t, f, "g", l)
		require.True(t, r.Allowed)
		assert.Equal(t, ratelimit.ByRedis, r.By)
		assert.Equal(t, 9-i, r.States[0].Remaining)
		assert.LessOrEqual(t, r.States[0].Reset, interval)
		assert.Positive(t, r.States[0].Reset)
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
		assert.False(t, allow(t, f, "g", l).Allowed, "must refill only one request per interval")
	}
	name := ratelimit.KeyName(ratelimit.GCRA, "g", counter("g", l))
	require.EqualValues(t, 1, clock.server.Client(t).Exists(context.Background(), name).Val())
}
