package authsigner_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/recordtest"
)

// The tests of the cache run in synctest bubbles: time advances only when every goroutine waits, and a goroutine that
// the cache leaves behind after Close fails the test.

var errSourceDown = errors.New("connection refused")

// fakeSource is a CredentialSource on a map that counts its lookups and can fail or hang.
type fakeSource struct {
	mu      sync.Mutex
	creds   map[string]*authsigner.Credential
	errs    map[string]error // of single keys
	down    error            // of all keys
	hung    bool             // waits for the context to end
	deaf    bool             // ignores the context too, until resume is closed
	latency time.Duration
	calls   map[string]int
	total   int
	running int
	most    int // highest number of concurrent lookups
	resume  chan struct{}
	instead func() (*authsigner.Credential, error) // the result of all lookups, if set
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
	case s.instead != nil:
		return s.instead()
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
	cred, err := authsigner.DecodeCredential(key, newRecord(map[string]any{"private_key": secret}))
	if err != nil {
		panic(err)
	}
	s.set(func() { s.creds[key] = cred })
}

// putMany puts n keys with testSecret and returns them.
func (s *fakeSource) putMany(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("pk_live_key%05d", i)
		s.put(keys[i], testSecret)
	}
	return keys
}

func (s *fakeSource) remove(key string) { s.set(func() { delete(s.creds, key) }) }

func (s *fakeSource) count(key string) (n int) {
	s.set(func() { n = s.calls[key] })
	return n
}

func (s *fakeSource) totalCount() (n int) {
	s.set(func() { n = s.total })
	return n
}

// bubble is a cache of a fakeSource with testKey and otherKey, in a synctest bubble.
type bubble struct {
	*testing.T
	*authsigner.Cache
	src    *fakeSource
	events *eventLog
}

func withCache(t *testing.T, o authsigner.CacheOptions, test func(b bubble)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := bubble{T: t, src: newFakeSource(testKey, otherKey), events: new(eventLog)}
		o.OnEvent = b.events.Add
		var err error
		b.Cache, err = authsigner.NewCache(b.src, o)
		require.NoError(t, err)
		defer b.Close()
		test(b)
	})
}

func pass(d time.Duration) { <-time.After(d) }

// lookup returns the secret and how long the lookup took.
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

// requireSecret requires that the key has that secret and that the request did not wait.
func (b bubble) requireSecret(key, secret string) {
	b.Helper()
	got, took, err := b.lookup(key)
	synctest.Wait() // the cache records the outcome after it has responded
	require.NoError(b, err)
	require.Equal(b, secret, got)
	require.Zero(b, took, "the request waited")
}

func (b bubble) requireKnown(key string, want bool) {
	b.Helper()
	_, known, _ := b.LookupCached(key)
	require.Equal(b, want, known)
}

func (b bubble) requireFound(keys ...string) {
	b.Helper()
	for _, key := range keys {
		b.requireSecret(key, testSecret)
	}
}

// requireError requires want, but not the other one of ErrUnknownKey and ErrUnavailable, and that the request did not
// wait.
func (b bubble) requireError(key string, want error) {
	b.Helper()
	_, took, err := b.lookup(key)
	synctest.Wait()
	require.ErrorIs(b, err, want)
	require.NotEqual(b, errors.Is(err, authsigner.ErrUnknownKey), errors.Is(err, authsigner.ErrUnavailable), err)
	require.Zero(b, took, "the request waited")
}

// eventLog collects the events of a cache.
type eventLog struct {
	recordtest.Events[authsigner.CacheEvent]
}

func (l *eventLog) count(kind authsigner.CacheEventKind) int {
	return l.Count(func(e authsigner.CacheEvent) bool { return e.Kind == kind })
}

const (
	otherKey   = "pk_live_another0123456789"
	unknownKey = "pk_live_unknown0123456789"
)

func TestCacheLooksUpOncePerTTL(t *testing.T) {
	withCache(t, authsigner.CacheOptions{RefreshBefore: -1}, func(b bubble) {
		for range 60 {
			b.requireFound(testKey)
			pass(time.Second - time.Microsecond)
		}
		require.Equal(b, 1, b.src.count(testKey))
		pass(time.Second)
		b.requireFound(testKey)
		require.Equal(b, 2, b.src.count(testKey))
	})
}

