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

	"github.com/gatehouse-gateway/gatehouse/internal/linktest"
	"github.com/gatehouse-gateway/gatehouse/internal/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// events collects what a Fleet tells.
type events struct {
	mu   sync.Mutex
	list []ratelimit.Event
}

func (e *events) on(ev ratelimit.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
}

// outages are the events but for those of lost data.
func (e *events) outages() []ratelimit.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.list), func(e ratelimit.Event) bool { return e.Kind == ratelimit.DataLost })
}

// givenUp puts requests until Redis is not asked any more.
func givenUp(t testing.TB, f ratelimit.Limiter) {
	t.Helper()
	require.Eventually(t, func() bool {
		take(t, f, "eventually", limit(ratelimit.MaxRequests, time.Millisecond))
		return f.Unavailable() != nil
	}, patience, time.Millisecond)
}

// verdictOfRedis is the first verdict that is not the gateway's own, because it had no answer in time. Asking charges
// nothing.
func verdictOfRedis(t testing.TB, f ratelimit.Limiter, key string, l ratelimit.Limit) (r ratelimit.Result) {
	t.Helper()
	for until := time.Now().Add(patience); ; {
		var err error
		r, err = f.Peek(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
		require.NoError(t, err)
		if r.By != ratelimit.ByLocal {
			return r
		}
		require.Less(t, time.Now(), until, "Redis is not asked")
	}
}

// TestEveryFailureOfRedisIsAnOutageAndEnds breaks Redis in turn in every way and
// wants the same of each: limits held by the gateway, no error, nobody who waits, and
// the shared limit again soon (within 5 s on a machine that is not busy: the log has it).
func TestEveryFailureOfRedisIsAnOutageAndEnds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	type way struct {
		breakIt, mend func(t *testing.T, s *redistest.Server)
		cause         string
		keeps         bool // Redis keeps what it had
	}
	admin := func(args ...any) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, s *redistest.Server) {
			t.Helper()
			require.NoError(t, s.Client(t).Do(ctx, args...).Err())
		}
	}
	ways := map[string]way{
		"killed and restarted empty": {
			breakIt: func(t *testing.T, s *redistest.Server) { t.Helper(); require.NoError(t, s.Kill()) },
			mend:    func(t *testing.T, s *redistest.Server) { t.Helper(); require.NoError(t, s.Restart()) },
		},
		"shut down and restarted empty": {
			breakIt: func(t *testing.T, s *redistest.Server) { t.Helper(); require.NoError(t, s.Stop()) },
			mend:    func(t *testing.T, s *redistest.Server) { t.Helper(); require.NoError(t, s.Restart()) },
		},
		"accepting and never answering": {
			breakIt: func(t *testing.T, s *redistest.Server) { t.Helper(); require.NoError(t, s.Pause()) },
			mend:    func(t *testing.T, s *redistest.Server) { t.Helper(); require.NoError(t, s.Resume()) },
			keeps:   true,
		},
		"out of memory": {
			breakIt: admin("CONFIG", "SET", "maxmemory", "1"),
			mend:    admin("CONFIG", "SET", "maxmemory", "0"),
			cause:   "OOM", keeps: true,
		},
		"a read-only replica": {
			breakIt: admin("REPLICAOF", "127.0.0.1", "1"),
			mend:    admin("REPLICAOF", "NO", "ONE"),
			cause:   "READONLY", keeps: true,
		},
		"a replica that is behind": {
			breakIt: func(t *testing.T, s *redistest.Server) {
				t.Helper()
				c := s.Client(t)
				require.NoError(t, c.ConfigSet(ctx, "replica-serve-stale-data", "no").Err())
				require.NoError(t, c.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
			},
			mend:  admin("REPLICAOF", "NO", "ONE"),
			cause: "MASTERDOWN", keeps: true,
		},
		"without the right": {
			breakIt: admin("ACL", "SETUSER", "gateway", "-evalsha", "-eval"),
			mend:    admin("ACL", "SETUSER", "gateway", "+evalsha", "+eval"),
			cause:   "NOPERM", keeps: true,
		},
		"another password": {
			breakIt: func(t *testing.T, s *redistest.Server) {
				t.Helper()
				c := s.Client(t)
				// The gateway's connections are closed, this one is not.
				require.NoError(t, c.Do(ctx, "ACL", "SETUSER", "gateway", "resetpass", ">other").Err())
				require.NoError(t, c.Do(ctx, "CLIENT", "KILL", "USER", "gateway", "SKIPME", "no").Err())
			},
			mend:  admin("ACL", "SETUSER", "gateway", ">s3cret"),
			cause: "WRONGPASS", keeps: true,
		},
		"busy with another script": {
			breakIt: func(t *testing.T, s *redistest.Server) {
				t.Helper()
				c := s.Client(t)
				require.NoError(t, c.ConfigSet(ctx, "busy-reply-threshold", "1").Err())
				o := s.Options().Simple()
				o.ReadTimeout, o.MaxRetries = time.Minute, -1 // who tries again after the end keeps it busy for ever
				once := redis.NewClient(o)
				t.Cleanup(func() { _ = once.Close() })
				go func() { _ = once.Eval(ctx, "while true do end", nil).Err() }()
				require.Eventually(t, func() bool {
					err := c.Set(ctx, "x", "1", 0).Err()
					return err != nil && strings.HasPrefix(err.Error(), "BUSY")
				}, patience, 10*time.Millisecond)
			},
			mend:  admin("SCRIPT", "KILL"),
			cause: "BUSY", keeps: true,
		},
	}
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.WithUser("admin", "adm1n", "~* &* +@all"), redistest.WithUser("gateway", "s3cret", "~* &* +@all"))
			gateway := func() *redis.UniversalOptions {
				o := s.Options()
				o.Username, o.Password = "gateway", "s3cret"
				return o
			}
			var told events
			o := hasty()
			if w.cause != "" {
				o.ProbeInterval = 250 * time.Millisecond // the others have the default
			}
			b := newFleet(t, gateway(), o)
			o.OnEvent = told.on
			a := newFleet(t, gateway(), o)
			l := limit(20, time.Hour)
			require.Equal(t, 5, takeAtOnce(t, []ratelimit.Limiter{a}, 5, "k", l))
			require.Equal(t, 5, takeAtOnce(t, []ratelimit.Limiter{b}, 5, "k", l))

			w.breakIt(t, s)
			began := time.Now()
			var wg sync.WaitGroup
			for _, f := range []ratelimit.Limiter{a, b} {
				wg.Go(func() {
					eventuallyBy(t, f, ratelimit.ByLocal)
					givenUp(t, f)
				})
			}
			wg.Wait()
			if w.cause != "" {
				// Of the last try: some other may have had no answer in time.
				require.Eventually(t, func() bool { return strings.Contains(a.Unavailable().Error(), w.cause) }, patience, time.Millisecond)
			}
			// Nobody waits any more: nobody asks.
			asked := a.Stats().Asked
			for i := range 20 {
				r := take(t, a, fmt.Sprint("free", i), l)
				require.True(t, r.Allowed)
				require.Equal(t, ratelimit.ByLocal, r.By)
			}
			require.Equal(t, asked, a.Stats().Asked)
			// Each gateway holds the limit by itself, counting what it admitted before.
			require.Equal(t, 15, takeAtOnce(t, []ratelimit.Limiter{a}, 60, "k", l))
			require.Equal(t, 3, takeAtOnce(t, []ratelimit.Limiter{b}, 3, "k", l))
			require.Equal(t, 1, a.Stats().Down)

			w.mend(t, s)
			mended := time.Now()
			eventuallyBy(t, a, ratelimit.ByRedis)
			eventuallyBy(t, b, ratelimit.ByRedis)
			t.Logf("away %v, back after %v", mended.Sub(began).Round(time.Millisecond), time.Since(mended).Round(time.Millisecond))
			require.NoError(t, a.Unavailable())
			// What the gateways admitted alone is the fleet's again: 28 of 20.
			r := verdictOfRedis(t, b, "k", l)
			require.False(t, r.Allowed)
			require.Equal(t, ratelimit.ByRedis, r.By)
			fresh := newFleet(t, gateway(), patient())
			require.False(t, take(t, fresh, "k", l).Allowed)
			// What had not been used up is neither lost nor given twice.
			require.Equal(t, 20, takeAtOnce(t, []ratelimit.Limiter{a, b, fresh}, 100, "unused", l))

			// Requests are let through before it is told that they are.
			require.Eventually(t, func() bool { return len(told.outages()) >= 2 }, patience, time.Millisecond)
			list := told.outages()
			require.Len(t, list, 2)
			require.Equal(t, ratelimit.Unavailable, list[0].Kind)
			require.Error(t, list[0].Cause)
			require.Equal(t, ratelimit.Shared, list[1].Kind)
			require.Positive(t, list[1].Lasted)
			if w.keeps {
				require.GreaterOrEqual(t, list[1].Synced, 15)
			}
			require.EqualValues(t, 1, a.Stats().Outages)
		})
	}
}

