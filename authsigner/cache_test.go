package authsigner_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// The tests of the cache run in synctest bubbles: time is not the real one, and passes only when everything waits. A
// goroutine that the cache left behind after Close would fail the test.

var errSourceDown = errors.New("connection refused")

// fakeSource answers from a map, and fails or hangs when told to. It counts.
type fakeSource struct {
	mu      sync.Mutex
	creds   map[string]*authsigner.Credential
	errs    map[string]error // of single keys
	down    error            // of all keys
	hung    bool             // heeds the context and nothing else
	deaf    bool             // hung, and does not even heed the context
	latency time.Duration
	calls   map[string]int
	total   int
	running int
	most    int // look-ups at the same time
	resume  chan struct{}
}

func newFakeSource(keys ...string) *fakeSource {
	s := &fakeSource{
		creds: map[string]*authsigner.Credential{}, errs: map[string]error{}, calls: map[string]int{},
		resume: make(chan struct{}),
	}
	for _, key := range keys {
		s.put(key, testSecret)
	}
	return s
}

func (s *fakeSource) Lookup(ctx context.Context, publicKey string) (*authsigner.Credential, error) {
	s.mu.Lock()
	s.calls[publicKey]++
	s.total++
	s.running++
	s.most = max(s.most, s.running)
	down, hung, deaf, latency, err, cred := s.down, s.hung, s.deaf, s.latency, s.errs[publicKey], s.creds[publicKey]
	s.mu.Unlock()
	defer s.set(func() { s.running-- })

	switch {
	case deaf:
		<-s.resume
	case hung:
		<-ctx.Done()
	case latency > 0:
		timer := time.NewTimer(latency)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case down != nil:
		return nil, fmt.Errorf("asking: %w", down)
	case err != nil:
		return nil, err
	case cred == nil:
		return nil, fmt.Errorf("looking it up: %w", authsigner.ErrUnknownKey)
	}
	return cred, nil
}

func (s *fakeSource) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *fakeSource) put(key, secret string) {
	record := newRecord(map[string]any{"private_key": secret})
	cred, err := authsigner.DecodeCredential(key, record)
	if err != nil {
		panic(err)
	}
	s.set(func() { s.creds[key] = cred })
}

func (s *fakeSource) remove(key string) { s.set(func() { delete(s.creds, key) }) }

func (s *fakeSource) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[key]
}

func (s *fakeSource) totalCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// bubble is the inside of a synctest bubble, with a cache.
type bubble struct {
	*testing.T
	*authsigner.Cache
}

func withCache(t *testing.T, src *fakeSource, o authsigner.CacheOptions, test func(b bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		src.resume = make(chan struct{})
		c, err := authsigner.NewCache(src, o)
		require.NoError(t, err)
		defer c.Close()
		test(bubble{t, c})
	})
}

// pass lets time pass.
func pass(d time.Duration) { <-time.After(d) }

// lookup returns the secret and how long the answer took.
func (b bubble) lookup(key string) (secret string, took time.Duration, err error) {
	began := time.Now()
	cred, err := b.Lookup(b.Context(), key)
	took = time.Since(began)
	if err != nil {
		return "", took, err
	}
	if cred.PublicKey != key {
		return "", took, errors.New("another key's credential")
	}
	return cred.PrivateKey.Reveal(), took, nil
}

// settled looks the key up and waits until the cache has taken note of what came of it, which it does after the answer:
// that the source is away, or has answered, and what it reports.
func (b bubble) settled(key string) (secret string, took time.Duration, err error) {
	b.Helper()
	secret, took, err = b.lookup(key)
	synctest.Wait()
	return secret, took, err
}

// requireFound says that the key has that secret, and that the request did not have to wait for it.
func (b bubble) requireFound(key, secret string) {
	b.Helper()
	got, took, err := b.settled(key)
	require.NoError(b, err)
	require.Equal(b, secret, got)
	require.Zero(b, took, "the request waited")
}

// requireRefused says that the error is want, and is not the other one of the two, and that nobody waited.
func (b bubble) requireRefused(key string, want error) {
	b.Helper()
	_, took, err := b.settled(key)
	require.ErrorIs(b, err, want)
	for _, other := range []error{authsigner.ErrUnknownKey, authsigner.ErrUnavailable} {
		if !errors.Is(want, other) {
			require.NotErrorIs(b, err, other)
		}
	}
	require.Zero(b, took, "the request waited")
}