func TestConcurrentRequestsShareOneLookup(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		b.src.latency = time.Second
		ctx, cancel := context.WithCancel(b.Context())
		var first error
		go func() { _, first = b.Lookup(ctx, testKey) }()
		synctest.Wait()

		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				secret, _, err := b.lookup(testKey)
				assert.NoError(b, err)
				assert.Equal(b, testSecret, secret)
			})
		}
		synctest.Wait()
		cancel() // the request that started the lookup ends
		synctest.Wait()
		require.ErrorIs(b, first, context.Canceled)
		require.ErrorIs(b, first, authsigner.ErrUnavailable)
		wg.Wait()
		require.Equal(b, 1, b.src.count(testKey))
	})
}

func TestKeyInUseIsRefreshedInTheBackground(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey)
		b.src.set(func() { b.src.latency = 1500 * time.Millisecond })
		for range 600 {
			pass(100 * time.Millisecond)
			b.requireFound(testKey)
		}
		// One at the start, one at 45 s; the next is due 45 s after that one began.
		require.Equal(b, 2, b.src.count(testKey))
	})
}

func TestChangesToAKeyInUseTakeEffectWithinTTL(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, otherKey)
		b.src.put(testKey, testPreviousSecret)
		b.src.remove(otherKey)
		for range 59 {
			pass(time.Second)
			_, _, _ = b.lookup(testKey)
			_, _, _ = b.lookup(otherKey)
		}
		pass(time.Second)
		b.requireSecret(testKey, testPreviousSecret)
		b.requireError(otherKey, authsigner.ErrUnknownKey)
	})
}

// A source that responds within LookupTimeout is available, however slow it is: no credential is used past its TTL.
func TestChangesToAnIdleKeyTakeEffectAtOnce(t *testing.T) {
	t.Parallel()
	for _, latency := range []time.Duration{0, 251 * time.Millisecond, 400 * time.Millisecond, 1999 * time.Millisecond} {
		for _, idle := range []time.Duration{time.Minute, 5 * time.Minute, 59 * time.Minute} {
			t.Run(fmt.Sprintf("latency=%s,idle=%s", latency, idle), func(t *testing.T) {
				withCache(t, authsigner.CacheOptions{}, func(b bubble) {
					b.requireFound(testKey, otherKey)
					b.src.put(testKey, testPreviousSecret)
					b.src.remove(otherKey)
					b.src.set(func() { b.src.latency = latency })
					pass(idle)
					_, took, err := b.lookup(otherKey)
					synctest.Wait()
					require.ErrorIs(b, err, authsigner.ErrUnknownKey)
					require.Equal(b, latency, took)
					secret, _, err := b.lookup(testKey)
					synctest.Wait()
					require.NoError(b, err)
					require.Equal(b, testPreviousSecret, secret)
					require.Zero(b, b.events.count(authsigner.CacheStale))
				})
			})
		}
	}
}

// A caller who half-closes the connection ends the request's context, and can still read the response.
func TestCanceledRequestDoesNotGetAStaleCredential(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		b.src.latency = 100 * time.Millisecond
		_, _, err := b.lookup(testKey)
		require.NoError(b, err)
		b.src.remove(testKey)
		pass(time.Minute)
		ctx, cancel := context.WithCancel(b.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		_, err = b.Lookup(ctx, testKey)
		require.ErrorIs(b, err, authsigner.ErrUnavailable)
		require.ErrorIs(b, err, context.Canceled)
	})
}

// A key may be changed while the source responds.
func TestLifetimesBeginBeforeTheLookup(t *testing.T) {
	t.Parallel()
	const latency = 1500 * time.Millisecond
	for name, test := range map[string]struct {
		key  string
		want error
		ttl  time.Duration
	}{
		"known":   {testKey, nil, time.Minute},
		"unknown": {unknownKey, authsigner.ErrUnknownKey, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			withCache(t, authsigner.CacheOptions{RefreshBefore: -1}, func(b bubble) {
				b.src.latency = latency
				_, took, err := b.lookup(test.key)
				synctest.Wait()
				require.ErrorIs(b, err, test.want)
				require.Equal(b, latency, took)
				pass(test.ttl - latency - time.Nanosecond)
				b.requireKnown(test.key, true)
				pass(time.Nanosecond)
				b.requireKnown(test.key, false)
			})
		})
	}
}

func TestUnknownKeysAreCachedBriefly(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		for range 10 {
			b.requireError(unknownKey, authsigner.ErrUnknownKey)
			pass(999 * time.Millisecond)
		}
		require.Equal(b, 1, b.src.count(unknownKey))
		b.requireKnown(unknownKey, true)
		b.src.put(unknownKey, testSecret)
		pass(10 * time.Millisecond)
		b.requireKnown(unknownKey, false)
		b.requireFound(unknownKey)
	})
}

