package authsigner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
)

// The defaults of [CacheOptions].
const (
	DefaultCacheTTL      = time.Minute
	DefaultRefreshBefore = 15 * time.Second
	DefaultNegativeTTL   = 10 * time.Second
	DefaultStaleIfError  = time.Hour
	DefaultLookupTimeout = 2 * time.Second
	DefaultMaxLookups    = 64
	DefaultMaxEntries    = 100_000
)

// storeResolution is the resolution of otter's coarse clock.
const storeResolution = time.Second

// CacheOptions configure a [Cache]. The zero value has all defaults.
type CacheOptions struct {
	// TTL is how long a credential is used before it is looked up again. A revocation takes effect within this time, even
	// without Invalidate, if the source responds within LookupTimeout. Default: 1m. Zero means the default.
	TTL time.Duration

	// RefreshBefore is how long before the end of its TTL a credential in use is refreshed in the background. It must be less
	// than TTL. Default: 15s, or TTL/4 if that is less. Zero means the default; negative disables refreshing.
	RefreshBefore time.Duration

	// NegativeTTL is how long ErrUnknownKey is cached for a key. Other errors are not cached as such. Default: 10s. Zero means
	// the default; negative disables negative caching.
	NegativeTTL time.Duration

	// StaleIfError is how long after its last successful lookup a credential may be used while lookups fail. It must not be
	// less than TTL. Default: 1h. Zero means the default; negative means not beyond TTL.
	StaleIfError time.Duration

	// LookupTimeout limits one lookup in the source, and so how long a request waits. Default: 2s. Zero means the default.
	LookupTimeout time.Duration

	// MaxLookups is the maximum number of concurrent lookups of uncached keys, and separately of cached keys, so that requests
	// with invented keys neither overload the source nor block others. Default: 64. Zero means the default.
	MaxLookups int

	// MaxEntries is the maximum number of cached credentials, and separately of unknown keys. The least used are
	// evicted. Default: 100000. Zero means the default.
	MaxEntries int

	// Now is the clock. It should be monotonic, like time.Now: if it steps back, entries from its future are looked up again.
	// Default: time.Now.
	Now func() time.Time

	// OnEvent, if set, is called for all events except cache hits. It is called concurrently and must return quickly.
	OnEvent func(CacheEvent)
}

// CacheEventKind is the kind of a [CacheEvent]: one of a fixed set, suitable as a metric label.
type CacheEventKind string

// The kinds of events.
const (
	CacheFound       CacheEventKind = "found"       // the source returned a credential
	CacheUnknown     CacheEventKind = "unknown"     // the source returned ErrUnknownKey
	CacheMalformed   CacheEventKind = "malformed"   // the source has a malformed entry, which an operator must correct
	CacheFailed      CacheEventKind = "failed"      // a lookup failed or timed out
	CacheStale       CacheEventKind = "stale"       // a request got a credential past its TTL
	CacheSkipped     CacheEventKind = "skipped"     // a request got ErrUnavailable without a lookup, because the source is unavailable
	CacheUnavailable CacheEventKind = "unavailable" // lookups of two keys failed in a row: the source is considered unavailable
	CacheAvailable   CacheEventKind = "available"   // the source has responded again
)

// CacheEvent is an event of a [Cache].
type CacheEvent struct {
	Kind      CacheEventKind
	PublicKey string        // as sent by the caller; it satisfies ValidPublicKey
	Err       error         // for CacheUnknown, CacheMalformed, CacheFailed and CacheUnavailable; as free of secrets as the source's errors
	Took      time.Duration // of the lookup; for CacheFound, CacheUnknown, CacheMalformed, CacheFailed
	Age       time.Duration // since the last successful lookup; for CacheStale
}