const otherKey = "pk_live_another0123456789"

func TestACredentialIsUsedForItsTTLWithOneLookup(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{RefreshBefore: -1}, func(b bubble) {
		for range 60 {
			b.requireFound(testKey, testSecret)
			pass(time.Second - time.Microsecond)
		}
		require.Equal(b, 1, src.count(testKey))
		pass(time.Second)
		b.requireFound(testKey, testSecret)
		require.Equal(b, 2, src.count(testKey))
	})
}

func TestConcurrentRequestsShareOneLookupAndSurviveEachOther(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	src.latency = time.Second
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		ctx, cancel := context.WithCancel(b.Context())
		var first error
		go func() { _, first = b.Lookup(ctx, testKey) }()
		synctest.Wait()

		var wg sync.WaitGroup
		var found atomic.Int32
		for range 100 {
			wg.Go(func() {
				if cred, err := b.Lookup(b.Context(), testKey); err == nil && cred.PublicKey == testKey {
					found.Add(1)
				}
			})
		}
		synctest.Wait()
		cancel() // the one who started the look-up goes away
		synctest.Wait()
		require.ErrorIs(b, first, context.Canceled)
		require.ErrorIs(b, first, authsigner.ErrUnavailable)
		wg.Wait()
		require.EqualValues(b, 100, found.Load())
		require.Equal(b, 1, src.count(testKey))
	})
}

func TestAKeyInUseIsRefreshedAheadWithoutAnyRequestWaiting(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		src.set(func() { src.latency = 1500 * time.Millisecond })
		for range 600 {
			pass(100 * time.Millisecond)
			b.requireFound(testKey, testSecret)
		}
		// One at the start, one at 45 s; the next is due 45 s after that one began.
		require.Equal(b, 2, src.count(testKey))
	})
}

func TestAChangedSecretIsInUseWithinTTLAndARevokedKeyRefused(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{true, false} {
		t.Run("busy="+strconv.FormatBool(busy), func(t *testing.T) {
			t.Parallel()
			src := newFakeSource(testKey, otherKey)
			withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
				b.requireFound(testKey, testSecret)
				b.requireFound(otherKey, testSecret)
				src.put(testKey, testPreviousSecret)
				src.remove(otherKey)
				if busy {
					for range 59 {
						pass(time.Second)
						_, _, _ = b.lookup(testKey)
						_, _, _ = b.lookup(otherKey)
					}
					pass(time.Second)
				} else {
					pass(time.Minute)
				}
				b.requireFound(testKey, testPreviousSecret)
				b.requireRefused(otherKey, authsigner.ErrUnknownKey)
			})
		})
	}
}

func TestARevokedKeyIsRefusedAfterTTLThoughItWasNotUsedForLong(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		src.remove(testKey)
		pass(50 * time.Minute)
		b.requireRefused(testKey, authsigner.ErrUnknownKey)
	})
}

// A source that answers within LoadTimeout is available, however slow it is: no credential past its TTL is used.
func TestARevokedKeyIsRefusedOnTheFirstRequestAfterItsTTLByASlowSource(t *testing.T) {
	t.Parallel()
	for _, latency := range []time.Duration{251 * time.Millisecond, 400 * time.Millisecond, 1999 * time.Millisecond} {
		for _, idle := range []time.Duration{time.Minute, 5 * time.Minute, 59 * time.Minute} {
			t.Run(fmt.Sprintf("latency=%s,idle=%s", latency, idle), func(t *testing.T) {
				t.Parallel()
				src := newFakeSource(testKey)
				var events eventLog
				withCache(t, src, authsigner.CacheOptions{OnEvent: events.add}, func(b bubble) {
					b.requireFound(testKey, testSecret)
					src.remove(testKey)
					src.set(func() { src.latency = latency })
					pass(idle)
					_, took, err := b.settled(testKey)
					require.ErrorIs(b, err, authsigner.ErrUnknownKey)
					require.Equal(b, latency, took)
					require.Zero(b, events.count(authsigner.CacheStale))
				})
			})
		}
	}
}