func TestErrorsAreNotCachedAsUnknownKeys(t *testing.T) {
	t.Parallel()
	fail := func(err error) func() (*authsigner.Credential, error) {
		return func() (*authsigner.Credential, error) { return nil, err }
	}
	for name, instead := range map[string]func() (*authsigner.Credential, error){
		"any error":                fail(errSourceDown),
		"unavailable":              fail(authsigner.ErrUnavailable),
		"deadline":                 fail(context.DeadlineExceeded),
		"unavailable and unknown":  fail(fmt.Errorf("%w: %w", authsigner.ErrUnavailable, authsigner.ErrUnknownKey)),
		"panic":                    func() (*authsigner.Credential, error) { panic("oh") },
		"no credential, no error":  fail(nil),
		"another key's credential": func() (*authsigner.Credential, error) { return newCredential(nil), nil },
	} {
		t.Run(name, func(t *testing.T) {
			withCache(t, authsigner.CacheOptions{}, func(b bubble) {
				b.src.instead = instead
				b.requireError(otherKey, authsigner.ErrUnavailable)
				b.requireError(otherKey, authsigner.ErrUnavailable)
				require.Equal(b, 1, b.src.count(otherKey), "a failed lookup is not repeated at once")
				b.src.set(func() { b.src.instead = nil })
				pass(time.Second)
				b.requireFound(otherKey)
			})
		})
	}
}

func TestStaleCredentialsAreUsedForAnHour(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		began := time.Now()
		b.requireFound(testKey)
		b.src.set(func() { b.src.down = errSourceDown })
		for time.Since(began) < time.Hour-time.Second {
			b.requireFound(testKey)
			pass(700 * time.Millisecond)
		}
		require.LessOrEqual(b, b.src.count(testKey), 3600, "more than one lookup a second")
		require.Greater(b, b.src.count(testKey), 1700)
		pass(time.Second)
		b.requireError(testKey, authsigner.ErrUnavailable)
		b.src.set(func() { b.src.down = nil })
		pass(time.Second)
		b.requireFound(testKey)
	})
}

func TestStaleUseCanBeDisabled(t *testing.T) {
	withCache(t, authsigner.CacheOptions{StaleIfError: -1}, func(b bubble) {
		b.requireFound(testKey)
		b.src.set(func() { b.src.down = errSourceDown })
		pass(time.Minute - time.Nanosecond)
		b.requireFound(testKey)
		pass(time.Second)
		b.requireError(testKey, authsigner.ErrUnavailable)

		b.src.set(func() { b.src.down = nil })
		pass(time.Second)
		b.requireFound(testKey)
		b.src.set(func() { b.src.down = errSourceDown })
		b.InvalidateAll()
		b.requireError(testKey, authsigner.ErrUnavailable)
	})
}

func TestHungSourceDelaysOnlyTheFirstRequests(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		keys := b.src.putMany(100)
		b.requireFound(keys...)
		b.src.set(func() { b.src.hung = true })
		pass(2 * time.Minute) // without a request, so the cache does not know yet

		began := time.Now()
		var wg sync.WaitGroup
		for range 60 { // every 50 ms, each key
			for _, key := range keys {
				wg.Go(func() {
					arrived := time.Since(began)
					secret, took, err := b.lookup(key)
					assert.NoError(b, err)
					assert.Equal(b, testSecret, secret)
					assert.LessOrEqual(b, took, authsigner.DefaultLookupTimeout)
					assert.False(b, took > 0 && arrived > authsigner.DefaultLookupTimeout, "it waited after the first lookups had failed")
				})
			}
			pass(50 * time.Millisecond)
		}
		wg.Wait()

		// The source is considered unavailable: one lookup a second for all keys together.
		pass(2 * time.Second)
		before := b.src.totalCount()
		for range 100 {
			b.requireFound(keys...)
			pass(100 * time.Millisecond)
		}
		require.True(b, authsigner.SourceUnavailable(b.Cache))
		require.LessOrEqual(b, b.src.totalCount()-before, 11)
		// Of the requests with uncached keys, only the one whose lookup is made waits.
		var waited atomic.Int32
		for i := range 100 {
			wg.Go(func() {
				_, took, err := b.lookup(fmt.Sprintf("pk_live_never_seen%d", i))
				assert.ErrorIs(b, err, authsigner.ErrUnavailable)
				assert.NotErrorIs(b, err, authsigner.ErrUnknownKey)
				if took > 0 {
					waited.Add(1)
				}
			})
			pass(10 * time.Millisecond)
		}
		wg.Wait()
		require.LessOrEqual(b, waited.Load(), int32(1))

		b.src.set(func() { b.src.hung = false })
		b.src.remove(keys[0])
		b.src.put("pk_live_never_seen_yet", testSecret)
		pass(time.Second)
		b.requireFound("pk_live_never_seen_yet")
		b.requireError(keys[0], authsigner.ErrUnknownKey)
		require.False(b, authsigner.SourceUnavailable(b.Cache))
	})
}

