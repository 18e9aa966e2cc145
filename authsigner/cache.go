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
	DefaultCacheTTL          = time.Minute
	DefaultRefreshBefore     = 15 * time.Second
	DefaultNegativeTTL       = 10 * time.Second
	DefaultStaleIfError      = time.Hour
	DefaultLoadTimeout       = 2 * time.Second
	DefaultRetryAfterFailure = time.Second
	DefaultMaxLoads          = 64
	DefaultMaxEntries        = 100_000
)

// storeResolution is how exactly the store of the cache tells the time.
const storeResolution = time.Second

// CacheOptions configure a [Cache]. The zero value is every default.
type CacheOptions struct {
	// TTL is how long a credential is used without asking the source again: what a revocation that nobody
	// announced takes at most to be noticed while the source answers within LoadTimeout. Default 1 min.
	TTL time.Duration

	// RefreshBefore is how long before the end of its TTL a credential that is asked for is loaded again, in the
	// background. It is shorter than TTL. Default 15 s, but at most TTL/4. Negative: only when TTL is over.
	RefreshBefore time.Duration

	// NegativeTTL is how long the source's word is remembered that there is no such key. An error is never
	// remembered as that. Default 10 s. Negative: not at all.
	NegativeTTL time.Duration

	// StaleIfError is how long, counted from the source's last word, a credential may be used while the source does
	// not answer. It is not shorter than TTL. Default 1 h. Negative: not beyond TTL.
	StaleIfError time.Duration

	// LoadTimeout bounds one look-up in the source, and so what a request waits for it. Default 2 s.
	LoadTimeout time.Duration

	// RetryAfterFailure is the shortest time between a failed look-up of a key and the next, and, while the
	// source is known to be away, between any two look-ups. Default 1 s.
	RetryAfterFailure time.Duration

	// MaxLoads is how many look-ups may be under way for keys never seen, and again as many for known ones, so
	// that a flood of invented keys neither floods the source nor holds up the others. Default 64.
	MaxLoads int

	// MaxEntries is how many credentials are kept, and separately how many keys are remembered as absent; the
	// least used go. Default 100 000.
	MaxEntries int

	// Now is the clock. It should be monotonic, as time.Now is, which is the default: when a clock steps back,
	// whatever it makes look newer than now is loaded again.
	Now func() time.Time

	// OnEvent, if set, is told what happens beside plain hits. It is called by requests and by loads, at the same
	// time, and has to be quick.
	OnEvent func(CacheEvent)
}

// CacheEventKind says what a [CacheEvent] is about; a bounded set, good as a metric's label.
type CacheEventKind string

// What the cache reports.
const (
	CacheLoaded    CacheEventKind = "loaded"    // the source returned a credential
	CacheUnknown   CacheEventKind = "unknown"   // the source knows that there is no such key
	CacheMalformed CacheEventKind = "malformed" // the source has an entry that is no credential: somebody has to mend it
	CacheFailed    CacheEventKind = "failed"    // the source did not answer, or not in time
	CacheStale     CacheEventKind = "stale"     // a request was answered with a credential past its TTL
	CacheRefused   CacheEventKind = "refused"   // a request was refused without asking the source, which is away
	CacheAway      CacheEventKind = "away"      // look-ups of several keys in a row failed: the source is taken to be away
	CacheBack      CacheEventKind = "back"      // it has answered again
)

// CacheEvent is one thing that happened.
type CacheEvent struct {
	Kind      CacheEventKind
	PublicKey string        // the key, as named by a caller; it satisfies ValidPublicKey
	Err       error         // of CacheUnknown, CacheMalformed, CacheFailed and CacheAway; holds no secret if the source's errors hold none
	Took      time.Duration // what the look-up took; CacheLoaded, CacheUnknown, CacheMalformed, CacheFailed
	Age       time.Duration // since the source's last word; CacheStale
}

// CacheStats are figures of the moment.
type CacheStats struct {
	Credentials int  // kept, roughly
	Absent      int  // keys remembered as absent or failing, roughly
	Away        bool // the source is taken to be away
}

