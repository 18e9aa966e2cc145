package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// keepBusy has Redis run an endless script.
func keepBusy(s *redistest.Server) error {
	ctx := context.Background()
	if err := admin("CONFIG SET busy-reply-threshold 1")(s); err != nil {
		return err
	}
	o := s.Options().Simple()
	o.ReadTimeout, o.MaxRetries = time.Minute, -1 // a retry would keep Redis busy again
	client := redis.NewClient(o)
	go func() {
		_ = client.Eval(ctx, "while true do end", nil).Err()
		_ = client.Close()
	}()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		if redis.HasErrorPrefix(client.Set(ctx, "x", "1", 0).Err(), "BUSY") {
			return nil
		}
	}
	return errors.New("Redis does not reply BUSY")
}

// TestEveryRedisFailureIsAnOutageWithRecovery breaks Redis in various ways. Each time, gateways must enforce limits locally
// without errors or waiting, and share them again soon after the repair (the log shows how soon).
func TestEveryRedisFailureIsAnOutageWithRecovery(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]struct {
		breakIt, fix func(s *redistest.Server) error
		timeout      time.Duration // default: longTimeout
		cause        string
		keeps        bool // no data is lost
	}{
		"killed and restarted empty":    {breakIt: (*redistest.Server).Kill, fix: (*redistest.Server).Restart},
		"shut down and restarted empty": {breakIt: (*redistest.Server).Stop, fix: (*redistest.Server).Restart},
		"paused":                        {breakIt: (*redistest.Server).Pause, fix: (*redistest.Server).Resume, timeout: shortTimeout, keeps: true},
		"out of memory": {
			breakIt: admin("CONFIG SET maxmemory 1"), fix: admin("CONFIG SET maxmemory 0"),
			cause: "OOM", keeps: true,
		},
		"read-only replica": {
			breakIt: admin("REPLICAOF 127.0.0.1 1"), fix: admin("REPLICAOF NO ONE"),
			cause: "READONLY", keeps: true,
		},
		"replica without its master": {
			breakIt: admin("CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1"), fix: admin("REPLICAOF NO ONE"),
			cause: "MASTERDOWN", keeps: true,
		},
		"missing permission": {
			breakIt: admin("ACL SETUSER gateway -evalsha -eval"), fix: admin("ACL SETUSER gateway +evalsha +eval"),
			cause: "NOPERM", keeps: true,
		},
		"changed password": {
			breakIt: admin("ACL SETUSER gateway resetpass >other", "CLIENT KILL USER gateway"), fix: admin("ACL SETUSER gateway >s3cret"),
			cause: "WRONGPASS", keeps: true,
		},
		"busy with another script": {breakIt: keepBusy, fix: admin("SCRIPT KILL"), cause: "BUSY", keeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.WithUser("admin", "adm1n", "~* &* +@all"), redistest.WithUser("gateway", "s3cret", "~* &* +@all"))
			gateway := func() *redis.UniversalOptions {
				o := s.Options()
				o.Username, o.Password = "gateway", "s3cret"
				return o
			}
			events := make(chan ratelimit.Event, 100)
			o := ratelimit.Options{Timeout: failure.timeout}
			if failure.cause != "" {
				o.ProbeInterval = 250 * time.Millisecond // the others use the default
			}
			b := newLimiter(t, gateway(), o)
			o.OnEvent = func(e ratelimit.Event) {
				if e.Kind != ratelimit.EventDataLost {
					events <- e
				}
			}
			a := newLimiter(t, gateway(), o)
			onA, onB := []ratelimit.Limiter{a}, []ratelimit.Limiter{b}
			l := limit(20, time.Hour)
			require.Equal(t, 5, allowConcurrently(t, onA, 5, "k", l))
			require.Equal(t, 5, allowConcurrently(t, onB, 5, "k", l))

			require.NoError(t, failure.breakIt(s))
			broken := time.Now()
			require.Eventually(t, func() bool {
				allowConcurrently(t, []ratelimit.Limiter{a, b}, 2, "eventually", limit(ratelimit.MaxRequests, time.Millisecond))
				return a.Unavailable() != nil && b.Unavailable() != nil
			}, patience, time.Millisecond)
			// Eventually, because an earlier attempt may have timed out.
			require.Eventually(t, func() bool {
				err := a.Unavailable()
				return err != nil && strings.Contains(err.Error(), failure.cause)
			}, patience, time.Millisecond)
			trips := a.Stats().RoundTrips
			for i := range 20 {
				r := allow(t, a, fmt.Sprint("free", i), l)
				require.True(t, r.Allowed)
				assert.Equal(t, ratelimit.ByLocal, r.By)
			}
			require.Equal(t, trips, a.Stats().RoundTrips, "requests must not wait for Redis")
			// Each gateway enforces the limit locally, including what it allowed before.
			require.Equal(t, 15, allowConcurrently(t, onA, 60, "k", l))
			require.Equal(t, 3, allowConcurrently(t, onB, 3, "k", l))

			require.NoError(t, failure.fix(s))
			fixed := time.Now()
			awaitDecisionBy(t, a, ratelimit.ByRedis)
			awaitDecisionBy(t, b, ratelimit.ByRedis)
			t.Logf("unavailable for %v, recovered after %v", fixed.Sub(broken).Round(time.Millisecond), time.Since(fixed).Round(time.Millisecond))
			require.NoError(t, a.Unavailable())
			// What the gateways allowed locally now counts for the fleet: 28 of 20.
			var r ratelimit.Result
			require.Eventually(t, func() bool {
				var err error
				r, err = b.Peek(context.Background(), "k", counter("k", l))
				return err == nil && r.By == ratelimit.ByRedis
			}, patience, time.Millisecond)
			require.False(t, r.Allowed)
			fresh := newLimiter(t, gateway(), ratelimit.Options{})
			require.False(t, allow(t, fresh, "k", l).Allowed)
			// Unused requests are neither lost nor allowed twice.
			require.Equal(t, 20, allowConcurrently(t, []ratelimit.Limiter{a, b, fresh}, 100, "unused", l))

			// The event comes after the first shared decisions.
			require.Eventually(t, func() bool { return len(events) >= 2 }, patience, time.Millisecond)
			began, ended := <-events, <-events
			require.Empty(t, events)
			require.Equal(t, ratelimit.EventUnavailable, began.Kind)
			require.Error(t, began.Cause)
			require.Equal(t, ratelimit.EventShared, ended.Kind)
			require.Positive(t, ended.Duration)
			if failure.keeps {
				require.GreaterOrEqual(t, ended.Synced, 15)
			}
		})
	}
}