func TestSourceThatIgnoresItsDeadlineDelaysAKeyOnce(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey)
		pass(time.Minute)
		b.src.set(func() { b.src.deaf = true })
		secret, took, err := b.lookup(testKey)
		require.NoError(b, err)
		require.Equal(b, testSecret, secret)
		require.Less(b, took, 3*time.Second)
		for range 4 {
			b.requireFound(testKey)
			pass(900 * time.Millisecond)
		}
		_, took, err = b.lookup(otherKey)
		require.ErrorIs(b, err, authsigner.ErrUnavailable)
		require.Positive(b, took)
		require.Less(b, took, 3*time.Second)
		close(b.src.resume)
	})
}

// Without requests for other keys, only this key's failures show that the source is unavailable.
func TestHungSourceDelaysTheOnlyKeyOnce(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey)
		pass(time.Minute)
		b.src.set(func() { b.src.hung = true })
		secret, took, err := b.lookup(testKey)
		require.NoError(b, err)
		require.Equal(b, testSecret, secret)
		require.Equal(b, authsigner.DefaultLookupTimeout, took)
		for i := range 600 {
			b.requireFound(testKey)
			pass(time.Duration(1+i%39) * 100 * time.Millisecond)
		}
		require.Greater(b, b.src.count(testKey), 200, "lookups go on in the background")

		// The source responds again, but the last hung lookup counts until its deadline and for a while after it.
		b.src.set(func() { b.src.hung = false })
		b.src.remove(testKey)
		pass(2*authsigner.DefaultLookupTimeout + 2*authsigner.RetryAfterFailure)
		b.requireError(testKey, authsigner.ErrUnknownKey)
	})
}

// The table of the source's states in cache_stale.go.
func TestSourceBecomesUnavailableAndAvailableAgain(t *testing.T) {
	t.Parallel()
	const reset = authsigner.DefaultLookupTimeout + 2*authsigner.RetryAfterFailure
	failWith := func(err error, keys []string) func(bubble) {
		return func(b bubble) {
			b.src.set(func() { b.src.down = err })
			for _, key := range keys {
				_, _, _ = b.lookup(key)
				synctest.Wait()
			}
			b.src.set(func() { b.src.down = nil })
		}
	}
	fail := func(keys ...string) func(bubble) { return failWith(errSourceDown, keys) }
	deny := func(keys ...string) func(bubble) { return failWith(authsigner.ErrDenied, keys) }
	succeed := func(key string) func(bubble) {
		return func(b bubble) {
			_, _, _ = b.lookup(key)
			synctest.Wait()
		}
	}
	quiet := func(d time.Duration) func(bubble) { return func(bubble) { pass(d) } }
	for name, test := range map[string]struct {
		steps       []func(bubble)
		unavailable bool
		waits       []string // the keys whose next request waits for a lookup
	}{
		"available": {waits: []string{testKey, otherKey}},
		"suspect":   {steps: []func(bubble){fail(testKey), quiet(time.Second)}, waits: []string{otherKey}},
		"suspect, fails again": {
			steps: []func(bubble){fail(testKey), quiet(time.Second), fail(testKey), quiet(time.Second)}, waits: []string{otherKey},
		},
		"suspect, succeeds": {
			steps: []func(bubble){fail(testKey), succeed(unknownKey), quiet(time.Second)}, waits: []string{testKey, otherKey},
		},
		"suspect, quiet":     {steps: []func(bubble){fail(testKey), quiet(reset)}, waits: []string{testKey, otherKey}},
		"suspect, not quiet": {steps: []func(bubble){fail(testKey), quiet(reset - 1)}, waits: []string{otherKey}},
		"unavailable":        {steps: []func(bubble){fail(testKey, otherKey), quiet(time.Second)}, unavailable: true},
		"unavailable, fails": {
			steps:       []func(bubble){fail(testKey, otherKey), quiet(time.Second), fail(testKey), quiet(reset - 1)},
			unavailable: true,
		},
		"unavailable, succeeds": {
			steps: []func(bubble){fail(testKey, otherKey), quiet(time.Second), succeed(unknownKey)}, waits: []string{testKey, otherKey},
		},
		"denied": {steps: []func(bubble){deny(testKey, otherKey), quiet(time.Second)}, waits: []string{testKey, otherKey}},
		"unavailable, denied": {
			steps: []func(bubble){fail(testKey, otherKey), quiet(time.Second), deny(unknownKey)}, waits: []string{testKey, otherKey},
		},
		"unavailable, quiet": {
			steps: []func(bubble){fail(testKey, otherKey), quiet(reset)}, waits: []string{testKey, otherKey},
		},
	} {
		t.Run(name, func(t *testing.T) {
			withCache(t, authsigner.CacheOptions{}, func(b bubble) {
				b.requireFound(testKey, otherKey)
				pass(time.Minute)
				for _, step := range test.steps {
					step(b)
				}
				require.Equal(b, test.unavailable, authsigner.SourceUnavailable(b.Cache))
				b.src.set(func() { b.src.latency = time.Millisecond })
				keys := []string{testKey, otherKey}
				served := make([]atomic.Bool, len(keys))
				for i, key := range keys {
					go func() {
						_, _ = b.Lookup(b.Context(), key)
						served[i].Store(true)
					}()
					synctest.Wait()
				}
				var waits []string
				for i, key := range keys {
					if !served[i].Load() {
						waits = append(waits, key)
					}
				}
				require.Equal(b, test.waits, waits)
				pass(time.Second)
			})
		})
	}
}