func TestSilenceIsWaitedForNoLongerThanTheTimeout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	o := s.Options()
	o.ReadTimeout, o.WriteTimeout, o.DialTimeout = time.Minute, time.Minute, time.Minute
	const timeout = 500 * time.Millisecond // the default is less than a busy machine needs to say that Redis is well
	f := newFleet(t, o, ratelimit.Options{Timeout: timeout})
	eventuallyBy(t, f, ratelimit.ByRedis)
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
	// On an idle machine the longest is the timeout and a millisecond. A busy one has some wait for the processor, but
	// not all who waited for Redis, and it would be a minute by the client's own patience.
	slices.Sort(waits)
	longest := waits[len(waits)-1]
	t.Logf("longest wait: %v", longest)
	require.Less(t, longest, patience)
	first, _ := slices.BinarySearch(waits, timeout/2)
	require.Less(t, first, len(waits), "nobody has waited for Redis")
	require.Less(t, waits[first], timeout+time.Second)
	require.Error(t, f.Unavailable())
	require.NoError(t, s.Resume())
	eventuallyBy(t, f, ratelimit.ByRedis)
}

func TestSlowRedisIsAnOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := linktest.Start(t, s.Addr)
	o := s.Options()
	o.Addrs = []string{p.Addr}
	const timeout = 500 * time.Millisecond // as above
	f := newFleet(t, o, ratelimit.Options{Timeout: timeout})
	eventuallyBy(t, f, ratelimit.ByRedis)
	p.Slow(0, 2*timeout)
	eventuallyBy(t, f, ratelimit.ByLocal)
	givenUp(t, f)
	p.Slow(0, 0)
	eventuallyBy(t, f, ratelimit.ByRedis)
}

