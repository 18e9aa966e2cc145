package ratelimit_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/redisclient"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	// patience is how long to wait for an event: a busy machine can take seconds to respond.
	patience = time.Minute
	// longTimeout is the limiters' default in tests. Refused and broken connections fail at once.
	longTimeout = 20 * time.Second
	// shortTimeout is used if Redis does not respond: an outage begins after three failed round trips.
	shortTimeout = 2 * time.Second
)

// testClock is the gateways' clock, set forward together with Redis's.
type testClock struct {
	server *redistest.Server
	ahead  atomic.Int64
}

func (c *testClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// set sets both clocks to ahead of the machine's.
func (c *testClock) set(t testing.TB, ahead time.Duration) {
	t.Helper()
	c.ahead.Store(int64(ahead))
	require.NoError(t, c.server.StepClock(ahead))
}

// newLimiter returns a limiter with a client of its own and the same timeout, by default longTimeout. Both are closed when the
// test ends.
func newLimiter(t testing.TB, options *redis.UniversalOptions, o ratelimit.Options) ratelimit.Limiter {
	t.Helper()
	o.Timeout = cmp.Or(o.Timeout, longTimeout)
	if o.Timeout > time.Second {
		for _, d := range []*time.Duration{&options.DialTimeout, &options.ReadTimeout, &options.WriteTimeout} {
			*d = cmp.Or(*d, o.Timeout)
		}
	}
	return newLimiterWith(t, redisclient.New(options), o)
}

// newLimiterWith returns a limiter that uses a client. Both are closed at the end of the test.
func newLimiterWith(t testing.TB, client redis.UniversalClient, o ratelimit.Options) ratelimit.Limiter {
	t.Helper()
	f, err := ratelimit.New(client, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		require.NoError(t, client.Close())
	})
	return f
}

// newLimiters returns the limiters of n gateways that share a Redis.
func newLimiters(t testing.TB, n int, options func() *redis.UniversalOptions, o ratelimit.Options) []ratelimit.Limiter {
	t.Helper()
	limiters := make([]ratelimit.Limiter, n)
	for i := range limiters {
		limiters[i] = newLimiter(t, options(), o)
	}
	return limiters
}

// count returns a function for Options.OnEvent that counts the events of a kind.
func count(n *atomic.Int64, kind ratelimit.EventKind) func(ratelimit.Event) {
	return func(e ratelimit.Event) {
		if e.Kind == kind {
			n.Add(1)
		}
	}
}

func limit(requests int, window time.Duration) ratelimit.Limit {
	return ratelimit.Limit{Name: "test", Requests: requests, Window: window}
}

func counter(key string, l ratelimit.Limit) ratelimit.Counter {
	return ratelimit.Counter{Key: key, Limit: l}
}

func allow(t testing.TB, f ratelimit.Limiter, key string, l ratelimit.Limit) ratelimit.Result {
	t.Helper()
	r, err := f.Allow(context.Background(), key, counter(key, l))
	require.NoError(t, err)
	require.Len(t, r.States, 1)
	require.Equal(t, r.Allowed, r.RetryAfter == 0)
	return r
}

// allowConcurrently sends n concurrent requests, in turn through each limiter, and returns how many were allowed.
func allowConcurrently(t testing.TB, limiters []ratelimit.Limiter, n int, key string, l ratelimit.Limit) int {
	t.Helper()
	var allowed atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			r, err := limiters[i%len(limiters)].Allow(context.Background(), key, counter(key, l))
			if err != nil {
				t.Errorf("Allow: %v", err)
			}
			if r.Allowed {
				allowed.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	return int(allowed.Load())
}

// awaitDecisionBy waits until decisions are made by the given decider.
func awaitDecisionBy(t testing.TB, f ratelimit.Limiter, by ratelimit.Decider) {
	t.Helper()
	require.Eventually(t, func() bool {
		r, err := f.Allow(context.Background(), "eventually", counter("eventually", limit(ratelimit.MaxRequests, time.Millisecond)))
		return err == nil && r.By == by
	}, patience, 5*time.Millisecond)
}

// awaitUnavailable sends requests until Redis is unavailable.
func awaitUnavailable(t testing.TB, f ratelimit.Limiter) {
	t.Helper()
	require.Eventually(t, func() bool {
		allow(t, f, "eventually", limit(ratelimit.MaxRequests, time.Millisecond))
		return f.Unavailable() != nil
	}, patience, time.Millisecond)
}

// awaitAvailable waits until Redis is available, without requests.
func awaitAvailable(t testing.TB, limiters ...ratelimit.Limiter) {
	t.Helper()
	for _, f := range limiters {
		require.Eventually(t, func() bool { return f.Unavailable() == nil }, patience, time.Millisecond)
	}
}

// requireCounted waits until Redis has counted the given number of allowed requests for each key, and requires that it has
// not counted more.
func requireCounted(t testing.TB, options *redis.UniversalOptions, l ratelimit.Limit, allowed map[string]int) {
	t.Helper()
	fresh := newLimiter(t, options, ratelimit.Options{})
	for key, want := range allowed {
		last := -1
		require.Eventually(t, func() bool {
			r, err := fresh.Peek(context.Background(), key, counter(key, l))
			if err != nil || r.By == ratelimit.ByLocal {
				return false
			}
			last = l.Requests - r.States[0].Remaining
			return last >= want
		}, patience, 20*time.Millisecond, "Redis has counted fewer than the %d allowed requests", want)
		require.Equal(t, want, last, "allowed and counted requests of %s", key)
	}
}

// admin returns a function that sends commands to Redis.
func admin(commands ...string) func(*redistest.Server) error {
	return func(s *redistest.Server) error {
		client := redis.NewClient(s.Options().Simple())
		defer func() { _ = client.Close() }()
		var errs []error
		for _, command := range commands {
			var args []any
			for word := range strings.FieldsSeq(command) {
				args = append(args, word)
			}
			errs = append(errs, client.Do(context.Background(), args...).Err())
		}
		return errors.Join(errs...)
	}
}

// after returns a channel that is closed after d.
func after(d time.Duration) <-chan struct{} {
	ch := make(chan struct{})
	time.AfterFunc(d, func() { close(ch) })
	return ch
}
