package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/linktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// events records a limiter's events.
type events struct {
	mu   sync.Mutex
	list []ratelimit.Event
}

func (e *events) on(ev ratelimit.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
}

// outages returns the events other than DataLost.
func (e *events) outages() []ratelimit.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.list), func(e ratelimit.Event) bool { return e.Kind == ratelimit.DataLost })
}

// awaitUnavailable sends requests until Redis is unavailable.
func awaitUnavailable(t testing.TB, f ratelimit.Limiter) {
	t.Helper()
	require.Eventually(t, func() bool {
		allow(t, f, "eventually", limit(ratelimit.MaxRequests, time.Millisecond))
		return f.Unavailable() != nil
	}, longTimeout, time.Millisecond)
}

// decisionOfRedis peeks until the decision is not local.
func decisionOfRedis(t testing.TB, f ratelimit.Limiter, key string, l ratelimit.Limit) (r ratelimit.Result) {
	t.Helper()
	for until := time.Now().Add(longTimeout); ; {
		var err error
		r, err = f.Peek(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
		require.NoError(t, err)
		if r.By != ratelimit.ByLocal {
			return r
		}
		require.Less(t, time.Now(), until, "Redis must decide")
	}
}

// TestEveryRedisFailureIsAnOutageWithRecovery breaks Redis in various ways. Each time, gateways must enforce limits locally
// without errors or waiting, and share them again soon after the repair (the log shows how soon).
func TestEveryRedisFailureIsAnOutageWithRecovery(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	type failure struct {
		breakIt, fix func(t *testing.T, s *redistest.Server)
		cause        string
		keeps        bool // no data is lost
	}
	admin := func(args ...any) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, s *redistest.Server) {
			t.Helper()
			require.NoError(t, s.Client(t).Do(ctx, args...).Err())
		}
	}
	failures := map[string]failure{
		"killed and restarted empty": {
			breakIt: func(t *testing.T, s *redistest.Server) { t.Helper(); require.NoError(t, s.Kill()) },
			fix:     func(t *testing.T, s *redistest.Server) { t.Helper(); require.NoError(t, s.Restart()) },
		},
		"shut down and restarted empty": {
			breakIt: func(t *testing.T, s *redistest.Server) { t.Helper(); require.NoError(t, s.Stop()) },
			fix:     func(t *testing.T, s *redistest.Server) { t.Helper(); require.NoError(t, s.Restart()) },
		},
		"paused": {
			breakIt: func(t *testing.T, s *redistest.Server) { t.Helper(); require.NoError(t, s.Pause()) },
			fix:     func(t *testing.T, s *redistest.Server) { t.Helper(); require.NoError(t, s.Resume()) },
			keeps:   true,
		},
		"out of memory": {
			breakIt: admin("CONFIG", "SET", "maxmemory", "1"),
			fix:     admin("CONFIG", "SET", "maxmemory", "0"),
			cause:   "OOM", keeps: true,
		},
		"read-only replica": {
			breakIt: admin("REPLICAOF", "127.0.0.1", "1"),
			fix:     admin("REPLICAOF", "NO", "ONE"),
			cause:   "READONLY", keeps: true,
		},
		"replica without its master": {
			breakIt: func(t *testing.T, s *redistest.Server) {
				t.Helper()
				c := s.Client(t)
				require.NoError(t, c.ConfigSet(ctx, "replica-serve-stale-data", "no").Err())
				require.NoError(t, c.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
			},
			fix:   admin("REPLICAOF", "NO", "ONE"),
			cause: "MASTERDOWN", keeps: true,
		},
		"missing permission": {
			breakIt: admin("ACL", "SETUSER", "gateway", "-evalsha", "-eval"),
			fix:     admin("ACL", "SETUSER", "gateway", "+evalsha", "+eval"),
			cause:   "NOPERM", keeps: true,
		},
		"changed password": {
			breakIt: func(t *testing.T, s *redistest.Server) {
				t.Helper()
				c := s.Client(t)
				// Closes the gateway's connections, but not this one.
				require.NoError(t, c.Do(ctx, "ACL", "SETUSER", "gateway", "resetpass", ">other").Err())
				require.NoError(t, c.Do(ctx, "CLIENT", "KILL", "USER", "gateway", "SKIPME", "no").Err())
			},
			fix:   admin("ACL", "SETUSER", "gateway", ">s3cret"),
			cause: "WRONGPASS", keeps: true,
		},
		"busy with another script": {
			breakIt: func(t *testing.T, s *redistest.Server) {
				t.Helper()
				c := s.Client(t)
				require.NoError(t, c.ConfigSet(ctx, "busy-reply-threshold", "1").Err())
				o := s.Options().Simple()
				o.ReadTimeout, o.MaxRetries = time.Minute, -1 // a retry would keep Redis busy for ever
				once := redis.NewClient(o)
				t.Cleanup(func() { _ = once.Close() })
				go func() { _ = once.Eval(ctx, "while true do end", nil).Err() }()
				require.Eventually(t, func() bool {
					err := c.Set(ctx, "x", "1", 0).Err()
					return err != nil && strings.HasPrefix(err.Error(), "BUSY")
				}, longTimeout, 10*time.Millisecond)
			},
			fix:   admin("SCRIPT", "KILL"),
			cause: "BUSY", keeps: true,
		},
	}
	for name, fault := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.WithUser("admin", "adm1n", "~* &* +@all"), redistest.WithUser("gateway", "s3cret", "~* &* +@all"))
			gateway := func() *redis.UniversalOptions {
				o := s.Options()
				o.Username, o.Password = "gateway", "s3cret"
				return o
			}
			var got events
			o := withShortTimeout()
			if fault.cause != "" {
				o.ProbeInterval = 250 * time.Millisecond // the others use the default
			}
			b := newLimiter(t, gateway(), o)
			o.OnEvent = got.on
			a := newLimiter(t, gateway(), o)
			l := limit(20, time.Hour)
			require.Equal(t, 5, allowConcurrently(t, []ratelimit.Limiter{a}, 5, "k", l))
			require.Equal(t, 5, allowConcurrently(t, []ratelimit.Limiter{b}, 5, "k", l))

			fault.breakIt(t, s)
			began := time.Now()
			var wg sync.WaitGroup
			for _, f := range []ratelimit.Limiter{a, b} {
				wg.Go(func() {
					awaitDecisionBy(t, f, ratelimit.ByLocal)
					awaitUnavailable(t, f)
				})
			}
			wg.Wait()
			if fault.cause != "" {
				// Eventually, because an earlier attempt may have timed out.
				require.Eventually(t, func() bool { return strings.Contains(a.Unavailable().Error(), fault.cause) }, longTimeout, time.Millisecond)
			}
			// Requests no longer wait for Redis.
			requests := a.Stats().Requests
			for i := range 20 {
				r := allow(t, a, fmt.Sprint("free", i), l)
				require.True(t, r.Allowed)
				require.Equal(t, ratelimit.ByLocal, r.By)
			}
			require.Equal(t, requests, a.Stats().Requests)
			// Each gateway enforces the limit locally, including what it allowed before.
			require.Equal(t, 15, allowConcurrently(t, []ratelimit.Limiter{a}, 60, "k", l))
			require.Equal(t, 3, allowConcurrently(t, []ratelimit.Limiter{b}, 3, "k", l))
			require.Equal(t, 1, a.Stats().UnavailableShards)

			fault.fix(t, s)
			fixed := time.Now()
			awaitDecisionBy(t, a, ratelimit.ByRedis)
			awaitDecisionBy(t, b, ratelimit.ByRedis)
			t.Logf("unavailable for %v, recovered after %v", fixed.Sub(began).Round(time.Millisecond), time.Since(fixed).Round(time.Millisecond))
			require.NoError(t, a.Unavailable())
			// What the gateways allowed locally now counts for the fleet: 28 of 20.
			r := decisionOfRedis(t, b, "k", l)
			require.False(t, r.Allowed)
			require.Equal(t, ratelimit.ByRedis, r.By)
			fresh := newLimiter(t, gateway(), withLongTimeout())
			require.False(t, allow(t, fresh, "k", l).Allowed)
			// Unused requests are neither lost nor allowed twice.
			require.Equal(t, 20, allowConcurrently(t, []ratelimit.Limiter{a, b, fresh}, 100, "unused", l))

			// The event comes after the first shared decisions.
			require.Eventually(t, func() bool { return len(got.outages()) >= 2 }, longTimeout, time.Millisecond)
			list := got.outages()
			require.Len(t, list, 2)
			require.Equal(t, ratelimit.Unavailable, list[0].Kind)
			require.Error(t, list[0].Cause)
			require.Equal(t, ratelimit.Shared, list[1].Kind)
			require.Positive(t, list[1].Duration)
			if fault.keeps {
				require.GreaterOrEqual(t, list[1].Synced, 15)
			}
			require.EqualValues(t, 1, a.Stats().Outages)
		})
	}
}