func TestSlowLookupsDoNotPutOffTheRevocationOfOtherKeys(t *testing.T) {
	t.Parallel()
	keys := make([]string, 10)
	for i := range keys {
		keys[i] = fmt.Sprintf("pk_live_key%05d", i)
	}
	src := newFakeSource(keys...)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		for _, key := range keys {
			b.requireFound(key, testSecret)
			src.remove(key)
		}
		src.set(func() { src.latency = 400 * time.Millisecond })
		pass(time.Minute)
		for _, key := range keys { // one after the other, and each learns that the source is slow
			_, _, err := b.settled(key)
			require.ErrorIs(b, err, authsigner.ErrUnknownKey)
		}
	})
}

// A caller who half-closes the connection ends the request's context, and can still read what is answered.
func TestARequestThatStopsWaitingDoesNotUseACredentialPastItsTTL(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	src.latency = 100 * time.Millisecond
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		_, _, err := b.lookup(testKey)
		require.NoError(b, err)
		src.remove(testKey)
		pass(time.Minute)
		ctx, cancel := context.WithCancel(b.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		_, err = b.Lookup(ctx, testKey)
		require.ErrorIs(b, err, authsigner.ErrUnavailable)
		require.ErrorIs(b, err, context.Canceled)
	})
}

func TestNoSuchKeyIsRememberedBriefly(t *testing.T) {
	t.Parallel()
	src := newFakeSource()
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		for range 10 {
			b.requireRefused(testKey, authsigner.ErrUnknownKey)
			pass(999 * time.Millisecond)
		}
		require.Equal(b, 1, src.count(testKey))
		require.True(b, b.Known(testKey))
		src.put(testKey, testSecret)
		pass(10 * time.Millisecond)
		require.False(b, b.Known(testKey))
		b.requireFound(testKey, testSecret)
	})
}

func TestNoErrorIsEverRememberedAsNoSuchKey(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"any error":            errSourceDown,
		"unavailable":          authsigner.ErrUnavailable,
		"deadline":             context.DeadlineExceeded,
		"unknown and not sure": fmt.Errorf("%w: %w", authsigner.ErrUnavailable, authsigner.ErrUnknownKey),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := newFakeSource(testKey)
			src.errs[testKey] = err
			withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
				b.requireRefused(testKey, authsigner.ErrUnavailable)
				b.requireRefused(testKey, authsigner.ErrUnavailable)
				require.Equal(b, 1, src.count(testKey), "a failing key is not asked for all the time")
				src.set(func() { delete(src.errs, testKey) })
				pass(time.Second)
				b.requireFound(testKey, testSecret)
			})
		})
	}
}

func TestKnownKeysGoOnForMaxStaleWhileTheSourceRefuses(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		began := time.Now()
		b.requireFound(testKey, testSecret)
		src.set(func() { src.down = errSourceDown })
		for time.Since(began) < time.Hour-time.Second {
			b.requireFound(testKey, testSecret)
			pass(700 * time.Millisecond)
		}
		require.LessOrEqual(b, src.count(testKey), 3600, "more than one look-up a second")
		require.Greater(b, src.count(testKey), 1700)
		pass(time.Second)
		b.requireRefused(testKey, authsigner.ErrUnavailable)
		src.set(func() { src.down = nil })
		pass(time.Second)
		b.requireFound(testKey, testSecret)
	})
}