func TestUnresponsiveRedisDelaysRequestsUntilTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 500 * time.Millisecond
		f := newLimiterOf(t, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, ratelimit.Options{Timeout: timeout})
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				key := fmt.Sprint(i)
				for j := range 20 {
					from := time.Now()
					r, err := f.Allow(t.Context(), key, counter(key, limit(1000, time.Minute)))
					wait := time.Since(from)
					assert.NoError(t, err)
					assert.True(t, r.Allowed)
					assert.LessOrEqual(t, wait, timeout)
					if j == 0 {
						assert.Equal(t, timeout, wait)
					}
				}
			})
		}
		wg.Wait()
		require.Error(t, f.Unavailable())
	})
}

func TestUnresponsiveRedisIsAnOutageWithRecovery(t *testing.T) {
	t.Parallel()
	const timeout = 500 * time.Millisecond // on a busy machine the default is too short even without an outage
	for name, failure := range map[string]struct {
		breakIt, fix func(s *redistest.Server, l *netfault.Link) error
	}{
		"paused": {
			func(s *redistest.Server, _ *netfault.Link) error { return s.Pause() },
			func(s *redistest.Server, _ *netfault.Link) error { return s.Resume() },
		},
		"slow": {
			func(_ *redistest.Server, l *netfault.Link) error { l.Slow(0, 2*timeout); return nil },
			func(_ *redistest.Server, l *netfault.Link) error { l.Slow(0, 0); return nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			link := netfault.NewLink(t, s.Addr)
			o := s.Options()
			o.Addrs = []string{link.Addr}
			o.ReadTimeout, o.WriteTimeout, o.DialTimeout = time.Minute, time.Minute, time.Minute
			f := newLimiter(t, o, ratelimit.Options{Timeout: timeout})
			awaitDecisionBy(t, f, ratelimit.ByRedis)
			require.NoError(t, failure.breakIt(s, link))
			awaitDecisionBy(t, f, ratelimit.ByLocal)
			awaitUnavailable(t, f)
			require.NoError(t, failure.fix(s, link))
			awaitDecisionBy(t, f, ratelimit.ByRedis)
		})
	}
}