func TestUnresponsiveRedisDelaysRequestsUntilTimeout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	o := s.Options()
	o.ReadTimeout, o.WriteTimeout, o.DialTimeout = time.Minute, time.Minute, time.Minute
	const timeout = 500 * time.Millisecond // on a busy machine the default is too short even without an outage
	f := newLimiter(t, o, ratelimit.Options{Timeout: timeout})
	awaitDecisionBy(t, f, ratelimit.ByRedis)
	require.NoError(t, s.Pause())
	const callers, each = 100, 20
	waits := make([]time.Duration, callers*each)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			key := fmt.Sprint(i)
			for j := range each {
				from := time.Now()
				_, err := f.Allow(context.Background(), key, ratelimit.Bucket{Key: key, Limit: limit(1000, time.Minute)})
				waits[i*each+j] = time.Since(from)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// On an idle machine the longest wait exceeds the timeout by about a millisecond. On a busy one some wait for the
	// processor, but not all that waited for Redis. The client's own timeout would be a minute.
	slices.Sort(waits)
	longest := waits[len(waits)-1]
	t.Logf("longest wait: %v", longest)
	require.Less(t, longest, longTimeout)
	first, _ := slices.BinarySearch(waits, timeout/2)
	require.Less(t, first, len(waits), "no request waited for Redis")
	require.Less(t, waits[first], timeout+time.Second)
	require.Error(t, f.Unavailable())
	require.NoError(t, s.Resume())
	awaitDecisionBy(t, f, ratelimit.ByRedis)
}