func TestAHungSourceDelaysRequestsUntilItsLookupsHaveFailedAndNoneAfterwards(t *testing.T) {
	t.Parallel()
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprintf("pk_live_key%05d", i)
	}
	src := newFakeSource(keys...)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		for _, key := range keys {
			b.requireFound(key, testSecret)
		}
		src.set(func() { src.hung = true })
		pass(2 * time.Minute) // nothing was asked for meanwhile: the outage is news

		began := time.Now()
		var wg sync.WaitGroup
		var late atomic.Int32
		for range 60 { // every 50 ms, each key
			for _, key := range keys {
				wg.Go(func() {
					arrived := time.Since(began)
					secret, took, err := b.lookup(key)
					if err != nil || secret != testSecret || took > authsigner.DefaultLoadTimeout {
						late.Add(1)
					}
					if took > 0 && arrived > authsigner.DefaultLoadTimeout {
						late.Add(1)
					}
				})
			}
			pass(50 * time.Millisecond)
		}
		wg.Wait()
		require.Zero(b, late.Load())

		// Look-ups have run into their deadline, so the source is away: one look-up a second, for all keys together.
		pass(2 * time.Second)
		before := src.totalCount()
		for range 100 {
			for _, key := range keys {
				b.requireFound(key, testSecret)
			}
			pass(100 * time.Millisecond)
		}
		require.True(b, b.Stats().Unavailable)
		require.LessOrEqual(b, src.totalCount()-before, 11)
		// Keys never seen do not wait either, but for the one that asks.
		var waited, wrong atomic.Int32
		for i := range 100 {
			wg.Go(func() {
				_, took, err := b.lookup(fmt.Sprintf("pk_live_never_seen%d", i))
				if !errors.Is(err, authsigner.ErrUnavailable) || errors.Is(err, authsigner.ErrUnknownKey) {
					wrong.Add(1)
				}
				if took > 0 {
					waited.Add(1)
				}
			})
			pass(10 * time.Millisecond)
		}
		wg.Wait()
		require.Zero(b, wrong.Load())
		require.LessOrEqual(b, waited.Load(), int32(1))

		// Back: at once for the known ones, and after a second at the latest for the others.
		src.set(func() { src.hung = false })
		src.remove(keys[0])
		src.put("pk_live_never_seen_yet", testSecret)
		pass(time.Second)
		b.requireFound("pk_live_never_seen_yet", testSecret)
		b.requireRefused(keys[0], authsigner.ErrUnknownKey)
		require.False(b, b.Stats().Unavailable)
	})
}

func TestASourceThatHeedsNoDeadlineHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		src.set(func() { src.deaf = true })
		_, took, err := b.lookup(testKey)
		require.ErrorIs(b, err, authsigner.ErrUnavailable)
		require.Less(b, took, 3*time.Second)
		close(src.resume)
	})
}

func TestASourceThatHeedsNoDeadlineDelaysAKnownKeyOnce(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		pass(time.Minute)
		src.set(func() { src.deaf = true })
		secret, took, err := b.lookup(testKey)
		require.NoError(b, err)
		require.Equal(b, testSecret, secret)
		require.Less(b, took, 3*time.Second)
		for range 4 {
			b.requireFound(testKey, testSecret)
			pass(900 * time.Millisecond)
		}
		close(src.resume)
	})
}

// Without traffic of other keys, one key's own failures are all that is known of the source.
func TestAHungSourceDelaysTheOnlyKeyOnce(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		pass(time.Minute)
		src.set(func() { src.hung = true })
		secret, took, err := b.lookup(testKey)
		require.NoError(b, err)
		require.Equal(b, testSecret, secret)
		require.Equal(b, authsigner.DefaultLoadTimeout, took)
		for i := range 600 {
			b.requireFound(testKey, testSecret)
			pass(time.Duration(1+i%39) * 100 * time.Millisecond)
		}
		require.Greater(b, src.count(testKey), 200, "look-ups go on in the background")

		// The source answers again: a look-up that it has swallowed runs into its deadline, and counts for a while.
		src.set(func() { src.hung = false })
		src.remove(testKey)
		pass(2*authsigner.DefaultLoadTimeout + 2*authsigner.DefaultRetryAfterFailure)
		b.requireRefused(testKey, authsigner.ErrUnknownKey)
	})
}

func TestAfterAQuietTimeTheSourceIsAskedBeforeAnOldCredentialIsTrusted(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey, otherKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		b.requireFound(otherKey, testSecret)
		pass(time.Minute)
		src.set(func() { src.down = errSourceDown })
		b.requireFound(testKey, testSecret)
		b.requireFound(otherKey, testSecret)
		require.True(b, b.Stats().Unavailable)

		// Nobody calls, the source comes back, the key is revoked.
		src.set(func() { src.down = nil })
		src.remove(testKey)
		pass(10 * time.Minute)
		require.False(b, b.Stats().Unavailable)
		b.requireRefused(testKey, authsigner.ErrUnknownKey)
	})
}

func TestOneFailingKeyDoesNotPutOffTheRevocationOfOthers(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey, otherKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		b.requireFound(otherKey, testSecret)
		src.set(func() { src.errs[testKey] = errors.New("permission denied") })
		for range 600 {
			pass(time.Second)
			b.requireFound(testKey, testSecret)
		}
		src.remove(otherKey)
		b.requireRefused(otherKey, authsigner.ErrUnknownKey)
		require.False(b, b.Stats().Unavailable)
	})
}