func TestCancelledRequestIsNotARedisFailure(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			link := netfault.NewLink(t, s.Addr)
			o := s.Options()
			o.Addrs = []string{link.Addr}
			var outages atomic.Int64
			f := newLimiter(t, o, ratelimit.Options{Algorithm: algorithm, OnEvent: count(&outages, ratelimit.EventUnavailable)})
			awaitDecisionBy(t, f, ratelimit.ByRedis)
			link.Slow(0, 300*time.Millisecond)
			l := limit(1000, time.Minute)
			gone := errors.New("gone")
			for range 6 {
				ctx, cancel := context.WithCancelCause(context.Background())
				sent := f.Stats().RoundTrips
				go func() {
					for f.Stats().RoundTrips == sent {
						<-after(time.Millisecond)
					}
					cancel(gone)
				}()
				// A request that flushes the batch itself waits for the reply.
				if _, err := f.Allow(ctx, "c", counter("c", l)); err != nil {
					require.ErrorIs(t, err, gone)
				}
				<-ctx.Done()
				_, err := f.Allow(ctx, "c", counter("c", l)) // is not sent
				require.ErrorIs(t, err, context.Canceled)
			}
			link.Slow(0, 0)
			require.NoError(t, f.Unavailable())
			assert.Equal(t, ratelimit.ByRedis, allow(t, f, "d", l).By)
			assert.Zero(t, outages.Load())
		})
	}
}

func TestOutagePolicies(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			denying := newLimiter(t, s.Options(), ratelimit.Options{Algorithm: algorithm, OnOutage: ratelimit.OnOutageDeny})
			allowing := newLimiter(t, s.Options(), ratelimit.Options{Algorithm: algorithm, OnOutage: ratelimit.OnOutageAllow, MaxFailures: 10})
			local := newLimiter(t, s.Options(), ratelimit.Options{Algorithm: algorithm})
			ctx := context.Background()
			b := counter("k", limit(2, time.Hour))
			used := counter("used", b.Limit)
			require.Equal(t, 2, allowConcurrently(t, []ratelimit.Limiter{allowing}, 5, "used", b.Limit))
			require.False(t, allow(t, allowing, "used", b.Limit).Allowed)
			require.NoError(t, s.Kill())
			allow(t, allowing, "other", b.Limit)
			require.NoError(t, allowing.Unavailable(), "after the first failure")
			for i := range 30 {
				_, err := denying.Allow(ctx, "k", b)
				require.ErrorIs(t, err, ratelimit.ErrUnavailable)
				require.ErrorContains(t, err, "refused")
				_, err = denying.Peek(ctx, "k", b)
				require.ErrorIs(t, err, ratelimit.ErrUnavailable)

				// Even what Redis denied before is allowed, and at once.
				r, err := allowing.Peek(ctx, "used", used)
				require.NoError(t, err)
				require.True(t, r.Allowed)
				r = allow(t, allowing, "used", b.Limit)
				require.True(t, r.Allowed)
				require.Equal(t, ratelimit.ByLocal, r.By)

				peek, err := local.Peek(ctx, "k", b)
				require.NoError(t, err)
				r = allow(t, local, "k", b.Limit)
				assert.Equal(t, i < 2, r.Allowed)
				assert.Equal(t, peek.Allowed, r.Allowed)
				assert.Equal(t, max(0, 1-i), r.States[0].Remaining)
			}
			require.Error(t, allowing.Unavailable())
			require.Error(t, denying.Ping(ctx))
			require.NoError(t, s.Restart())
			for _, f := range []ratelimit.Limiter{denying, allowing, local} {
				awaitDecisionBy(t, f, ratelimit.ByRedis)
			}
			// With exact, what was allowed during the outage counts after it.
			fresh := newLimiter(t, s.Options(), ratelimit.Options{Algorithm: algorithm})
			for _, key := range []string{"used", "k"} {
				assert.Equal(t, algorithm != ratelimit.Exact, allow(t, fresh, key, b.Limit).Allowed)
			}
		})
	}
}