func TestSlowRedisIsUnavailable(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := linktest.Start(t, s.Addr)
	o := s.Options()
	o.Addrs = []string{p.Addr}
	const timeout = 500 * time.Millisecond // see above
	f := newLimiter(t, o, ratelimit.Options{Timeout: timeout})
	awaitDecisionBy(t, f, ratelimit.ByRedis)
	p.Slow(0, 2*timeout)
	awaitDecisionBy(t, f, ratelimit.ByLocal)
	awaitUnavailable(t, f)
	p.Slow(0, 0)
	awaitDecisionBy(t, f, ratelimit.ByRedis)
}

func TestCancelledRequestIsNotARedisFailure(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, alg := range []ratelimit.Algorithm{ratelimit.Exact, ratelimit.GCRA} {
		t.Run(string(alg), func(t *testing.T) {
			t.Parallel()
			p := linktest.Start(t, s.Addr)
			o := s.Options()
			o.Addrs = []string{p.Addr}
			f := newLimiter(t, o, ratelimit.Options{Algorithm: alg, Timeout: longTimeout})
			awaitDecisionBy(t, f, ratelimit.ByRedis)
			p.Slow(0, 300*time.Millisecond)
			l := limit(1000, time.Minute)
			gone := errors.New("gone")
			for i := range 12 {
				ctx, cancel := context.WithCancelCause(context.Background())
				if i%2 == 0 {
					cancel(gone)
				} else {
					sent := f.Stats().Requests
					go func() { // as soon as the request was sent to Redis
						for f.Stats().Requests == sent {
							<-after(time.Millisecond)
						}
						cancel(gone)
					}()
				}
				_, err := f.Allow(ctx, "c", ratelimit.Bucket{Key: "c", Limit: l})
				switch {
				case i%2 == 0:
					require.ErrorIs(t, err, context.Canceled)
				case err != nil:
					// A request that flushes the batch itself waits for the reply.
					require.ErrorIs(t, err, gone)
				}
			}
			p.Slow(0, 0)
			require.NoError(t, f.Unavailable())
			require.Zero(t, f.Stats().Outages)
			require.Equal(t, ratelimit.ByRedis, allow(t, f, "d", l).By)
		})
	}
}