func TestAMalformedEntryIsUnavailableAtOnceAndAlone(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"bare":    fmt.Errorf("%w: status is missing", authsigner.ErrMalformedCredential),
		"wrapped": fmt.Errorf("%w: %w", authsigner.ErrUnavailable, authsigner.ErrMalformedCredential),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := newFakeSource(testKey, otherKey)
			var events eventLog
			withCache(t, src, authsigner.CacheOptions{OnEvent: events.add}, func(b bubble) {
				b.requireFound(testKey, testSecret)
				b.requireFound(otherKey, testSecret)
				src.set(func() { src.errs[testKey] = err })
				pass(time.Minute)
				// It is not used stale: what there is now is not what it was.
				b.requireRefused(testKey, authsigner.ErrUnavailable)
				_, _, err := b.lookup(testKey)
				require.ErrorIs(b, err, authsigner.ErrMalformedCredential)
				b.requireFound(otherKey, testSecret)
				require.False(b, b.Stats().Unavailable)
				require.Equal(b, 1, events.count(authsigner.CacheMalformed))

				src.set(func() { delete(src.errs, testKey) })
				pass(time.Second)
				b.requireFound(testKey, testSecret)
			})
		})
	}
}

func TestAnInvalidatedKeyIsNotUsedBeforeTheSourceHasConfirmedIt(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey, otherKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		b.requireFound(otherKey, testSecret)
		src.remove(testKey)
		b.Invalidate(testKey)
		b.requireRefused(testKey, authsigner.ErrUnknownKey)
		src.put(testKey, testPreviousSecret)
		b.Invalidate(testKey) // its absence is forgotten too
		b.requireFound(testKey, testPreviousSecret)

		src.set(func() { src.down = errSourceDown })
		b.Invalidate(otherKey)
		b.requireRefused(otherKey, authsigner.ErrUnavailable)
		b.requireFound(testKey, testPreviousSecret)
	})
}

func TestALookupThatBeganBeforeTheInvalidationIsNotTrusted(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		src.latency = time.Second
		for _, invalidate := range []func(){func() { b.Invalidate(testKey) }, b.InvalidateAll} {
			src.put(testKey, testSecret)
			b.Invalidate(testKey)
			var secret string
			var err error
			go func() { secret, _, err = b.lookup(testKey) }()
			synctest.Wait() // the source has answered inwardly, the answer is on its way
			src.put(testKey, testPreviousSecret)
			invalidate()
			pass(3 * time.Second)
			synctest.Wait()
			require.NoError(b, err)
			require.Equal(b, testPreviousSecret, secret)
			b.requireFound(testKey, testPreviousSecret)
		}
	})
}

func TestARequestThatWaitsWithAnOldCredentialInHandDoesNotUseItOnceInvalidated(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		pass(time.Minute)
		src.set(func() { src.hung = true })
		var err error
		go func() { _, _, err = b.lookup(testKey) }()
		synctest.Wait()
		b.Invalidate(testKey)
		pass(10 * time.Second)
		synctest.Wait()
		require.ErrorIs(b, err, authsigner.ErrUnavailable)
	})
}

func TestInvalidateAllAsksForEachKeyAgainAndKeepsItToFallBackOn(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey, otherKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		const absentKey = "pk_live_not_there_yet"
		b.requireFound(testKey, testSecret)
		b.requireFound(otherKey, testSecret)
		b.requireRefused(absentKey, authsigner.ErrUnknownKey)
		src.remove(testKey)
		src.put(absentKey, testSecret)
		b.InvalidateAll()
		require.False(b, b.Known(testKey))
		b.requireRefused(testKey, authsigner.ErrUnknownKey)
		b.requireFound(absentKey, testSecret)

		src.set(func() { src.down = errSourceDown })
		b.InvalidateAll()
		b.requireFound(otherKey, testSecret)
		b.requireFound(absentKey, testSecret)
		require.Equal(b, 2, src.count(otherKey))
	})
}

func TestAFloodOfInventedKeysDoesNotEvictTheRealOnes(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey, otherKey)
	withCache(t, src, authsigner.CacheOptions{MaxEntries: 100}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		b.requireFound(otherKey, testSecret)
		for i := range 2000 {
			b.requireRefused(fmt.Sprintf("pk_live_invented%d", i), authsigner.ErrUnknownKey)
		}
		synctest.Wait()
		b.requireFound(testKey, testSecret)
		b.requireFound(otherKey, testSecret)
		require.Equal(b, 1, src.count(testKey))
		require.Equal(b, 2, b.Stats().Credentials)
		require.LessOrEqual(b, b.Stats().Absent, 110)
	})
}

