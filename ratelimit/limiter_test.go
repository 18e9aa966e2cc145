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
	"github.com/gatehouse-gateway/gatehouse/internal/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// early is how long before a unit comes back a test sees that it has not: longer than any test takes.
const early = 10 * time.Minute

func TestSixtyOfTwoHundredAtOncePassThroughThreeGateways(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	fleets := newFleets(t, 3, s.Options, patient())
	require.Equal(t, 60, takeAtOnce(t, fleets, 200, "a", limit(60, time.Minute)))
	require.Zero(t, takeAtOnce(t, fleets, 50, "a", limit(60, time.Minute)))
	require.Equal(t, 10, takeAtOnce(t, fleets, 200, "b", limit(10, time.Minute)))
}

func TestOneByOneTheSixtyFirstIsRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newFleet(t, s.Options(), patient())
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
			// A minute from the first one, which came after began; 100 ms for Redis's clock, which is another one.
			require.LessOrEqual(t, r.RetryAfter, time.Minute)
			require.GreaterOrEqual(t, r.RetryAfter, time.Minute-time.Since(began)-100*time.Millisecond)
			require.Equal(t, r.RetryAfter, r.States[0].RetryAfter)
		}
	}
}

// TestNoWindowHoldsMoreThanTheLimit puts random loads on three gateways and looks
// at every window.
func TestNoWindowHoldsMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	fleets := newFleets(t, 3, s.Options, patient())
	const window = 700 * time.Millisecond
	var wg sync.WaitGroup
	for _, n := range []int{1, 7, 60, 400} {
		wg.Go(func() {
			keys := []string{fmt.Sprint("a", n), fmt.Sprint("b", n)}
			// The smaller limits are used up, too, at least once in a few times: a machine that does not let
			// these workers run for a while has them ask for less.
			usedUp := n > 7
			for rounds := 0; rounds == 0 || !usedUp && rounds < 5; rounds++ {
				began := time.Now()
				rec := storm(t, after(4*window), 16, 4*time.Millisecond, fleets, keys, limit(n, window))
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

func TestRefusedRequestsAreNotCounted(t *testing.T) {
	t.Parallel()
	clock := movedClock{server: redistest.Start(t, redistest.WithClock())}
	o := patient()
	o.Now = clock.now
	const window = time.Hour
	l := limit(2, window)
	f := newFleet(t, clock.server.Options(), o)
	require.True(t, take(t, f, "a", l).Allowed)
	require.True(t, take(t, f, "a", l).Allowed)
	// Without a memory in between: each gateway is asked once, in the course of the window.
	const times = 20
	for i := range times {
		clock.set(t, time.Duration(i)*((window-early)/(times-1)))
		r := take(t, newFleet(t, clock.server.Options(), o), "a", l)
		require.False(t, r.Allowed)
		require.Equal(t, ratelimit.ByRedis, r.By)
		require.LessOrEqual(t, r.RetryAfter, window-time.Duration(clock.ahead.Load()))
	}
	// Both units come back when the first two have left, not later.
	clock.set(t, window)
	require.True(t, take(t, f, "a", l).Allowed)
	require.True(t, take(t, f, "a", l).Allowed)
	require.False(t, take(t, f, "a", l).Allowed)
}

func TestEveryBucketOfATakeIsChargedOrNone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, o := range []ratelimit.Options{patient(), {Algorithm: ratelimit.GCRA, Timeout: patience}} {
		t.Run("algorithm "+string(o.Algorithm), func(t *testing.T) {
			t.Parallel()
			f, other := newFleet(t, s.Options(), o), newFleet(t, s.Options(), o)
			// gcra gives a unit back within the window: not before the test is over.
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
			// The wide one has been charged twice only: new keys get what is left.
			admitted := 0
			for i := range 10 {
				r, err := other.Allow(ctx, "g", narrow(fmt.Sprint("new", i)), wide)
				require.NoError(t, err)
				if r.Allowed {
					admitted++
				}
			}
			require.Equal(t, 3, admitted)
		})
	}
}

func TestPeekChargesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, o := range []ratelimit.Options{patient(), {Algorithm: ratelimit.GCRA, Timeout: patience}} {
		t.Run("algorithm "+string(o.Algorithm), func(t *testing.T) {
			t.Parallel()
			f, other := newFleet(t, s.Options(), o), newFleet(t, s.Options(), o)
			b := ratelimit.Bucket{Key: "p", Limit: limit(2, time.Hour)}
			for range 5 {
				r, err := f.Peek(context.Background(), "p", b)
				require.NoError(t, err)
				require.Equal(t, ratelimit.Result{
					Allowed: true, By: ratelimit.ByRedis,
					States: []ratelimit.State{{Limit: b.Limit, Remaining: 2, Reset: time.Hour}},
				}, r)
			}
			require.Zero(t, f.Stats().Entries, "a peek leaves nothing behind")
			require.True(t, take(t, f, "p", b.Limit).Allowed)
			require.True(t, take(t, f, "p", b.Limit).Allowed)
			for _, g := range []ratelimit.Limiter{f, other, other} {
				r, err := g.Peek(context.Background(), "p", b)
				require.NoError(t, err)
				require.False(t, r.Allowed)
				require.Zero(t, r.States[0].Remaining)
				require.Positive(t, r.RetryAfter)
			}
			require.EqualValues(t, 1, other.Stats().Asked, "the second peek was answered from memory")
		})
	}
}

func TestRefusedCallersCostNoRoundTrip(t *testing.T) {
	t.Parallel()
	clock := movedClock{server: redistest.Start(t, redistest.WithClock())}
	o := patient()
	o.Now = clock.now
	fleets := newFleets(t, 2, clock.server.Options, o)
	b := ratelimit.Bucket{Key: "m", Limit: limit(3, time.Hour)}
	require.Equal(t, 3, takeAtOnce(t, fleets[:1], 3, "m", b.Limit))
	first := take(t, fleets[1], "m", b.Limit)
	require.Equal(t, ratelimit.ByRedis, first.By)
	asked := []uint64{fleets[0].Stats().Asked, fleets[1].Stats().Asked}
	for i := range 200 {
		if i == 100 {
			clock.set(t, b.Limit.Window-early)
		}
		r := take(t, fleets[i%2], "m", b.Limit)
		require.False(t, r.Allowed)
		require.Equal(t, ratelimit.ByMemory, r.By)
		require.Zero(t, r.States[0].Remaining)
		require.Equal(t, b.Limit, r.States[0].Limit)
		require.Positive(t, r.States[0].Reset)
		require.Positive(t, r.RetryAfter)
		require.LessOrEqual(t, r.RetryAfter, b.Limit.Window)
		r, err := fleets[i%2].Peek(context.Background(), "m", b)
		require.NoError(t, err)
		require.Equal(t, ratelimit.ByMemory, r.By)
	}
	require.Equal(t, asked[0], fleets[0].Stats().Asked)
	require.Equal(t, asked[1], fleets[1].Stats().Asked)
	// And it ends when it should.
	clock.set(t, b.Limit.Window)
	require.True(t, take(t, fleets[1], "m", b.Limit).Allowed)
	require.True(t, take(t, fleets[0], "m", b.Limit).Allowed)
}

func TestARaisedLimitIsNotRefusedFromMemory(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f, other := newFleet(t, s.Options(), patient()), newFleet(t, s.Options(), patient())
	low, high := limit(2, time.Minute), limit(5, time.Minute)
	require.Equal(t, 2, takeAtOnce(t, []ratelimit.Limiter{f}, 4, "o", low))
	require.False(t, take(t, other, "o", low).Allowed)
	for _, g := range []ratelimit.Limiter{f, other} {
		r := take(t, g, "o", high)
		require.True(t, r.Allowed, "what was refused was the lower limit")
		require.Equal(t, ratelimit.ByRedis, r.By)
	}
	require.Equal(t, 0, take(t, f, "o", high).States[0].Remaining)
	require.False(t, take(t, f, "o", high).Allowed)
	require.False(t, take(t, other, "o", low).Allowed)
}

func TestPoliciesAndWindowsDoNotShareABucket(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newFleet(t, s.Options(), patient())
	for _, l := range []ratelimit.Limit{
		{Name: "a", Requests: 1, Window: time.Minute},
		{Name: "b", Requests: 1, Window: time.Minute},
		{Name: "a", Requests: 1, Window: time.Hour},
	} {
		require.True(t, take(t, f, "same", l).Allowed)
		require.False(t, take(t, f, "same", l).Allowed)
	}
}

func TestHostileKeysStayInTheirBucket(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newFleet(t, s.Options(), patient())
	l := limit(1, time.Minute)
	keys := []string{"", "{", "}", "{}", "a{b}c", "\x00", "a\x00b", "a b\r\nSET x y", "ключ", string(make([]byte, 4096))}
	for _, k := range keys {
		require.True(t, take(t, f, k, l).Allowed, "%q", k)
		require.False(t, take(t, f, k, l).Allowed, "%q", k)
	}
	ctx := context.Background()
	names, err := s.Client(t).Keys(ctx, "*").Result()
	require.NoError(t, err)
	buckets := 0
	for _, n := range names {
		require.Regexp(t, `^gatehouse:rl:\{[A-Za-z0-9_-]{11}\}test:[A-Za-z0-9_-]{22}$`, n)
		buckets++
		require.Positive(t, s.Client(t).PTTL(ctx, n).Val(), "a bucket ends by itself")
	}
	require.Equal(t, len(keys), buckets)
	require.Contains(t, names, f.KeyName("", ratelimit.Bucket{Key: "", Limit: l}))
}

func TestInvalidTakesChargeNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newFleet(t, s.Options(), patient())
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
	require.Zero(t, f.Stats().Asked)
	require.Zero(t, f.Stats().Entries)
	for i := range 100 {
		_, err := f.Allow(context.Background(), "g", ratelimit.Bucket{Limit: ratelimit.Limit{Name: fmt.Sprint(i), Requests: 1, Window: time.Second}})
		if i < 63 { // and "test"
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ratelimit.ErrInvalid, "policies are bounded")
		}
	}
}