func TestOutagePolicies(t *testing.T) {
	t.Parallel()
	for _, alg := range []ratelimit.Algorithm{ratelimit.Exact, ratelimit.GCRA} {
		t.Run(string(alg), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			denying := newLimiter(t, s.Options(), ratelimit.Options{Algorithm: alg, OnOutage: ratelimit.Deny, Timeout: longTimeout})
			allowing := newLimiter(t, s.Options(), ratelimit.Options{Algorithm: alg, OnOutage: ratelimit.Allow, Timeout: longTimeout})
			local := newLimiter(t, s.Options(), ratelimit.Options{Algorithm: alg, Timeout: longTimeout})
			require.NoError(t, s.Kill())
			ctx := context.Background()
			b := ratelimit.Bucket{Key: "k", Limit: limit(2, time.Hour)}
			for i := range 30 {
				_, err := denying.Allow(ctx, "k", b)
				require.ErrorIs(t, err, ratelimit.ErrUnavailable)
				require.ErrorContains(t, err, "refused")
				_, err = denying.Peek(ctx, "k", b)
				require.ErrorIs(t, err, ratelimit.ErrUnavailable)

				if allowing.Unavailable() != nil || i < 2 {
					r := allow(t, allowing, "k", b.Limit)
					require.True(t, r.Allowed)
					require.Equal(t, ratelimit.ByLocal, r.By)
				} else {
					allow(t, allowing, "other", b.Limit)
				}

				peek, err := local.Peek(ctx, "k", b)
				require.NoError(t, err)
				r := allow(t, local, "k", b.Limit)
				require.Equal(t, i < 2, r.Allowed)
				require.Equal(t, peek.Allowed, r.Allowed)
				require.Equal(t, max(0, 1-i), r.States[0].Remaining)
			}
			require.Error(t, denying.Ping(ctx))
			require.NoError(t, s.Restart())
			for _, f := range []ratelimit.Limiter{denying, allowing, local} {
				awaitDecisionBy(t, f, ratelimit.ByRedis)
			}
			// With exact, what was allowed during the outage counts after it.
			require.Equal(t, alg != ratelimit.Exact, allow(t, allowing, "k", b.Limit).Allowed)
		})
	}
}

func TestScriptIsReloadedWithoutFailedRequests(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	limiters := newLimiters(t, 2, s.Options, withLongTimeout())
	c := s.Client(t)
	for i := range 20 {
		require.NoError(t, c.ScriptFlush(context.Background()).Err())
		r := allow(t, limiters[i%2], "k", limit(100, time.Hour))
		require.Equal(t, ratelimit.ByRedis, r.By)
		require.Equal(t, 99-i, r.States[0].Remaining)
	}
	require.Zero(t, limiters[0].Stats().DataLosses, "only the script was lost")
}

// TestUnnoticedRestartLosesNoRequests restarts Redis empty while the gateways are idle, so that there is no outage.
func TestUnnoticedRestartLosesNoRequests(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	limiters := newLimiters(t, 3, s.Options, withLongTimeout())
	l := limit(30, time.Hour)
	for i, f := range limiters {
		require.NoError(t, f.Ping(context.Background()))
		require.Equal(t, 10, allowConcurrently(t, []ratelimit.Limiter{f}, 10, "k", l))
		require.Equal(t, i+1, allowConcurrently(t, []ratelimit.Limiter{f}, i+1, "half", l))
	}
	require.NoError(t, s.Kill())
	require.NoError(t, s.Restart())
	fresh := newLimiter(t, s.Options(), withLongTimeout())
	require.Eventually(t, func() bool {
		r, err := fresh.Peek(context.Background(), "half", ratelimit.Bucket{Key: "half", Limit: l})
		return err == nil && r.States[0].Remaining == 24
	}, longTimeout, 20*time.Millisecond, "gateways without traffic must resync too")
	require.Eventually(t, func() bool {
		r, err := fresh.Peek(context.Background(), "k", ratelimit.Bucket{Key: "k", Limit: l})
		return err == nil && !r.Allowed
	}, longTimeout, 20*time.Millisecond)
	for _, f := range limiters {
		require.EqualValues(t, 1, f.Stats().DataLosses)
		require.Zero(t, f.Stats().Outages)
		require.False(t, allow(t, f, "k", l).Allowed)
	}
}