func TestACallerWhoLeavesIsNoFailureOfRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, alg := range []ratelimit.Algorithm{ratelimit.Exact, ratelimit.GCRA} {
		t.Run(string(alg), func(t *testing.T) {
			t.Parallel()
			p := linktest.Start(t, s.Addr)
			o := s.Options()
			o.Addrs = []string{p.Addr}
			f := newFleet(t, o, ratelimit.Options{Algorithm: alg, Timeout: patience})
			eventuallyBy(t, f, ratelimit.ByRedis)
			p.Slow(0, 300*time.Millisecond)
			l := limit(1000, time.Minute)
			gone := errors.New("gone")
			for i := range 12 {
				ctx, cancel := context.WithCancelCause(context.Background())
				if i%2 == 0 {
					cancel(gone)
				} else {
					asked := f.Stats().Asked
					go func() { // once Redis is being asked
						for f.Stats().Asked == asked {
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
					// Who makes the round trip itself, for others too, may get the answer.
					require.ErrorIs(t, err, gone)
				}
			}
			p.Slow(0, 0)
			require.NoError(t, f.Unavailable())
			require.Zero(t, f.Stats().Outages)
			require.Equal(t, ratelimit.ByRedis, take(t, f, "d", l).By)
		})
	}
}

func TestOutagePolicies(t *testing.T) {
	t.Parallel()
	for _, alg := range []ratelimit.Algorithm{ratelimit.Exact, ratelimit.GCRA} {
		t.Run(string(alg), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			refuse := newFleet(t, s.Options(), ratelimit.Options{Algorithm: alg, OnOutage: ratelimit.Deny, Timeout: patience})
			allow := newFleet(t, s.Options(), ratelimit.Options{Algorithm: alg, OnOutage: ratelimit.Allow, Timeout: patience})
			local := newFleet(t, s.Options(), ratelimit.Options{Algorithm: alg, Timeout: patience})
			require.NoError(t, s.Kill())
			ctx := context.Background()
			b := ratelimit.Bucket{Key: "k", Limit: limit(2, time.Hour)}
			for i := range 30 {
				_, err := refuse.Allow(ctx, "k", b)
				require.ErrorIs(t, err, ratelimit.ErrUnavailable)
				require.ErrorContains(t, err, "refused")
				_, err = refuse.Peek(ctx, "k", b)
				require.ErrorIs(t, err, ratelimit.ErrUnavailable)

				if allow.Unavailable() != nil || i < 2 {
					r := take(t, allow, "k", b.Limit)
					require.True(t, r.Allowed)
					require.Equal(t, ratelimit.ByLocal, r.By)
				} else {
					take(t, allow, "other", b.Limit)
				}

				peek, err := local.Peek(ctx, "k", b)
				require.NoError(t, err)
				r := take(t, local, "k", b.Limit)
				require.Equal(t, i < 2, r.Allowed)
				require.Equal(t, peek.Allowed, r.Allowed)
				require.Equal(t, max(0, 1-i), r.States[0].Remaining)
			}
			require.Error(t, refuse.Ping(ctx))
			require.NoError(t, s.Restart())
			for _, f := range []ratelimit.Limiter{refuse, allow, local} {
				eventuallyBy(t, f, ratelimit.ByRedis)
			}
			// What was let pass counts when the limit is back, where it is known of.
			require.Equal(t, alg != ratelimit.Exact, take(t, allow, "k", b.Limit).Allowed)
		})
	}
}