func TestOneFailingKeyDoesNotDelayRevocations(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, otherKey)
		b.src.set(func() { b.src.errs[testKey] = errors.New("permission denied") })
		for range 600 {
			pass(time.Second)
			b.requireFound(testKey)
		}
		b.src.remove(otherKey)
		b.requireError(otherKey, authsigner.ErrUnknownKey)
		require.False(b, authsigner.SourceUnavailable(b.Cache))
	})
}

func TestMalformedEntryIsUnavailableAndAffectsNoOtherKey(t *testing.T) {
	t.Parallel()
	for name, malformed := range map[string]error{
		"bare":    fmt.Errorf("%w: status is missing", authsigner.ErrMalformedCredential),
		"wrapped": fmt.Errorf("%w: %w", authsigner.ErrUnavailable, authsigner.ErrMalformedCredential),
	} {
		t.Run(name, func(t *testing.T) {
			withCache(t, authsigner.CacheOptions{}, func(b bubble) {
				b.requireFound(testKey, otherKey)
				b.src.set(func() { b.src.errs[testKey] = malformed })
				pass(time.Minute)
				b.requireError(testKey, authsigner.ErrUnavailable) // the previous credential is not used as stale
				_, _, err := b.lookup(testKey)
				require.ErrorIs(b, err, authsigner.ErrMalformedCredential)
				b.requireFound(otherKey)
				require.False(b, authsigner.SourceUnavailable(b.Cache))
				require.Equal(b, 1, b.events.count(authsigner.CacheMalformed))

				b.src.set(func() { delete(b.src.errs, testKey) })
				pass(time.Second)
				b.requireFound(testKey)
			})
		})
	}
}

func TestInvalidatedKeyIsLookedUpBeforeUse(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, otherKey)
		b.src.remove(testKey)
		b.Invalidate(testKey)
		b.requireError(testKey, authsigner.ErrUnknownKey)
		b.src.put(testKey, testPreviousSecret)
		b.Invalidate(testKey) // now cached as unknown
		b.requireSecret(testKey, testPreviousSecret)

		b.src.set(func() { b.src.down = errSourceDown })
		b.Invalidate(otherKey)
		b.requireError(otherKey, authsigner.ErrUnavailable)
		b.requireSecret(testKey, testPreviousSecret)
	})
}

func TestLookupBegunBeforeInvalidationIsDiscarded(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		b.src.latency = time.Second
		for _, invalidate := range []func(){func() { b.Invalidate(testKey) }, b.InvalidateAll} {
			b.src.put(testKey, testSecret)
			b.Invalidate(testKey)
			var secret string
			var err error
			go func() { secret, _, err = b.lookup(testKey) }()
			synctest.Wait() // the source has read the old secret and not returned it yet
			b.src.put(testKey, testPreviousSecret)
			invalidate()
			pass(3 * time.Second)
			synctest.Wait()
			require.NoError(b, err)
			require.Equal(b, testPreviousSecret, secret)
			b.requireSecret(testKey, testPreviousSecret)
		}
	})
}