// Cache is a [CredentialSource] that caches the credentials of another one. With default options:
//
//   - A credential is used for 1 minute. If it is in use, it is refreshed in the background 15 seconds before, so that requests
//     do not wait.
//   - After its TTL, requests wait for a new lookup. A revocation therefore takes effect within TTL, as long as the source
//     responds within LookupTimeout, and immediately if Invalidate is called.
//   - A credential past its TTL is used only if a lookup has failed: the source returned an error, did not respond within
//     LookupTimeout, or all MaxLookups places for cached keys were taken for half of LookupTimeout. It is then used for up to 1
//     hour after its last successful lookup, but not by a request whose context is done.
//   - After a failed lookup of a key, requests for that key do not wait; lookups run in the background, once a second. After
//     failed lookups of two different keys with no success in between, the source is considered unavailable: no request for a
//     cached key waits, and there is one lookup a second for all keys together.
//   - Meanwhile, uncached keys get ErrUnavailable immediately. Only ErrUnknownKey is cached as an unknown key.
//   - If an entry has become malformed, its previous credential is not used: the key gets ErrUnavailable, and the entry is
//     looked up again every second. Other keys are not affected.
//   - Concurrent requests for a key share one lookup, which continues if one of them is canceled.
//
// A successful lookup of any key ends this, and so does a time of LookupTimeout + 2 seconds without a lookup. When the source
// recovers, credentials past their TTL are used for at most 2 LookupTimeout + 2 seconds and one lookup longer.
//
// A Cache is safe for concurrent use. A cache hit does not allocate.
type Cache struct {
	source     CredentialSource
	o          CacheOptions
	refreshAge int64 // ns: age at which a credential is refreshed
	maxAge     int64 // ns: maximum age at which a credential is used
	created    time.Time

	entries    *otter.Cache[string, *cacheEntry]
	keyErrors  *otter.Cache[string, keyError]
	clock      *otter.CoarseClock
	generation atomic.Uint64 // incremented by InvalidateAll

	mu      sync.Mutex // held while results are stored and invalidated, so that an outdated result is never stored
	pending map[string]*pendingLookup
	closed  bool

	ctx    context.Context // of the lookups, which outlive the requests that started them
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// Semaphores for lookups of uncached and of cached keys.
	uncachedLookups, cachedLookups chan struct{}

	breaker sourceBreaker
}

var _ CredentialSource = (*Cache)(nil)

// cacheEntry is a cached credential. Times are nanoseconds since Cache.created.
type cacheEntry struct {
	cred       *Credential
	confirmed  int64 // when the lookup that returned it began
	generation uint64
	retryAt    atomic.Int64 // earliest time of the next lookup, after a failed one; 0 if none has failed since confirmed
}

// keyError is the cached error of a key without a credential: ErrUnknownKey or, for retryAfterFailure, why it could not be looked up.
type keyError struct {
	at, ttl    int64
	generation uint64
	err        error
}

// NewCache returns a cache of source. It returns an error for invalid options.
func NewCache(source CredentialSource, o CacheOptions) (*Cache, error) {
	if source == nil {
		return nil, errors.New("creating the credential cache: the source must not be nil")
	}
	if err := o.setDefaults(); err != nil {
		return nil, fmt.Errorf("creating the credential cache: %w", err)
	}
	c := &Cache{
		source:          source,
		o:               o,
		refreshAge:      int64(o.TTL - o.RefreshBefore),
		maxAge:          int64(max(o.TTL, o.StaleIfError)),
		created:         o.Now(),
		pending:         make(map[string]*pendingLookup),
		uncachedLookups: make(chan struct{}, o.MaxLookups),
		cachedLookups:   make(chan struct{}, o.MaxLookups),
	}
	// The next lookup begins up to retryAfterFailure after the last one and must end while the state is still known.
	c.breaker.resetAfter = int64(o.LookupTimeout + 2*retryAfterFailure)
	c.ctx, c.cancel = context.WithCancel(context.Background())

	// Otter limits the number of entries and expires unused ones. The Cache decides by its own clock whether an entry is still
	// valid. Otter gets a coarse clock, because reading the time is a large part of the cost of a hit.
	c.clock = otter.NewCoarseClock(storeResolution)
	c.entries = otter.Must(&otter.Options[string, *cacheEntry]{
		MaximumSize:      o.MaxEntries,
		ExpiryCalculator: otter.ExpiryWriting[string, *cacheEntry](time.Duration(c.maxAge) + 2*storeResolution),
		Clock:            c.clock,
	})
	c.keyErrors = otter.Must(&otter.Options[string, keyError]{
		MaximumSize:      o.MaxEntries,
		ExpiryCalculator: otter.ExpiryWriting[string, keyError](max(o.NegativeTTL, retryAfterFailure) + 2*storeResolution),
		Clock:            c.clock,
	})
	return c, nil
}