// TestResyncAfterDataLossCountsRequestsOnce sends requests between the loss of data and its detection, which Redis therefore
// has.
func TestResyncAfterDataLossCountsRequestsOnce(t *testing.T) {
	t.Parallel()
	for name, empty := range map[string]func(t *testing.T, s *redistest.Server){
		"restarted": func(t *testing.T, s *redistest.Server) {
			t.Helper()
			require.NoError(t, s.Kill())
			require.NoError(t, s.Restart())
		},
		"flushed": func(t *testing.T, s *redistest.Server) {
			t.Helper()
			require.NoError(t, s.Client(t).FlushAll(context.Background()).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			limiters := newLimiters(t, 3, s.Options, withLongTimeout())
			l := limit(90, time.Hour)
			for i, n := range []int{5, 7, 1} {
				require.Equal(t, n, allowConcurrently(t, limiters[i:i+1], n, "k", l))
			}
			empty(t, s)
			for i, n := range []int{11, 17, 0} {
				require.Equal(t, n, allowConcurrently(t, limiters[i:i+1], n, "k", l))
			}
			left := 0
			require.Eventually(t, func() bool {
				r, err := limiters[2].Peek(context.Background(), "k", ratelimit.Bucket{Key: "k", Limit: l})
				left = r.States[0].Remaining
				return err == nil && left == 90-5-7-1-11-17
			}, longTimeout, 20*time.Millisecond)
			for _, f := range limiters {
				require.EqualValues(t, 1, f.Stats().DataLosses)
			}
		})
	}
}

// TestLimitsUnderLoadDuringOutages keeps three gateways under load while Redis is killed, restarted empty, paused and
// resumed. No window of a gateway may exceed the limit; after the last outage, no window of the fleet may either.
func TestLimitsUnderLoadDuringOutages(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const window = 800 * time.Millisecond
	l := limit(25, window)
	limiters := newLimiters(t, 3, s.Options, ratelimit.Options{ProbeInterval: 300 * time.Millisecond})
	keys := []string{"a", "b", "c"}
	done := make(chan struct{})
	records := make([]*allowedLog, len(limiters))
	var wg sync.WaitGroup
	for i, f := range limiters {
		wg.Go(func() {
			records[i] = load(t, done, 8, 10*time.Millisecond, []ratelimit.Limiter{f}, keys, l)
		})
	}
	<-after(500 * time.Millisecond)
	for range 2 {
		require.NoError(t, s.Kill())
		<-after(300 * time.Millisecond)
		require.NoError(t, s.Restart())
		<-after(600 * time.Millisecond)
		require.NoError(t, s.Pause())
		<-after(300 * time.Millisecond)
		require.NoError(t, s.Resume())
		<-after(600 * time.Millisecond)
	}
	for _, f := range limiters {
		require.Eventually(t, func() bool { return f.Unavailable() == nil }, longTimeout, time.Millisecond)
	}
	fixed := time.Now()
	<-after(2 * window)
	close(done)
	wg.Wait()
	together, local := &allowedLog{}, 0
	for i := range limiters {
		require.LessOrEqual(t, records[i].worst(window), l.Requests, "gateway %d by itself", i)
		for key, list := range records[i].requests {
			for _, a := range list {
				if a.from.After(fixed) {
					together.add(key, a)
					if a.by != ratelimit.ByRedis {
						local++
					}
				}
			}
		}
	}
	// On a busy machine some requests may time out, which are decided locally.
	require.LessOrEqual(t, together.worst(window), l.Requests+local, "the fleet after the outages")
	t.Logf("%d local decisions after the outages", local)
	require.NotZero(t, together.total("a"))
}