func TestScriptIsLoadedAgainWithoutAFailedRequest(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	fleets := newFleets(t, 2, s.Options, patient())
	c := s.Client(t)
	for i := range 20 {
		require.NoError(t, c.ScriptFlush(context.Background()).Err())
		r := take(t, fleets[i%2], "k", limit(100, time.Hour))
		require.Equal(t, ratelimit.ByRedis, r.By)
		require.Equal(t, 99-i, r.States[0].Remaining)
	}
	require.Zero(t, fleets[0].Stats().Losses, "nothing but the script was lost")
}

// TestARestartThatNobodyNoticedLosesNothing: Redis comes back empty while the
// gateways are idle, so that no breaker opens.
func TestARestartThatNobodyNoticedLosesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	fleets := newFleets(t, 3, s.Options, patient())
	l := limit(30, time.Hour)
	for i, f := range fleets {
		require.NoError(t, f.Ping(context.Background()))
		require.Equal(t, 10, takeAtOnce(t, []ratelimit.Limiter{f}, 10, "k", l))
		require.Equal(t, i+1, takeAtOnce(t, []ratelimit.Limiter{f}, i+1, "half", l))
	}
	require.NoError(t, s.Kill())
	require.NoError(t, s.Restart())
	fresh := newFleet(t, s.Options(), patient())
	require.Eventually(t, func() bool {
		r, err := fresh.Peek(context.Background(), "half", ratelimit.Bucket{Key: "half", Limit: l})
		return err == nil && r.States[0].Remaining == 24
	}, patience, 20*time.Millisecond, "what gateways without any traffic have admitted is entered too")
	require.Eventually(t, func() bool {
		r, err := fresh.Peek(context.Background(), "k", ratelimit.Bucket{Key: "k", Limit: l})
		return err == nil && !r.Allowed
	}, patience, 20*time.Millisecond)
	for _, f := range fleets {
		require.EqualValues(t, 1, f.Stats().Losses)
		require.Zero(t, f.Stats().Outages)
		require.False(t, take(t, f, "k", l).Allowed)
	}
}

// TestWhatAnEmptiedRedisHasCountedIsNotEnteredAgain: requests that come between the
// loss of Redis's memory and the moment at which a gateway sees it are in Redis.
func TestWhatAnEmptiedRedisHasCountedIsNotEnteredAgain(t *testing.T) {
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
			fleets := newFleets(t, 3, s.Options, patient())
			l := limit(90, time.Hour)
			for i, n := range []int{5, 7, 1} {
				require.Equal(t, n, takeAtOnce(t, fleets[i:i+1], n, "k", l))
			}
			empty(t, s)
			for i, n := range []int{11, 17, 0} {
				require.Equal(t, n, takeAtOnce(t, fleets[i:i+1], n, "k", l))
			}
			left := 0
			require.Eventually(t, func() bool {
				r, err := fleets[2].Peek(context.Background(), "k", ratelimit.Bucket{Key: "k", Limit: l})
				left = r.States[0].Remaining
				return err == nil && left == 90-5-7-1-11-17
			}, patience, 20*time.Millisecond)
			for _, f := range fleets {
				require.EqualValues(t, 1, f.Stats().Losses)
			}
		})
	}
}

// TestStormThroughOutages keeps three gateways loaded while Redis is killed,
// comes back empty, is stopped and goes on. No window of a gateway may hold more
// than the limit; after the last outage none of the fleet may.
func TestStormThroughOutages(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const window = 800 * time.Millisecond
	l := limit(25, window)
	fleets := newFleets(t, 3, s.Options, ratelimit.Options{ProbeInterval: 300 * time.Millisecond})
	keys := []string{"a", "b", "c"}
	done := make(chan struct{})
	records := make([]*record, len(fleets))
	var wg sync.WaitGroup
	for i, f := range fleets {
		wg.Go(func() {
			records[i] = storm(t, done, 8, 10*time.Millisecond, []ratelimit.Limiter{f}, keys, l)
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
	for _, f := range fleets {
		require.Eventually(t, func() bool { return f.Unavailable() == nil }, patience, time.Millisecond)
	}
	mended := time.Now()
	<-after(2 * window)
	close(done)
	wg.Wait()
	together, local := &record{}, 0
	for i := range fleets {
		require.LessOrEqual(t, records[i].worst(window), l.Requests, "gateway %d by itself", i)
		for key, list := range records[i].admissions {
			for _, a := range list {
				if a.from.After(mended) {
					together.add(key, a)
					if a.by != ratelimit.ByRedis {
						local++
					}
				}
			}
		}
	}
	// A request that has no answer in time, on a busy machine, is its gateway's.
	require.LessOrEqual(t, together.worst(window), l.Requests+local, "the fleet, since Redis is back")
	t.Logf("%d local verdicts since Redis is back", local)
	require.NotZero(t, together.total("a"))
}