func TestMoreCredentialsThanMaxEntriesAreNotKept(t *testing.T) {
	t.Parallel()
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("pk_live_key%05d", i)
	}
	src := newFakeSource(keys...)
	withCache(t, src, authsigner.CacheOptions{MaxEntries: 100}, func(b bubble) {
		for _, key := range keys {
			b.requireFound(key, testSecret)
		}
		synctest.Wait()
		require.LessOrEqual(b, b.Stats().Credentials, 110)
	})
}

func TestAFloodOfInventedKeysNeitherFloodsASlowSourceNorHoldsUpKnownKeys(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{MaxLoads: 8}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		pass(time.Minute)
		src.put(testKey, testPreviousSecret)
		src.set(func() { src.latency = 100 * time.Millisecond })
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() { _, _ = b.Lookup(b.Context(), fmt.Sprintf("pk_live_invented%d", i)) })
		}
		synctest.Wait()
		secret, took, err := b.lookup(testKey)
		require.NoError(b, err)
		require.Equal(b, testPreviousSecret, secret)
		require.Equal(b, 100*time.Millisecond, took)
		wg.Wait()
		require.LessOrEqual(b, src.most, 9)
		require.False(b, b.Stats().Unavailable, "a crowd before the source says nothing about it")
	})
}

func TestCloseEndsEveryLookupAndForgetsEverything(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		src.set(func() { src.hung = true })
		var err error
		go func() { _, err = b.Lookup(b.Context(), otherKey) }()
		synctest.Wait()
		began := time.Now()
		require.NoError(b, b.Close())
		require.Zero(b, time.Since(began))
		synctest.Wait()
		require.ErrorIs(b, err, authsigner.ErrUnavailable)
		b.requireRefused(testKey, authsigner.ErrUnavailable)
		require.NoError(b, b.Close())
	})
}

func TestASourceThatMisbehavesIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]answering{
		"panics":          func(string) (*authsigner.Credential, error) { panic("oh") },
		"answers nothing": func(string) (*authsigner.Credential, error) { return nil, nil },
		"another key's":   func(string) (*authsigner.Credential, error) { return newCredential(nil), nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, err := authsigner.NewCache(src, authsigner.CacheOptions{})
				require.NoError(t, err)
				defer c.Close()
				bubble{t, c}.requireRefused(otherKey, authsigner.ErrUnavailable)
			})
		})
	}
}

type answering func(string) (*authsigner.Credential, error)

func (f answering) Lookup(_ context.Context, key string) (*authsigner.Credential, error) {
	return f(key)
}

func TestWhatIsNoPublicKeyNeverReachesTheSource(t *testing.T) {
	t.Parallel()
	src := newFakeSource()
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		for _, key := range []string{"", "short", "pk_live_../../sys/raw", "pk_live_%2e%2e%2f", "pk_live_\x00\x00\x00\x00"} {
			b.requireRefused(key, authsigner.ErrUnknownKey)
		}
		require.Zero(b, src.totalCount())
		require.Zero(b, b.Stats().Absent)
	})
}

func TestAClockThatStepsBackMakesNothingLiveLonger(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	var offset atomic.Int64
	o := authsigner.CacheOptions{Now: func() time.Time {
		return time.Now().Round(0).Add(time.Duration(offset.Load())) // without its monotonic part
	}}
	withCache(t, src, o, func(b bubble) {
		b.requireFound(testKey, testSecret)
		b.requireRefused(otherKey, authsigner.ErrUnknownKey)
		src.remove(testKey)
		src.put(otherKey, testSecret)
		offset.Store(int64(-10 * time.Minute))
		b.requireRefused(testKey, authsigner.ErrUnknownKey)
		b.requireFound(otherKey, testSecret)
	})
}

func TestKnownSaysWhetherALookupWouldAskTheSource(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		require.False(b, b.Known(testKey))
		require.False(b, b.Known(otherKey))
		b.requireFound(testKey, testSecret)
		b.requireRefused(otherKey, authsigner.ErrUnknownKey)
		require.True(b, b.Known(testKey))
		require.True(b, b.Known(otherKey))
		pass(time.Minute)
		require.False(b, b.Known(testKey))
		require.False(b, b.Known(otherKey))
		src.set(func() { src.down = errSourceDown })
		b.requireFound(testKey, testSecret)
		require.True(b, b.Known(testKey), "it has just failed")
		require.Equal(b, 2, src.count(testKey), "Known never asks")
	})
}