// Cache is a [CredentialSource] that remembers the answers of another one. Its promises, by default options:
//
//   - A credential is used for 1 min without asking. One that is in use is loaded again in the background 15 s
//     before, so that no request waits for it.
//   - When the minute is over, a request asks the source and waits for its answer, however long the key was not used.
//     So no request that arrives later than TTL after a revocation finds the key, as long as the source answers within
//     LoadTimeout; where Invalidate is called, none that arrives after the call does.
//   - A credential past its TTL is used only if a look-up has failed: the source returned an error, it did not answer
//     within LoadTimeout, or MaxLoads look-ups of known keys left no room for another within half of LoadTimeout. It is
//     then used for up to 1 h after the source's last word, and not by a request whose context has ended.
//   - Once the look-up of a key has failed, requests for that key do not wait: look-ups go to the background, once a
//     second, until the source answers. Once those of two different keys have failed with no answer in between, the
//     source is away: no request for a known key waits, and one look-up a second is made for all keys together.
//   - A key never seen gets ErrUnavailable meanwhile, promptly. Only ErrUnknownKey is remembered as "no such key".
//   - An entry that is malformed is not used in its earlier form: its key gets ErrUnavailable, for the key may well
//     be right, and the entry is looked at again every second. Other keys are not affected.
//   - All who ask for a key at the same time share one look-up; it goes on when one of them gives up.
//
// A failure counts until the source answers for any key, and for LoadTimeout + 2 RetryAfterFailure at most after the
// last failure or the last look-up that was made meanwhile: a request after that waits for the source before it uses a
// credential past its TTL. So requests that are never further apart than that wait for the source once. When it is
// available again, a credential past its TTL is used for at most 2 LoadTimeout + 2 RetryAfterFailure more, and one
// look-up.
//
// A Cache is safe for concurrent use. Finding a fresh credential, or a remembered absence, allocates nothing.
type Cache struct {
	src        CredentialSource
	o          CacheOptions
	refreshAge int64 // ns: the age from which a credential is refreshed
	maxAge     int64 // ns: the age up to which it may be used at all
	start      time.Time

	entries *otter.Cache[string, *cacheEntry]
	absent  *otter.Cache[string, absence]
	clock   *otter.CoarseClock
	epoch   atomic.Uint64 // raised by InvalidateAll

	mu      sync.Mutex // held while answers are stored and invalidated, so that an old answer never overtakes
	flights map[string]*flight
	closed  bool

	ctx    context.Context // the life of the look-ups, which outlive the requests that started them
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// Places for look-ups of keys never seen, and of known ones.
	firstLoads, reloads chan struct{}

	health sourceHealth
}

var _ CredentialSource = (*Cache)(nil)

// cacheEntry is a credential and when the source vouched for it. Times are nanoseconds since Cache.start.
type cacheEntry struct {
	cred      *Credential
	confirmed int64 // when the look-up began that returned it
	epoch     uint64
	refreshAt atomic.Int64 // when a refresh may be started again
	failedAt  atomic.Int64 // when the last look-up failed; 0: none has since confirmed
}

// absence is why a key has no credential, remembered for a while.
type absence struct {
	at, ttl int64
	epoch   uint64
	err     error
}

// NewCache returns a cache in front of src. It returns an error for options that contradict each other.
func NewCache(src CredentialSource, o CacheOptions) (*Cache, error) {
	if src == nil {
		return nil, errors.New("a credential cache needs a source")
	}
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	c := &Cache{
		src:        src,
		o:          o,
		refreshAge: int64(o.TTL - o.RefreshBefore),
		maxAge:     int64(max(o.TTL, o.StaleIfError)),
		start:      o.Now(),
		flights:    make(map[string]*flight),
		firstLoads: make(chan struct{}, o.MaxLoads),
		reloads:    make(chan struct{}, o.MaxLoads),
	}
	c.health.window = int64(o.LoadTimeout + 2*o.RetryAfterFailure)
	c.ctx, c.cancel = context.WithCancel(context.Background())

	// Otter bounds the number and frees the memory; what an entry is good for is decided here, by a better clock. Its
	// own reads the time once a second, for on some machines reading it is a third of what a hit takes.
	c.clock = otter.NewCoarseClock(storeResolution)
	var err error
	c.entries, err = otter.New(&otter.Options[string, *cacheEntry]{
		MaximumSize:      o.MaxEntries,
		ExpiryCalculator: otter.ExpiryWriting[string, *cacheEntry](time.Duration(c.maxAge) + 2*storeResolution),
		Clock:            c.clock,
	})
	if err != nil {
		c.clock.Stop()
		return nil, fmt.Errorf("making the credential cache: %w", err)
	}
	c.absent, err = otter.New(&otter.Options[string, absence]{
		MaximumSize:      o.MaxEntries,
		ExpiryCalculator: otter.ExpiryWriting[string, absence](max(o.NegativeTTL, o.RetryAfterFailure) + 2*storeResolution),
		Clock:            c.clock,
	})
	if err != nil {
		c.entries.StopAllGoroutines()
		c.clock.Stop()
		return nil, fmt.Errorf("making the credential cache: %w", err)
	}
	return c, nil
}