func (o *CacheOptions) setDefaults() error {
	if o.TTL < 0 || o.LookupTimeout < 0 {
		return errors.New("TTL and LookupTimeout must not be negative")
	}
	o.TTL = cmp.Or(o.TTL, DefaultCacheTTL)
	o.LookupTimeout = cmp.Or(o.LookupTimeout, DefaultLookupTimeout)
	// for these, negative means disabled
	o.RefreshBefore = max(0, cmp.Or(o.RefreshBefore, min(DefaultRefreshBefore, o.TTL/4)))
	o.NegativeTTL = max(0, cmp.Or(o.NegativeTTL, DefaultNegativeTTL))
	o.StaleIfError = max(0, cmp.Or(o.StaleIfError, max(DefaultStaleIfError, o.TTL)))
	switch {
	case o.RefreshBefore >= o.TTL:
		return fmt.Errorf("RefreshBefore (%s) must be less than TTL (%s)", o.RefreshBefore, o.TTL)
	case o.StaleIfError > 0 && o.StaleIfError < o.TTL:
		return fmt.Errorf("StaleIfError (%s) must not be less than TTL (%s)", o.StaleIfError, o.TTL)
	case o.MaxEntries < 0 || o.MaxLookups < 0:
		return errors.New("MaxEntries and MaxLookups must not be negative")
	}
	o.MaxEntries = cmp.Or(o.MaxEntries, DefaultMaxEntries)
	o.MaxLookups = cmp.Or(o.MaxLookups, DefaultMaxLookups)
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// Lookup implements [CredentialSource]. Errors wrap ErrUnknownKey or ErrUnavailable, the latter also if ctx is done first.
func (c *Cache) Lookup(ctx context.Context, publicKey string) (*Credential, error) {
	for attempt := 1; ; attempt++ {
		var cred *Credential
		e, known, err := c.cached(publicKey)
		switch {
		case known && e != nil:
			cred = e.cred
		case !known && err == nil:
			cred, err = c.lookUp(ctx, publicKey, e)
		}
		if attempt == lookupAttempts || !errors.Is(err, errInvalidated) {
			return cred, err
		}
	}
}

// LookupCached does not wait for the source. known reports whether Lookup would not either: the key has a fresh credential, or one
// past its TTL while lookups fail; or it is cached as unknown, is invalid, or its lookup has just failed. The results are then those
// of Lookup. Otherwise the error is nil, and the credential is one whose TTL has ended, or nil if there is none. Only for keys with a
// credential, LookupCached may start a lookup in the background, as Lookup does.
func (c *Cache) LookupCached(publicKey string) (cred *Credential, known bool, err error) {
	e, known, err := c.cached(publicKey)
	if e != nil {
		cred = e.cred
	}
	if !known {
		err = nil // errInvalidated
	}
	return cred, known, err
}

// Invalidate removes the key, because it was revoked or changed. Its credential is not used until a new lookup returns it, even
// if the source is unavailable. The result of a lookup in progress is discarded.
func (c *Cache) Invalidate(publicKey string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.pending[publicKey]; ok {
		p.outdated = true
		delete(c.pending, publicKey)
	}
	c.entries.Invalidate(publicKey)
	c.keyErrors.Invalidate(publicKey)
}

// InvalidateAll ends the TTL of all entries, because calls of Invalidate may have been missed: each key is looked up again before
// its next use. If the source is unavailable, credentials can still be used as stale.
func (c *Cache) InvalidateAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation.Add(1)
	for _, p := range c.pending {
		p.outdated = true
	}
	clear(c.pending)
}

// Len returns the approximate number of cached credentials.
func (c *Cache) Len() int { return c.entries.EstimatedSize() }

// Close cancels all lookups, waits for them, and removes all entries. Afterwards, Lookup returns ErrUnavailable.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	c.entries.StopAllGoroutines()
	c.keyErrors.StopAllGoroutines()
	c.clock.Stop()
	c.entries.InvalidateAll()
	c.keyErrors.InvalidateAll()
	return nil
}

// now returns the nanoseconds since the cache was created.
func (c *Cache) now() int64 { return int64(c.o.Now().Sub(c.created)) }

// fresh reports whether the entry is within its TTL.
func (c *Cache) fresh(e *cacheEntry, now int64) bool {
	age := now - e.confirmed
	return age >= 0 && age < int64(c.o.TTL) && e.generation == c.generation.Load()
}

// usable reports whether the entry may be used if lookups fail.
func (c *Cache) usable(e *cacheEntry, now int64) bool {
	return now-e.confirmed < c.maxAge && (c.o.StaleIfError > 0 || c.fresh(e, now))
}

// current reports whether the error is within its TTL.
func (c *Cache) current(k keyError, now int64) bool {
	age := now - k.at
	return age >= 0 && age < k.ttl && k.generation == c.generation.Load()
}

func (c *Cache) event(e CacheEvent) {
	if c.o.OnEvent != nil {
		c.o.OnEvent(e)
	}
}