func TestHasSaysWhetherThereIsACredentialToFallBackOn(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{}, func(b bubble) {
		require.False(b, b.Has(testKey))
		b.requireFound(testKey, testSecret)
		b.requireRefused(otherKey, authsigner.ErrUnknownKey)
		require.True(b, b.Has(testKey))
		require.False(b, b.Has(otherKey), "a remembered absence is not a credential")
		pass(time.Hour - time.Nanosecond)
		require.True(b, b.Has(testKey))
		pass(time.Nanosecond)
		require.False(b, b.Has(testKey))
		b.requireFound(testKey, testSecret)
		b.Invalidate(testKey)
		require.False(b, b.Has(testKey))
		require.Equal(b, 2, src.count(testKey), "Has never asks")
	})
}

func TestOutagesAndRecoveriesAreReported(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey, otherKey)
	var events eventLog
	withCache(t, src, authsigner.CacheOptions{OnEvent: events.add}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		b.requireFound(otherKey, testSecret)
		b.requireRefused("pk_live_unknown", authsigner.ErrUnknownKey)
		pass(time.Minute)
		src.set(func() { src.down = errSourceDown })
		b.requireFound(testKey, testSecret)
		b.requireFound(otherKey, testSecret)
		b.requireRefused("pk_live_never_seen", authsigner.ErrUnavailable)
		b.requireRefused("pk_live_never_seen_2", authsigner.ErrUnavailable)
		src.set(func() { src.down, src.latency = nil, time.Millisecond })
		pass(time.Second)
		b.requireFound(testKey, testSecret) // as it was: the answer takes a moment
		pass(time.Millisecond)
		synctest.Wait()
		for kind, want := range map[authsigner.CacheEventKind]int{
			authsigner.CacheLoaded: 3, authsigner.CacheUnknown: 1, authsigner.CacheFailed: 3, authsigner.CacheStale: 3,
			authsigner.CacheUnavailable: 1, authsigner.CacheAvailable: 1, authsigner.CacheSkipped: 1, authsigner.CacheMalformed: 0,
		} {
			require.Equal(b, want, events.count(kind), string(kind))
		}
	})
}

type eventLog struct {
	mu   sync.Mutex
	list []authsigner.CacheEvent
}

func (l *eventLog) add(e authsigner.CacheEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, e)
}