func (o *CacheOptions) setDefaults() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"TTL", o.TTL},
		{"LoadTimeout", o.LoadTimeout},
		{"RetryAfterFailure", o.RetryAfterFailure},
	} {
		if d.value < 0 {
			return fmt.Errorf("credential cache: %s is negative", d.name)
		}
	}
	o.TTL = cmp.Or(o.TTL, DefaultCacheTTL)
	o.LoadTimeout = cmp.Or(o.LoadTimeout, DefaultLoadTimeout)
	o.RetryAfterFailure = cmp.Or(o.RetryAfterFailure, DefaultRetryAfterFailure)
	// For these, negative means none.
	o.RefreshBefore = max(0, cmp.Or(o.RefreshBefore, min(DefaultRefreshBefore, o.TTL/4)))
	o.NegativeTTL = max(0, cmp.Or(o.NegativeTTL, DefaultNegativeTTL))
	o.StaleIfError = max(0, cmp.Or(o.StaleIfError, max(DefaultStaleIfError, o.TTL)))
	switch {
	case o.RefreshBefore >= o.TTL:
		return fmt.Errorf("credential cache: RefreshBefore (%s) is not shorter than TTL (%s)", o.RefreshBefore, o.TTL)
	case o.StaleIfError > 0 && o.StaleIfError < o.TTL:
		return fmt.Errorf("credential cache: StaleIfError (%s) is shorter than TTL (%s)", o.StaleIfError, o.TTL)
	case o.MaxEntries < 0 || o.MaxLoads < 0:
		return errors.New("credential cache: MaxEntries or MaxLoads is negative")
	}
	o.MaxEntries = cmp.Or(o.MaxEntries, DefaultMaxEntries)
	o.MaxLoads = cmp.Or(o.MaxLoads, DefaultMaxLoads)
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// Lookup returns the credential of publicKey by the rules of [Cache]. Its errors wrap ErrUnknownKey, or else
// ErrUnavailable (also when ctx ends first).
func (c *Cache) Lookup(ctx context.Context, publicKey string) (*Credential, error) {
	now := c.now()
	if e, ok := c.entries.GetIfPresent(publicKey); ok && c.fresh(e, now) {
		if now-e.confirmed >= c.refreshAge {
			c.refresh(publicKey, e, now)
		}
		return e.cred, nil
	}
	if a, ok := c.absent.GetIfPresent(publicKey); ok && c.holds(a, now) {
		return nil, a.err
	}
	return c.load(ctx, publicKey)
}

// Known reports whether Lookup would answer without a look-up in the source: because the credential is fresh, or the
// key's absence is remembered, or the source has just failed.
func (c *Cache) Known(publicKey string) bool {
	now := c.now()
	if e, ok := c.entries.GetIfPresent(publicKey); ok && c.usable(e, now) {
		return c.fresh(e, now) || c.justFailed(e, now)
	}
	a, ok := c.absent.GetIfPresent(publicKey)
	return ok && c.holds(a, now)
}

// Has reports whether the cache holds a credential, fresh or past its TTL, that Lookup may return. The look-up of any other
// key takes one of the MaxLoads places that all keys never seen share.
func (c *Cache) Has(publicKey string) bool {
	e, ok := c.entries.GetIfPresent(publicKey)
	return ok && c.usable(e, c.now())
}

// Invalidate forgets the key, because it was revoked or changed: its credential is not used again before the source
// has confirmed it, even if the source is away. A look-up under way is not trusted either.
func (c *Cache) Invalidate(publicKey string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.flights[publicKey]; ok {
		f.outdated = true
		delete(c.flights, publicKey)
	}
	c.entries.Invalidate(publicKey)
	c.absent.Invalidate(publicKey)
}

// InvalidateAll ends the TTL of every answer, because announcements may have been missed: each key is looked up again
// before its next use. Since nothing says that any of them was revoked, credentials remain as they are to fall back on
// if the source is away.
func (c *Cache) InvalidateAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch.Add(1)
	for _, f := range c.flights {
		f.outdated = true
	}
	clear(c.flights)
}

// Stats returns figures for metrics.
func (c *Cache) Stats() CacheStats {
	return CacheStats{
		Credentials: c.entries.EstimatedSize(),
		Absent:      c.absent.EstimatedSize(),
		Away:        c.health.isAway(c.now()),
	}
}

// Close ends every look-up, waits for them, and forgets everything. Lookup returns ErrUnavailable afterwards.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	c.entries.StopAllGoroutines()
	c.absent.StopAllGoroutines()
	c.clock.Stop()
	c.entries.InvalidateAll()
	c.absent.InvalidateAll()
	return nil
}

// now is the time since the cache was made, in nanoseconds: monotonic as far as the clock is.
func (c *Cache) now() int64 { return int64(c.o.Now().Sub(c.start)) }

// fresh says whether the entry may be used without asking.
func (c *Cache) fresh(e *cacheEntry, now int64) bool {
	age := now - e.confirmed
	return age >= 0 && age < int64(c.o.TTL) && e.epoch == c.epoch.Load()
}

// usable says whether the entry may be used if the source does not answer.
func (c *Cache) usable(e *cacheEntry, now int64) bool {
	return now-e.confirmed < c.maxAge && (c.o.StaleIfError > 0 || c.fresh(e, now))
}

func (c *Cache) justFailed(e *cacheEntry, now int64) bool {
	return failedWithin(e.failedAt.Load(), now, int64(c.o.RetryAfterFailure))
}

func failedWithin(failedAt, now, window int64) bool {
	since := now - failedAt
	return failedAt != 0 && since >= 0 && since < window
}

// holds says whether the absence is still believed.
func (c *Cache) holds(a absence, now int64) bool {
	age := now - a.at
	return age >= 0 && age < a.ttl && a.epoch == c.epoch.Load()
}

func (c *Cache) event(e CacheEvent) {
	if c.o.OnEvent != nil {
		c.o.OnEvent(e)
	}
}