func TestWrongOptionsAreErrors(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	for want, o := range map[string]ratelimit.Options{
		"algorithm": {Algorithm: "fixed"},
		"outages":   {OnOutage: "panic"},
		"braces":    {Prefix: "a{b}"},
		"timeout":   {Timeout: -1},
		"failures":  {MaxFailures: -1},
		"interval":  {ProbeInterval: -1},
		"entries":   {MaxEntries: -1},
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

func TestClosedFleetTakesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newFleet(t, s.Options(), patient())
	require.True(t, take(t, f, "a", limit(1, time.Minute)).Allowed)
	require.NoError(t, f.Close())
	_, err := f.Allow(context.Background(), "b", ratelimit.Bucket{Key: "b", Limit: limit(1, time.Minute)})
	require.ErrorIs(t, err, ratelimit.ErrClosed)
	require.NoError(t, f.Close(), "closing twice is no harm")
}

func TestClosingUnderLoadEndsEveryTake(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	// Those who have no place on a round trip when it is closed learn it by their timeout.
	f := newFleet(t, s.Options(), hasty())
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

func TestUserWithFewRightsAndTLS(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithTLS(),
		redistest.WithUser("gateway", "s3cret", "~gatehouse:rl:* ~rate:gatehouse:rl:* resetchannels -@all +evalsha +eval +time +get +set +hello +client +auth +ping"))
	for _, o := range []ratelimit.Options{patient(), {Algorithm: ratelimit.GCRA, Timeout: patience}} {
		f := newFleet(t, s.Options(), o)
		require.NoError(t, f.Ping(context.Background()))
		r := take(t, f, "a", limit(5, time.Minute))
		require.True(t, r.Allowed)
		require.Equal(t, ratelimit.ByRedis, r.By)
		require.NoError(t, f.Unavailable())
	}
}

func TestTheEmbeddedStandInServesBothAlgorithms(t *testing.T) {
	t.Parallel()
	for _, o := range []ratelimit.Options{patient(), {Algorithm: ratelimit.GCRA, Timeout: patience}} {
		t.Run("algorithm "+string(o.Algorithm), func(t *testing.T) {
			t.Parallel()
			m, err := embeddedredis.Start()
			require.NoError(t, err)
			t.Cleanup(m.Close)
			f := newFleet(t, &redis.UniversalOptions{Addrs: []string{m.Addr()}}, o)
			require.NoError(t, f.Ping(context.Background()))
			for i := range 12 {
				r := take(t, f, "a", limit(10, time.Hour)) // gcra gives a unit back every 6 min
				require.Equal(t, i < 10, r.Allowed)
				require.Equal(t, max(0, 9-i), r.States[0].Remaining)
			}
		})
	}
}

func TestGCRASpreadsItsBurst(t *testing.T) {
	t.Parallel()
	clock := movedClock{server: redistest.Start(t, redistest.WithClock())}
	f := newFleet(t, clock.server.Options(), ratelimit.Options{Algorithm: ratelimit.GCRA, Timeout: patience, Now: clock.now})
	const interval = time.Hour
	l := limit(10, 10*interval)
	for i := range 10 {
		r := take(t, f, "g", l)
		require.True(t, r.Allowed)
		require.Equal(t, ratelimit.ByRedis, r.By)
		require.Equal(t, 9-i, r.States[0].Remaining)
		require.LessOrEqual(t, r.States[0].Reset, interval)
		require.Positive(t, r.States[0].Reset)
	}
	r := take(t, f, "g", l)
	require.False(t, r.Allowed)
	require.Zero(t, r.States[0].Remaining)
	require.LessOrEqual(t, r.RetryAfter, interval)
	require.Equal(t, ratelimit.ByMemory, take(t, f, "g", l).By)
	for n := range 3 {
		clock.set(t, time.Duration(n+1)*interval-early)
		require.False(t, take(t, f, "g", l).Allowed, "not before the interval is over")
		clock.set(t, time.Duration(n+1)*interval)
		require.True(t, take(t, f, "g", l).Allowed)
		require.False(t, take(t, f, "g", l).Allowed, "one each interval")
	}
	require.Contains(t, f.KeyName("g", ratelimit.Bucket{Key: "g", Limit: l}), "rate:gatehouse:rl:{")
	require.EqualValues(t, 1, clock.server.Client(t).Exists(context.Background(), f.KeyName("g", ratelimit.Bucket{Key: "g", Limit: l})).Val())
}