func TestWaitingRequestDoesNotUseAnInvalidatedCredential(t *testing.T) {
	t.Parallel()
	for name, stall := range map[string]func(s *fakeSource){
		"until the deadline":  func(s *fakeSource) { s.hung = true },
		"beyond the deadline": func(s *fakeSource) { s.deaf = true },
	} {
		t.Run(name, func(t *testing.T) {
			withCache(t, authsigner.CacheOptions{}, func(b bubble) {
				b.requireFound(testKey)
				pass(time.Minute)
				b.src.set(func() { stall(b.src) })
				var err error
				go func() { _, _, err = b.lookup(testKey) }()
				synctest.Wait()
				b.Invalidate(testKey)
				pass(10 * time.Second)
				close(b.src.resume)
				synctest.Wait()
				require.ErrorIs(b, err, authsigner.ErrUnavailable)
			})
		})
	}
}

func TestInvalidateAllKeepsCredentialsForStaleUse(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		const laterKey = "pk_live_not_there_yet"
		b.requireFound(testKey, otherKey)
		b.requireError(laterKey, authsigner.ErrUnknownKey)
		b.src.remove(testKey)
		b.src.put(laterKey, testSecret)
		b.InvalidateAll()
		b.requireKnown(testKey, false)
		b.requireError(testKey, authsigner.ErrUnknownKey)
		b.requireFound(laterKey)

		b.src.set(func() { b.src.down = errSourceDown })
		b.InvalidateAll()
		b.requireFound(otherKey)
		b.requireFound(laterKey)
		require.Equal(b, 2, b.src.count(otherKey))
	})
}

func TestMaxEntriesLimitsCredentialsAndUnknownKeysApart(t *testing.T) {
	withCache(t, authsigner.CacheOptions{MaxEntries: 100}, func(b bubble) {
		b.requireFound(testKey, otherKey)
		for i := range 2000 {
			b.requireError(fmt.Sprintf("pk_live_invented%d", i), authsigner.ErrUnknownKey)
		}
		synctest.Wait()
		b.requireFound(testKey, otherKey)
		require.Equal(b, 1, b.src.count(testKey), "invented keys evict no credential")
		require.Equal(b, 2, b.Len())
		require.LessOrEqual(b, authsigner.KeyErrors(b.Cache), 110)

		b.requireFound(b.src.putMany(1000)...)
		synctest.Wait()
		require.LessOrEqual(b, b.Len(), 110)
	})
}

func TestInventedKeysDoNotDelayKnownKeys(t *testing.T) {
	withCache(t, authsigner.CacheOptions{MaxLookups: 8}, func(b bubble) {
		b.requireFound(testKey)
		pass(time.Minute)
		b.src.put(testKey, testPreviousSecret)
		b.src.set(func() { b.src.latency = 100 * time.Millisecond })
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
		require.LessOrEqual(b, b.src.most, 9)
		require.False(b, authsigner.SourceUnavailable(b.Cache), "a full queue is not an outage")
	})
}

func TestCloseCancelsLookupsAndEmptiesTheCache(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey)
		b.src.set(func() { b.src.hung = true })
		var err error
		go func() { _, err = b.Lookup(b.Context(), otherKey) }()
		synctest.Wait()
		began := time.Now()
		require.NoError(b, b.Close())
		require.Zero(b, time.Since(began))
		synctest.Wait()
		require.ErrorIs(b, err, authsigner.ErrUnavailable)
		b.requireError(testKey, authsigner.ErrUnavailable)
		require.NoError(b, b.Close())
	})
}

func TestCacheLooksUpNoInvalidPublicKey(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		for _, key := range invalidPublicKeys() {
			b.requireError(key, authsigner.ErrUnknownKey)
		}
		require.Zero(b, b.src.totalCount())
		require.Zero(b, authsigner.KeyErrors(b.Cache))
	})
}

func TestClockSetBackExtendsNoEntry(t *testing.T) {
	var clock steppedClock
	withCache(t, authsigner.CacheOptions{Now: clock.now}, func(b bubble) {
		b.requireFound(testKey)
		b.requireError(unknownKey, authsigner.ErrUnknownKey)
		b.src.remove(testKey)
		b.src.put(unknownKey, testSecret)
		clock.step(-10 * time.Minute)
		b.requireError(testKey, authsigner.ErrUnknownKey)
		b.requireFound(unknownKey)
	})
}

// steppedClock is the current time plus an offset, without the monotonic reading, which would hide the steps.
type steppedClock struct{ offset atomic.Int64 }

