package ratelimit_test

import (
	"context"
	"math/rand/v2"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	// longTimeout is used by tests without an outage, and to wait for any other event: a busy machine can take seconds to
	// respond.
	longTimeout = 20 * time.Second
	// shortTimeout is used by tests with outages, which take three consecutive failed round trips.
	shortTimeout = 2 * time.Second
)

func withLongTimeout() ratelimit.Options { return ratelimit.Options{Timeout: longTimeout} }

func withShortTimeout() ratelimit.Options { return ratelimit.Options{Timeout: shortTimeout} }

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

// newLimiter returns a limiter with a client of its own and the same timeout; both are closed when the test ends.
func newLimiter(t testing.TB, options *redis.UniversalOptions, o ratelimit.Options) ratelimit.Limiter {
	t.Helper()
	for _, d := range []*time.Duration{&options.DialTimeout, &options.ReadTimeout, &options.WriteTimeout} {
		if *d == 0 && o.Timeout > time.Second {
			*d = o.Timeout
		}
	}
	ratelimit.TuneClient(options)
	client := redis.NewUniversalClient(options)
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

func limit(requests int, window time.Duration) ratelimit.Limit {
	return ratelimit.Limit{Name: "test", Requests: requests, Window: window}
}

func allow(t testing.TB, f ratelimit.Limiter, key string, l ratelimit.Limit) ratelimit.Result {
	t.Helper()
	r, err := f.Allow(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
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
			r, err := limiters[i%len(limiters)].Allow(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
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
	l := limit(ratelimit.MaxRequests, time.Millisecond)
	require.Eventually(t, func() bool {
		r, err := f.Allow(context.Background(), "eventually", ratelimit.Bucket{Key: "eventually", Limit: l})
		return err == nil && r.By == by
	}, longTimeout, 5*time.Millisecond)
}

// allowedRequest was allowed at some time between the call and the response.
type allowedRequest struct {
	from, to time.Time
	by       ratelimit.Decider
}

// allowedLog records allowed requests by key.
type allowedLog struct {
	mu       sync.Mutex
	requests map[string][]allowedRequest
}

func (r *allowedLog) add(key string, a allowedRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.requests == nil {
		r.requests = make(map[string][]allowedRequest)
	}
	r.requests[key] = append(r.requests[key], a)
}

// worst returns the highest number of requests that were certainly within one window of any key.
func (r *allowedLog) worst(window time.Duration) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	worst := 0
	for _, list := range r.requests {
		byStart := append([]allowedRequest(nil), list...)
		sort.Slice(byStart, func(i, j int) bool { return byStart[i].from.Before(byStart[j].from) })
		for i, first := range byStart {
			// Requests that began no earlier than the first one, and ended before the first one's start plus the window, are
			// certainly within one window.
			n := 0
			for _, a := range byStart[i:] {
				if a.to.Before(first.from.Add(window)) {
					n++
				}
			}
			worst = max(worst, n)
		}
	}
	return worst
}

func (r *allowedLog) total(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests[key])
}

// load has workers send requests for random keys through random gateways until done, and records the allowed ones. They
// pause for up to pause between requests.
func load(t testing.TB, done <-chan struct{}, workers int, pause time.Duration, limiters []ratelimit.Limiter, keys []string, l ratelimit.Limit) *allowedLog {
	t.Helper()
	rec := &allowedLog{}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(r.Int64N(int64(pause) + 1))):
				}
				key := keys[r.IntN(len(keys))]
				from := time.Now()
				res, err := limiters[r.IntN(len(limiters))].Allow(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
				if err != nil {
					t.Errorf("Allow: %v", err)
					return
				}
				if res.Allowed {
					rec.add(key, allowedRequest{from, time.Now(), res.By})
				}
			}
		})
	}
	wg.Wait()
	return rec
}

// after returns a channel that is closed after d.
func after(d time.Duration) <-chan struct{} {
	ch := make(chan struct{})
	time.AfterFunc(d, func() { close(ch) })
	return ch
}