func (l *eventLog) count(kind authsigner.CacheEventKind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, e := range l.list {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func TestWithoutStaleUseAnOutageIsNoticedAtTTL(t *testing.T) {
	t.Parallel()
	src := newFakeSource(testKey)
	withCache(t, src, authsigner.CacheOptions{StaleIfError: -1}, func(b bubble) {
		b.requireFound(testKey, testSecret)
		src.set(func() { src.down = errSourceDown })
		pass(time.Minute - time.Nanosecond)
		b.requireFound(testKey, testSecret)
		pass(time.Second)
		b.requireRefused(testKey, authsigner.ErrUnavailable)
	})
}

func TestContradictingOptionsAreRefused(t *testing.T) {
	t.Parallel()
	src := newFakeSource()
	for name, o := range map[string]authsigner.CacheOptions{
		"negative TTL":               {TTL: -1},
		"negative LoadTimeout":       {LoadTimeout: -1},
		"negative RetryAfterFailure": {RetryAfterFailure: -1},
		"RefreshBefore >= TTL":       {TTL: time.Second, RefreshBefore: time.Second},
		"StaleIfError < TTL":         {TTL: time.Minute, StaleIfError: time.Second},
		"negative MaxEntries":        {MaxEntries: -1},
		"negative MaxLoads":          {MaxLoads: -1},
	} {
		_, err := authsigner.NewCache(src, o)
		require.Error(t, err, name)
	}
	_, err := authsigner.NewCache(nil, authsigner.CacheOptions{})
	require.Error(t, err)
	for _, o := range []authsigner.CacheOptions{
		{TTL: time.Second}, {TTL: 2 * time.Hour}, {LoadTimeout: time.Millisecond}, {NegativeTTL: -1, RefreshBefore: -1, StaleIfError: -1},
	} {
		c, err := authsigner.NewCache(src, o)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}

// Whatever happens at the same time, a look-up that begins after a revocation was announced does not find the key.
func TestARevocationIsNeverOvertakenUnderLoad(t *testing.T) {
	t.Parallel()
	keys := make([]string, 8)
	for i := range keys {
		keys[i] = fmt.Sprintf("pk_live_key%05d", i)
	}
	src := newFakeSource(keys...)
	c, err := authsigner.NewCache(jittery{src}, authsigner.CacheOptions{
		TTL: 5 * time.Millisecond, RefreshBefore: 4 * time.Millisecond, NegativeTTL: 2 * time.Millisecond,
	})
	require.NoError(t, err)
	defer c.Close()

	// The secret's number only ever grows, and what is announced may not be undercut.
	announced := make([]atomic.Int64, len(keys))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var looked, wrong atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { // for two seconds, or until there is something to judge by
		defer cancel()
		<-time.After(2 * time.Second)
		for until := time.Now().Add(time.Minute); looked.Load() <= 100 && time.Now().Before(until); {
			<-time.After(10 * time.Millisecond)
		}
	})
	for i, key := range keys {
		src.put(key, "0")
		wg.Go(func() {
			for n := int64(1); ctx.Err() == nil; n++ {
				src.put(key, strconv.FormatInt(n, 10))
				c.Invalidate(key)
				announced[i].Store(n)
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(rand.IntN(8)) * time.Millisecond):
				}
			}
		})
	}
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := rand.IntN(len(keys))
				least := announced[i].Load()
				cred, err := c.Lookup(ctx, keys[i])
				if err != nil {
					continue
				}
				looked.Add(1)
				if n, err := strconv.ParseInt(cred.PrivateKey.Reveal(), 10, 64); err != nil || n < least {
					wrong.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, wrong.Load())
	require.Greater(t, looked.Load(), int64(100))
}

// jittery takes its time after it has looked.
type jittery struct{ src *fakeSource }

func (j jittery) Lookup(ctx context.Context, key string) (*authsigner.Credential, error) {
	cred, err := j.src.Lookup(ctx, key)
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(rand.IntN(1000)) * time.Microsecond):
	}
	return cred, err
}

func TestAFreshHitAllocatesNothing(t *testing.T) {
	src := newFakeSource(testKey)
	c, err := authsigner.NewCache(src, authsigner.CacheOptions{})
	require.NoError(t, err)
	defer c.Close()
	for _, key := range []string{testKey, otherKey} {
		_, _ = c.Lookup(t.Context(), key)
		allocations := testing.AllocsPerRun(1000, func() { _, _ = c.Lookup(t.Context(), key) })
		require.Zero(t, allocations, key)
	}
}

func BenchmarkCache(b *testing.B) {
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("pk_live_key%05d", i)
	}
	src := newFakeSource(keys...)
	c, err := authsigner.NewCache(src, authsigner.CacheOptions{TTL: time.Hour, StaleIfError: time.Hour})
	require.NoError(b, err)
	defer c.Close()
	absent := make([]string, 100)
	for i := range absent {
		absent[i] = fmt.Sprintf("pk_live_absent%d", i)
	}
	for _, key := range slices.Concat(keys, absent) {
		_, _ = c.Lookup(b.Context(), key)
	}
	b.Run("fresh", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			_, _ = c.Lookup(b.Context(), keys[i%len(keys)])
		}
	})
	b.Run("fresh, in parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				_, _ = c.Lookup(b.Context(), keys[i%len(keys)])
			}
		})
	})
	b.Run("stale, the source away", func(b *testing.B) {
		failing := newFakeSource(keys...)
		var ahead atomic.Int64
		c, err := authsigner.NewCache(failing, authsigner.CacheOptions{Now: func() time.Time {
			return time.Now().Add(time.Duration(ahead.Load()))
		}})
		require.NoError(b, err)
		defer c.Close()
		for range 2 { // seen, and then past their TTL
			for _, key := range keys {
				_, _ = c.Lookup(b.Context(), key)
			}
			failing.set(func() { failing.down = errSourceDown })
			ahead.Store(int64(2 * time.Minute))
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := c.Lookup(b.Context(), keys[i%len(keys)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("absent", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			_, _ = c.Lookup(b.Context(), absent[i%len(absent)])
		}
	})
}