func (c *steppedClock) now() time.Time {
	return time.Now().Round(0).Add(time.Duration(c.offset.Load()))
}

func (c *steppedClock) step(to time.Duration) { c.offset.Store(int64(to)) }

// A wrong clock of the gateway only rejects callers whose clock is correct.
func TestVerifierRecoversFromClockStepsOfTenMinutes(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"ahead": 10 * time.Minute, "back": -10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			var clock steppedClock
			withCache(t, authsigner.CacheOptions{Now: clock.now}, func(b bubble) {
				v := &authsigner.Verifier{Source: b.Cache, Now: clock.now}
				verify := func(signedAt time.Time) error {
					_, err := v.Verify(getSignedAt(signedAt).WithContext(b.Context()), meTarget)
					return err
				}
				require.NoError(b, verify(time.Now()))

				clock.step(step)
				require.ErrorIs(b, verify(time.Now()), authsigner.ErrExpired)
				require.NoError(b, verify(clock.now()), "a caller whose clock is equally wrong is accepted")
				b.src.set(func() { b.src.down = errSourceDown })
				require.NoError(b, verify(clock.now()), "an outage of the source is survived")

				clock.step(0)
				require.NoError(b, verify(time.Now()))
				require.ErrorIs(b, verify(time.Now().Add(step)), authsigner.ErrExpired)
				b.src.set(func() { b.src.down = nil })
				b.src.remove(testKey)
				pass(2 * time.Minute)
				require.ErrorIs(b, verify(time.Now()), authsigner.ErrInvalidCredentials, "a revocation takes effect in time")
			})
		})
	}
}

func TestLookupCachedDoesNotWait(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		requireState := func(key string, known, has bool) {
			b.Helper()
			began := time.Now()
			cred, isKnown, err := b.LookupCached(key)
			require.Zero(b, time.Since(began))
			require.Equal(b, known, isKnown)
			require.Equal(b, has, cred != nil)
			require.Equal(b, known && !has, errors.Is(err, authsigner.ErrUnknownKey), err)
		}
		requireState(testKey, false, false)
		requireState(unknownKey, false, false)
		b.requireFound(testKey)
		b.requireError(unknownKey, authsigner.ErrUnknownKey)
		requireState(testKey, true, true)
		requireState(unknownKey, true, false)
		pass(time.Minute)
		requireState(testKey, false, true)
		requireState(unknownKey, false, false)
		b.src.set(func() { b.src.down = errSourceDown })
		b.requireFound(testKey)
		requireState(testKey, true, true) // the lookup has just failed
		pass(59*time.Minute - time.Nanosecond)
		requireState(testKey, false, true)
		pass(time.Nanosecond)
		requireState(testKey, false, false)
		b.src.set(func() { b.src.down = nil })
		b.requireFound(testKey)
		requireState(testKey, true, true)
		b.Invalidate(testKey)
		requireState(testKey, false, false)
		require.Equal(b, 3, b.src.count(testKey))
	})
}

func TestOutagesAndRecoveriesAreReported(t *testing.T) {
	withCache(t, authsigner.CacheOptions{}, func(b bubble) {
		b.requireFound(testKey, otherKey)
		b.requireError("pk_live_unknown", authsigner.ErrUnknownKey)
		pass(time.Minute)
		b.src.set(func() { b.src.down = errSourceDown })
		b.requireFound(testKey, otherKey)
		b.requireError("pk_live_never_seen", authsigner.ErrUnavailable)
		b.requireError("pk_live_never_seen_2", authsigner.ErrUnavailable)
		b.src.set(func() { b.src.down, b.src.latency = nil, time.Millisecond })
		pass(time.Second)
		b.requireFound(testKey) // still stale, while the lookup is made
		pass(time.Millisecond)
		synctest.Wait()
		for kind, want := range map[authsigner.CacheEventKind]int{
			authsigner.CacheFound: 3, authsigner.CacheUnknown: 1, authsigner.CacheFailed: 3, authsigner.CacheStale: 3,
			authsigner.CacheUnavailable: 1, authsigner.CacheAvailable: 1, authsigner.CacheSkipped: 1, authsigner.CacheMalformed: 0,
		} {
			assert.Equal(b, want, b.events.count(kind), string(kind))
		}
	})
}