func TestScriptIsReloadedWithoutFailedRequests(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var losses atomic.Int64
	limiters := newLimiters(t, 2, s.Options, ratelimit.Options{OnEvent: count(&losses, ratelimit.EventDataLost)})
	c := s.Client(t)
	for i := range 20 {
		require.NoError(t, c.ScriptFlush(context.Background()).Err())
		r := allow(t, limiters[i%2], "k", limit(100, time.Hour))
		assert.Equal(t, ratelimit.ByRedis, r.By)
		assert.Equal(t, 99-i, r.States[0].Remaining)
	}
	require.Zero(t, losses.Load(), "only the script was lost")
}

// TestThousandsOfBusyCallersAreResyncedAfterOutage has more unsynced requests than fit into one script run.
func TestThousandsOfBusyCallersAreResyncedAfterOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var outages atomic.Int64
	f := newLimiter(t, s.Options(), ratelimit.Options{OnEvent: count(&outages, ratelimit.EventUnavailable)})
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
	awaitAvailable(t, f)
	allowed := make(map[string]int)
	for i := 0; i < callers; i += 97 {
		allowed[fmt.Sprint("busy", i)] = each
	}
	requireCounted(t, s.Options(), l, allowed)
	require.EqualValues(t, 1, outages.Load(), "the sync must not cause another outage")
}

// TestResyncFarAboveTheLimit allows far more than the limit during an outage, with on_outage allow.
func TestResyncFarAboveTheLimit(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newLimiter(t, s.Options(), ratelimit.Options{OnOutage: ratelimit.OnOutageAllow})
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
	awaitAvailable(t, f)
	fresh := newLimiter(t, s.Options(), ratelimit.Options{})
	assert.False(t, allow(t, fresh, "busy", l).Allowed)
	assert.Equal(t, 18, allow(t, fresh, "other", l).States[0].Remaining)
}

// newLimiterOf returns a limiter of a Redis without connections. respond returns the error of a command, or nil to allow the request.
func newLimiterOf(t *testing.T, respond func(context.Context) error, o ratelimit.Options) ratelimit.Limiter {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		if err := respond(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		// Replies that allow the request.
		switch c := cmd.(type) {
		case interface{ SetVal(val string) }: // of the exact script
			c.SetVal(string(make([]byte, 20)))
		case *redis.Cmd: // of redis_rate
			c.SetVal([]any{int64(1), int64(0), "-1", "0"})
		}
		return nil
	}))
	return newLimiterWith(t, client, o)
}

func TestHalfOfTwentyFailuresBeginAnOutage(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var commands atomic.Int64
				f := newLimiterOf(t, func(context.Context) error {
					if commands.Add(1)%2 == 0 {
						return io.ErrUnexpectedEOF
					}
					return nil
				}, ratelimit.Options{Algorithm: algorithm})
				l := limit(100, time.Hour)
				for range 19 {
					allow(t, f, "k", l)
					require.NoError(t, f.Unavailable())
				}
				allow(t, f, "k", l)
				require.ErrorIs(t, f.Unavailable(), io.ErrUnexpectedEOF)
			})
		})
	}
}