// Quiet times and lookups that fail one at a time change the state of the source, but end no outage.
func TestOutageIsReportedOnceWithItsEnd(t *testing.T) {
	t.Parallel()
	const reset = authsigner.DefaultLookupTimeout + 2*authsigner.RetryAfterFailure
	for name, again := range map[string][]string{
		"quiet":               nil,
		"one key fails again": {testKey},
		"two keys fail again": {testKey, otherKey},
	} {
		t.Run(name, func(t *testing.T) {
			withCache(t, authsigner.CacheOptions{}, func(b bubble) {
				b.requireFound(testKey, otherKey)
				pass(time.Minute)
				b.src.set(func() { b.src.down = errSourceDown })
				b.requireFound(testKey, otherKey)
				pass(reset)
				b.requireFound(again...)
				require.Equal(b, 1, b.events.count(authsigner.CacheUnavailable))
				require.Zero(b, b.events.count(authsigner.CacheAvailable))
				b.src.set(func() { b.src.down = nil })
				pass(reset)
				b.requireFound(testKey, otherKey)
				require.Equal(b, 1, b.events.count(authsigner.CacheUnavailable))
				require.Equal(b, 1, b.events.count(authsigner.CacheAvailable))
			})
		})
	}
}

func TestCacheOptions(t *testing.T) {
	t.Parallel()
	src := newFakeSource()
	for name, o := range map[string]authsigner.CacheOptions{
		"negative TTL":           {TTL: -1},
		"negative LookupTimeout": {LookupTimeout: -1},
		"RefreshBefore >= TTL":   {TTL: time.Second, RefreshBefore: time.Second},
		"StaleIfError < TTL":     {TTL: time.Minute, StaleIfError: time.Second},
		"negative MaxEntries":    {MaxEntries: -1},
		"negative MaxLookups":    {MaxLookups: -1},
	} {
		_, err := authsigner.NewCache(src, o)
		assert.Error(t, err, name)
	}
	_, err := authsigner.NewCache(nil, authsigner.CacheOptions{})
	require.Error(t, err)
	for _, o := range []authsigner.CacheOptions{
		{TTL: time.Second}, {TTL: 2 * time.Hour}, {LookupTimeout: time.Millisecond}, {NegativeTTL: -1, RefreshBefore: -1, StaleIfError: -1},
	} {
		c, err := authsigner.NewCache(src, o)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}

// A lookup that begins after Invalidate has returned never gets an older credential.
func TestRevocationsHoldUnderLoad(t *testing.T) {
	t.Parallel()
	src := newFakeSource()
	keys := src.putMany(8)
	jittery := sourceFunc(func(ctx context.Context, key string) (*authsigner.Credential, error) {
		cred, err := src.Lookup(ctx, key)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rand.IntN(1000)) * time.Microsecond):
		}
		return cred, err
	})
	c, err := authsigner.NewCache(jittery, authsigner.CacheOptions{
		TTL: 5 * time.Millisecond, RefreshBefore: 4 * time.Millisecond, NegativeTTL: 2 * time.Millisecond,
	})
	require.NoError(t, err)
	defer c.Close()

	// Secrets are growing numbers. revoked holds the lowest one that may still be returned.
	revoked := make([]atomic.Int64, len(keys))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var looked, wrong atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { // for two seconds, or longer until there are enough lookups
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
				revoked[i].Store(n)
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
				least := revoked[i].Load()
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
	assert.Zero(t, wrong.Load())
	assert.Greater(t, looked.Load(), int64(100))
}

func TestCacheHitsDoNotAllocate(t *testing.T) {
	src := newFakeSource(testKey)
	c, err := authsigner.NewCache(src, authsigner.CacheOptions{})
	require.NoError(t, err)
	defer c.Close()
	for _, key := range []string{testKey, otherKey} {
		_, _ = c.Lookup(t.Context(), key)
		allocations := testing.AllocsPerRun(1000, func() { _, _ = c.Lookup(t.Context(), key) })
		assert.Zero(t, allocations, key)
	}
}

func BenchmarkCache(b *testing.B) {
	src := newFakeSource()
	keys := src.putMany(1000)
	var ahead atomic.Int64
	c, err := authsigner.NewCache(src, authsigner.CacheOptions{Now: func() time.Time {
		return time.Now().Add(time.Duration(ahead.Load()))
	}})
	require.NoError(b, err)
	defer c.Close()
	run := func(name string, keys []string) {
		for _, key := range keys {
			_, _ = c.Lookup(b.Context(), key)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					_, _ = c.Lookup(b.Context(), keys[i%len(keys)])
				}
			})
		})
	}
	run("unknown", []string{"pk_live_unknown"})
	run("fresh", keys)
	src.set(func() { src.down = errSourceDown })
	ahead.Store(int64(2 * time.Minute))
	run("stale", keys)
}
